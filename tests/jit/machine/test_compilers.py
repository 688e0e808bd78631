"""Other compilers than g++, where there are any: Debian's packages clang and ccache have them."""

from __future__ import annotations

import shlex
import shutil

import pytest
from ways import MODULE

from lltm_jit.jit import BuildError, torch_api
from lltm_jit.jit.loading import reload


@pytest.mark.slow
@pytest.mark.parametrize("command", ["clang++", "ccache g++", "ccache clang++", "ccache"])
def test_build_edit_and_error(tmp_path, monkeypatch, command):
    """By CXX, or the last one as torch finds it on PATH."""
    for word in shlex.split(command):
        if shutil.which(word) is None:
            pytest.skip(f"there is no {word}")
    if command != "ccache":
        monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "root"))
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    source, header = tmp_path / "one.cpp", tmp_path / "value.h"
    header.write_text("#define VALUE 1\n")
    source.write_text(f'#include "value.h"\n{MODULE}')
    module = torch_api.load("one", source)
    assert module.value() == 1
    torch_api.build("one", source, force=True)  # by ccache without the compiler
    for value in (2, 3):
        header.write_text(f"#define VALUE {value}\n")
        assert reload.reload_module(module).changed == ("value.h changed",)
        assert module.value() == value
    source.write_text(f'#include "value.h"\n{MODULE}int x = nonsense;\n')
    with pytest.raises(BuildError, match=r"nonsense.*\n  --> .*one\.cpp:\d+:9\n"):
        reload.reload_module(module)
