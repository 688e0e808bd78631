"""Kernels that are compiled with constants on first use, with compiler runs counted."""

import ctypes
import signal
import threading
from dataclasses import replace

import pytest
import torch
from harness import Gate, alive, load_variant

from lltm_jit import jit
from lltm_jit.jit import variants
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache
from lltm_jit.jit.variants import Variant

FUNCTION = "PyInit__C"  # that the fake linker's library has


def of_size(kernel: Variant, size: int, **changes) -> Variant:
    constants = (("ELEMENT", "float"), ("SIZE", str(size)))
    return replace(kernel, constants=constants, label=f"float, size {size}", **changes)


@pytest.fixture
def kernel(bench) -> Variant:
    """A kernel for the fake compiler."""
    bench.write("mine/variants/mine.cpp", '#include "core/shared.h"\nmine\n')
    source = bench.sources / "mine" / "variants" / "mine.cpp"
    return Variant("mine.sums", source, include_paths=(bench.sources,))


def test_equal_contents_are_one_build(bench, kernel):
    first = load_variant(of_size(kernel, 3), FUNCTION)
    assert bench.counts == ["compile mine.cpp", "link"]
    assert load_variant(replace(of_size(kernel, 3), label="other words"), FUNCTION) == first
    assert bench.counts == []
    assert load_variant(of_size(kernel, 4), FUNCTION) != first
    assert bench.counts == ["compile mine.cpp", "link"]
    variants.declare(kernel)
    asked = ("mine.sums", FUNCTION, [("SIZE", "3")], "three")
    assert variants.load_declared(asked, asked)
    assert bench.counts == ["compile mine.cpp", "link"]


def test_without_a_compiler_an_optional_one_is_told_of_once(bench, kernel, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    cause = "CXX is set to 'no-such-compiler', which is not found; "
    variants.declare(kernel)
    with pytest.raises(jit.ToolchainError, match=f"^{cause}"):
        variants.load_declared(("mine.sums", FUNCTION, [], ""))
    variants.declare(replace(kernel, optional=True))
    for size in "34":
        assert variants.load_declared(("mine.sums", FUNCTION, [("SIZE", size)], "")) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"lltm_jit: mine.sums: {cause}")
    assert told[0].endswith("; a slower kernel runs instead")


@pytest.fixture
def gates(bench) -> list[Gate]:
    """Where the compilers of two declared kernels wait, mine.forward and mine.backward."""
    sources = {way: bench.sources / f"mine/variants/{way}.cpp" for way in ("forward", "backward")}
    for way, source in sources.items():
        variants.declare(Variant(f"mine.{way}", source, (bench.sources,)))
    return bench.gates("mine/variants/forward", "mine/variants/backward")


FORWARD, BACKWARD = ((f"mine.{way}", FUNCTION, [], way) for way in ("forward", "backward"))


def open_both(gates: list[Gate]) -> None:
    """Once both compilers wait there."""
    for gate in gates:
        gate.reached()
    for gate in gates:
        gate.open()


def test_what_will_be_asked_for_compiles_at_the_same_time(bench, gates, capsys):
    opener = threading.Thread(target=open_both, args=(gates,))
    opener.start()
    forward = variants.load_declared(FORWARD, BACKWARD)
    opener.join()
    assert bench.counts == ["compile backward.cpp", "compile forward.cpp", "link", "link"]
    told = capsys.readouterr().err
    assert "building mine variant forward for CPU (g++ 1.2, 1 file, 2 jobs): first use" in told
    assert (
        "building mine variant backward for CPU (g++ 1.2, 1 file, 2 jobs; gradients are wanted): "
        "first use" in told
    )
    assert variants.load_declared(BACKWARD) not in (0, forward)
    assert variants.load_declared(FORWARD, BACKWARD) == forward
    assert bench.counts == []


def test_without_a_compiler_what_is_there_is_loaded_alone(bench, gates, monkeypatch):
    gates[0].open()
    forward = variants.load_declared(FORWARD)
    assert bench.counts == ["compile forward.cpp", "link"]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert variants.load_declared(FORWARD, BACKWARD) == forward


def test_ctrl_c_stops_both_compilers(bench, gates):
    def press() -> None:  # any thread may get a signal
        gates[1].reached()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    gates[0].then(press)
    with pytest.raises(KeyboardInterrupt):
        variants.load_declared(FORWARD, BACKWARD)
    assert not any(alive(gate.reached()) for gate in gates)
    open_both(gates)
    assert variants.load_declared(FORWARD, BACKWARD)


def test_an_edit_is_seen(bench, kernel):
    first = load_variant(of_size(kernel, 3), FUNCTION)
    bench.write("core/shared.h", "edited\n")
    assert load_variant(of_size(kernel, 3), FUNCTION) != first
    reasons = [record.reason for record in cache.records()]
    assert reasons == ["kernels/core/shared.h changed", "first use"]


