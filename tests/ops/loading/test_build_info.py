"""What `build_info()` shows, in print and in a notebook."""

from pathlib import Path

import torch
from IPython.lib.pretty import pretty

import lltm_jit
from lltm_jit import native


def test_of_the_package():
    info = lltm_jit.build_info()
    table = str(info)
    assert pretty(info) == table
    lines = table.splitlines()
    assert lines[0].split() == ["lltm_jit", lltm_jit.__version__]
    assert f"torch     {torch.__version__}, CUDA {torch.version.cuda or 'none'}" in lines
    families = lines[lines.index("") + 2 :]
    assert [line.split()[0] for line in families] == list(info.families)
    for line, build in zip(families, info.families.values(), strict=True):
        assert line.endswith(build.reason)
        assert f"{build.seconds:.1f} s" in line


def test_of_a_build():
    build = native.load("basic").info
    at_home = build._replace(directory=Path.home() / "builds" / build.key, cached=False)
    rows = dict(line.split(None, 1) for line in str(at_home).splitlines())
    assert pretty(at_home) == str(at_home)
    assert rows["extension"] == "basic"
    assert rows["build"] == f"made by this process; it took {build.seconds:.1f} s"
    assert rows["files"] == f"{build.compiled} compiled, {build.reused} reused"
    assert rows["directory"] == f"~/builds/{build.key}"
    elsewhere = build._replace(directory=Path("/builds") / build.key)
    assert f"/builds/{build.key}" in str(elsewhere)
