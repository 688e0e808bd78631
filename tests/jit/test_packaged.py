"""A library that came in a wheel of a user's own: what it must have been built of to be used."""

from __future__ import annotations

import shutil
import sys
import types

import pytest

from lltm_jit.jit import detect, reload, torch_api, wheel


@pytest.fixture
def packaged(bench, tmp_path, monkeypatch):
    """Put a package into a wheel whose kernels are two/ with these arguments.

    Whether it fits afterwards what the installed package asks for.
    """
    site, built = tmp_path / "site", tmp_path / "built"
    sources = site / "mine" / "csrc"
    shutil.copytree(bench.sources / "two", sources)

    def fits(**arguments):
        return torch_api.extension("_C", sources, **arguments).packaged_info(detect()) is not None

    def put(**arguments):
        module = torch_api.load("_C", sources, **arguments)
        package = types.ModuleType("mine")
        package.__file__ = str(site / "mine" / "__init__.py")
        monkeypatch.setitem(sys.modules, "mine", package)
        monkeypatch.setattr(wheel, "given_modules", lambda: [(module, reload.given(module))])
        wheel._put("mine", built)
        shutil.copytree(built / "mine", site / "mine", dirs_exist_ok=True)
        return fits

    return put, site / "mine"


def test_a_header_beside_the_sources_directory(packaged, capsys):
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    (package / "include").mkdir()
    header = package / "include" / "own.h"
    header.write_text("one\n")
    given = {"extra_include_paths": [package / "include"]}
    fits = put(**given)
    assert fits(**given)
    header.write_text("another\n")
    assert not fits(**given)
    assert (
        "the packaged library of _C is not used: include/own.h changed" in capsys.readouterr().err
    )


def test_a_header_that_is_not_shipped(packaged, tmp_path):
    put, package = packaged
    (package / "csrc" / "two.cpp").write_text('#include "own.h"\n')
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "own.h").write_text("one\n")
    given = {"extra_include_paths": [tmp_path / "common"]}
    fits = put(**given)
    shutil.rmtree(tmp_path / "common")
    assert fits(**given)


@pytest.mark.parametrize(
    ("built", "asked", "expected"),
    [
        (["-D", "N=4"], ["-D", "N=4"], True),
        (["-D", "N=4"], ["-DN=4"], True),
        (["-D N=4"], ["-DN=4"], True),
        (["-D", "N=4"], ["-D", "N=8"], False),
        (["-DN=4"], ["-DN=4", "-U", "N"], False),
        (["-DN='a b'"], ["-DN='a c'"], False),
        (["-DN=4"], ["-DN=4", "-DWITH_CUDA"], True),
    ],
)
def test_macros(packaged, built, asked, expected):
    put, _ = packaged
    fits = put(extra_cflags=built)
    assert fits(extra_cflags=asked) is expected