def test_a_build_reads_no_record_of_another_variant(bench, kernel, monkeypatch):
    """A family may have a thousand of them, each of tens of kilobytes."""
    load_variant(of_size(kernel, 3), FUNCTION)
    read = []
    monkeypatch.setattr(cache, "read_record", lambda directory: read.append(directory))
    load_variant(of_size(kernel, 4), FUNCTION)
    assert read == []


def test_what_is_said_and_what_is_written(bench, kernel, capsys):
    for size in (3, 4):
        load_variant(of_size(kernel, size), FUNCTION)
        words = f"float, size {size} for CPU (g++ 1.2, 1 file, 2 jobs): first use\n"
        assert f"building mine variant {words}" in capsys.readouterr().err
    texts = {path.read_text() for path in bench.builds.glob("work/*/constants.h")}
    macros = {f"#define ELEMENT float\n#define SIZE {size}\n" for size in (3, 4)}
    assert {text.partition("\n")[2] for text in texts} == macros


def test_a_missing_function_is_told(kernel):
    with pytest.raises(jit.BuildError, match=r"mine\.cpp has no function 'none'; .*extern \"C\""):
        load_variant(of_size(kernel, 3), "none")


def test_a_kernel_for_the_gpu_is_not_loaded_in_a_capture(cuda, toolkit, kernel, monkeypatch):
    source = cuda.write("mine/variants/mine_cuda.cu", "")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(jit.LltmJitError, match=r"float, size 3 is not loaded .*operator once"):
        load_variant(of_size(kernel, 3, source=source), FUNCTION)
    assert cuda.counts == []
    assert load_variant(of_size(kernel, 3), FUNCTION)


@pytest.mark.parametrize("constant", [("SIZE 3", "4"), ("SIZE", "3\n#error")])
def test_what_is_no_macro_is_refused(kernel, constant):
    with pytest.raises(jit.BuildError, match=r"constant of mine\.sums"):
        replace(kernel, constants=(constant,))


def test_device_code_of_no_cuda_source_is_refused(kernel):
    with pytest.raises(jit.BuildError, match=r"mine\.sums .* ends in \.cu, but got .*mine\.cpp"):
        replace(kernel, device_code=True)


def test_sources_of_variants_are_not_compiled_with_their_family(bench, kernel):
    request = Request(bench.spec())
    assert str(kernel.source) not in request.sources


def test_kernels_made_from_users_headers(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "c++")
    source = tmp_path / "cells.cpp"
    source.write_text('#include CELL\nextern "C" float call(float x) { return cell(x); }\n')
    texts = ("return 2 * x;", "return x * x;", "return nonsense;")
    headers = [tmp_path / f"cell_{number}.h" for number in range(3)]
    cells = []
    for header, text in zip(headers, texts, strict=True):
        header.write_text(f"inline float cell(float x) {{\n  {text}\n}}\n")
        constants = (("CELL", f'"{header}"'),)
        cells.append(Variant("mine.cells", source, (), constants, header.name, (header,)))
    call = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)
    assert [call(load_variant(cell, "call"))(3.0) for cell in cells[:2]] == [6.0, 9.0]
    headers[0].write_text(headers[0].read_text().replace("2", "4"))
    assert call(load_variant(cells[0], "call"))(3.0) == 12.0
    with pytest.raises(jit.BuildError, match=r"cell_2\.h:2:10\n  \|\n2 \|   return nonsense;"):
        load_variant(cells[2], "call")


@pytest.fixture
def device_code(cuda, toolkit, driver, monkeypatch) -> Variant:
    """A kernel whose code for the GPU alone is compiled by nvcc."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setenv("FAKE_TORCH_CUDA", "13.0")
    source = cuda.write("mine/variants/mine_cuda.cu", "code\n")
    return Variant("mine.sums", source, (cuda.sources,), device_code=True)


def test_device_code_has_no_library_and_its_kernels_are_the_drivers(cuda, driver, device_code):
    for function in ("one", "three", "one"):
        assert load_variant(device_code, function) == 1000 + len(function)
    assert cuda.counts == ["compile mine_cuda.cu"]
    assert driver.loaded == [b"code"]
    with pytest.raises(jit.BuildError, match=r"mine_cuda\.cu has no function 'none'"):
        load_variant(device_code, "none")


def test_device_code_is_loaded_with_its_build(driver, device_code, monkeypatch):
    """Nobody can remove or replace the file between its check and a call, nor does a call read."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    (build,) = variants.builds_of([device_code])
    assert driver.loaded == [b"code"]
    build.info.library.unlink()
    assert load_variant(device_code, "one") == 1003


def test_what_the_driver_says_of_code_is_told(cuda, device_code):
    cuda.write("mine/variants/mine_cuda.cu", "wrong")
    message = r"cuLibraryLoadData\(\) of the GPU's driver failed with 200: device kernel image is"
    with pytest.raises(jit.LltmJitError, match=message):
        load_variant(device_code, "one")
