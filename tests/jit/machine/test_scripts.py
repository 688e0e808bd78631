"""Compilers that are scripts, whose text decides what they compile: it is a part of the key."""

from __future__ import annotations

import os

import pytest

from lltm_jit.jit.request.request import Request


@pytest.mark.parametrize("name", ["CXX", "CC", "NVCC_CCBIN", "PYTORCH_NVCC", "nvcc", "a folder"])
def test_an_edited_script_gives_another_key(cuda, monkeypatch, name):
    """Also one that a variable names for nvcc, or its host compiler; torch hands on CC."""
    toolkit = cuda.write_nvcc()
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    script = toolkit / "bin" / "nvcc"
    if name != "nvcc":
        script = cuda.directory / "gcc"
        script.write_text(f'#!/bin/sh\nexec {os.environ["CXX"]} "$@"\n')
        script.chmod(0o755)
        if name == "a folder":  # in which nvcc looks for its host compiler
            monkeypatch.setenv("NVCC_CCBIN", str(script.parent))
        else:
            monkeypatch.setenv(name, str(script))
    keys = [Request(cuda.spec()).key]
    script.write_text(f"{script.read_text()}# edited\n")
    keys.append(Request(cuda.spec()).key)
    assert keys[0] != keys[1]
    assert Request(cuda.spec()).key == keys[1]


@pytest.mark.parametrize("name", ["", "CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "a flag"])
def test_clang_as_nvccs_host_compiler_gets_no_flag_of_gcc(cuda, monkeypatch, name):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    flags = ("-ccbin=clang++",) if name == "a flag" else ()
    if name.isupper():
        value = "-ccbin clang++" if name.endswith("FLAGS") else "clang++"
        monkeypatch.setenv(name, value)
    asked = Request(cuda.spec(cuda_cflags=flags))
    assert ("-fno-gnu-unique" in asked.cuda_cflags) == (name == "")
