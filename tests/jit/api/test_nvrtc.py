"""Code for the GPU alone that NVRTC compiles: what a build has, what it depends on, its errors."""

import os
import re
import shutil
import threading
import time
from contextlib import suppress

import pytest
from small_files import write

from lltm_jit import jit
from lltm_jit.jit.compile import builder
from lltm_jit.jit.compile.nvrtc import STANDARD
from lltm_jit.jit.loading import engine
from lltm_jit.jit.machine import gpus, nvrtc, toolchain
from lltm_jit.jit.machine.toolchain import Nvrtc, find_nvrtc
from lltm_jit.jit.request import request as requests
from lltm_jit.jit.request.flags import nvrtc_architecture
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.user.errors import BuildTimeout, Cancelled, cancelled_by, ended_after

SCALE = """#include "two.h"
template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= two() * FACTOR; }
"""
FOUND = Nvrtc("", "13.0.88", (12, 1), ())


def with_scale(bench):
    bench.write("two.h", "inline int two() { return 2; }\n")
    bench.write("scale.cu", SCALE)
    return bench


@pytest.fixture
def mine(by_nvrtc):
    """A bench with a kernel, and no compiler but a fake NVRTC."""
    return with_scale(by_nvrtc)


@pytest.fixture
def real_nvrtc(bench, monkeypatch):
    """A bench with a kernel, and torch's NVRTC."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.delenv("CUDA_HOME")
    if find_nvrtc(None) is None:
        pytest.skip("needs a torch with CUDA, whose NVRTC needs no GPU")
    return with_scale(bench)


def spec(bench, **changes) -> jit.Spec:
    path = (str(bench.sources / "scale.cu"),)
    asked = {"functions": ("scale<float>",), "constants": (("FACTOR", "3"),), "nvrtc": True}
    return jit.Spec("scale", path, python_module=False, device_code=True, **(asked | changes))


def load(bench, **changes) -> jit.Build:
    return jit.load(spec(bench, **changes))


def test_a_build_needs_no_other_compiler(mine, capfd):
    build = load(mine)
    assert "building scale for sm_90a (NVRTC 13.0, 1 file, " in capfd.readouterr().err
    (text, options) = mine.compiled[0]
    assert build.info.library.read_text() == text
    assert text.startswith('#line 1 "constants.h"\n#define FACTOR 3\n#line 1 "')
    assert options[:2] == ["-arch=sm_90a", "-default-device"]
    assert build.record.symbols == {"scale<float>": ["_Zscale<float>", mine.type]}
    assert (build.info.compiler, build.info.nvcc) == ("NVRTC 13.0.88", None)
    assert mine.counts == []


def test_what_makes_another_build(mine, monkeypatch):
    """Each of these is compiled once."""
    first, newer = load(mine), FOUND._replace(version="13.1.2")
    changes = {
        "two.h changed": lambda: mine.write("two.h", "inline int two() { return 4; }\n"),
        "scale.cu changed": lambda: mine.write("scale.cu", SCALE + "\n"),
        "9.0a to 9.0": lambda: monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0"),
        "88 to NVRTC 13.1.2": lambda: monkeypatch.setattr(requests, "find_nvrtc", lambda _: newer),
    }
    mine.write("scale.cu", f"{SCALE}// another\n")
    load(mine)
    mine.write("scale.cu", SCALE)
    assert load(mine) is first  # a return to an earlier text
    for number, (reason, change) in enumerate(changes.items(), 3):
        change()
        assert load(mine).info.reason.endswith(reason)
        assert len(mine.compiled) == number
        assert load(mine) is load(mine)
    for other in ({"functions": ("scale<int>",)}, {"constants": (("FACTOR", "4"),)}):
        load(mine, **other)
    assert len(mine.compiled) == number + 2


def test_a_cache_is_pruned_after_the_first_of_many_small_builds(mine, monkeypatch):
    pruned = []
    monkeypatch.setattr(builder.retention, "prune", lambda: pruned.append(1))
    monkeypatch.setattr(builder, "_pruned", -1e9)
    for number in range(3):
        mine.write("scale.cu", SCALE + f"// {number}\n")
        load(mine)
    assert pruned == [1]


@pytest.mark.parametrize(
    "include",
    [
        '#include "more.h"',
        "#  include <more.h>",
        '/* why */ #include "more.h"',
        '#include \\\n"more.h"',
        '#/**/include "more.h"',
        "#include MORE",
        '#define HERE "more.h"\n#include HERE',
        '%:include "more.h"',
    ],
)
def test_every_header_counts(mine, include):
    """However it is included: an edit makes another build."""
    constants = (("FACTOR", "3"), ("MORE", '"more.h"'))
    mine.write("more.h", "// one\n")
    mine.write("scale.cu", f"{include}\n{SCALE}")
    load(mine, constants=constants)
    mine.write("more.h", "// another\n")
    assert load(mine, constants=constants).info.reason == "more.h changed"


def test_a_header_that_comes_in_front_of_another_counts(mine):
    folder = mine.write("far/more.h", "// far\n").parent
    mine.write("scale.cu", f"#include <more.h>\n{SCALE}")
    paths = (str(mine.sources / "near"), str(folder))
    (mine.sources / "near").mkdir()
    load(mine, include_paths=paths)
    mine.write("near/more.h", "// near\n")
    load(mine, include_paths=paths)
    assert len(mine.compiled) == 2


@pytest.mark.parametrize(
    "include", ["#include UNKNOWN", "#define A <a.h>\n#define A B\n#include A"]
)
def test_a_header_that_is_not_known_is_refused(mine, include):
    mine.write("scale.cu", f"{include}\n{SCALE}")
    with pytest.raises(jit.BuildError, match="does not name a file, so its edits would go"):
        load(mine)


@pytest.mark.parametrize(
    "flag", ["-Ia", "--include-path=a", "--pre-include=a.h", "-include", "-pch", "--options-file=a"]
)
def test_flags_with_files_are_refused(mine, flag):
    with pytest.raises(jit.BuildError, match=f"does not report the files of {flag}, whose"):
        load(mine, cuda_cflags=(flag,))


def test_an_error_has_the_users_line(mine):
    mine.write("scale.cu", "// first\n  wrong;\n")
    with pytest.raises(jit.BuildError) as caught:
        load(mine)
    error = caught.value
    assert (error.file, error.line) == (str(mine.sources / "scale.cu"), 2)
    assert error.message == 'identifier "wrong" is undefined'
    assert "2 |   wrong;" in str(error)


def test_without_nvrtc(mine, monkeypatch):
    monkeypatch.setattr(requests, "find_nvrtc", lambda home: None)
    told = r"NVRTC 13\.0 was not found; run .*nvidia-cuda-nvrtc==13"
    with pytest.raises(jit.ToolchainError, match=told):
        load(mine)
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(jit.ToolchainError, match="has no CUDA; install a torch with CUDA"):
        load(mine)


@pytest.mark.parametrize(
    ("asked", "there", "chosen"),
    [
        ("8.0;9.0a", [(9, 0)], ("9.0a",)),
        ("8.0;9.0", [(8, 6)], ("8.0",)),
        ("8.0+PTX", [(9, 0)], ("8.0+PTX",)),
        ("8.0;9.0+PTX", [(9, 0)], ("9.0",)),
        ("8.0;9.0+PTX", [], ("9.0+PTX",)),
        ("8.0;9.0", [], ("9.0",)),
        ("7.0+PTX;9.0", [(8, 0), (9, 0)], ("7.0+PTX",)),
        ("9.0", [(8, 0)], ()),
        ("", [(9, 0)], ("9.0a",)),
        ("", [(13, 0)], ("12.1+PTX",)),
    ],
)
def test_one_architecture_is_chosen(mine, monkeypatch, asked, there, chosen):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", asked)
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: there)
    assert nvrtc_architecture(FOUND) == chosen


def test_a_process_that_uses_cuda_asks_torch_for_its_gpus(mine, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda place: [(8, 0), (8, 6)][place])
    with pytest.raises(jit.ToolchainError, match=r"and none of 9\.0a runs on all GPUs of this"):
        load(mine)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    assert nvrtc_architecture(FOUND) == ("8.0",)


def test_torchs_own_nvrtc_is_found_before_the_toolkits(cuda, monkeypatch, tmp_path):
    packages, toolkit = tmp_path / "site-packages", tmp_path / "cuda"
    own = packages / "nvidia" / "cu13"
    for folder, lib in ((own, "lib"), (toolkit, "lib64")):
        write(folder / lib / "libnvrtc.so.13")
        write(folder / "include" / "cuda.h")
        (folder / "include" / "cccl").mkdir()
    monkeypatch.setattr("torch.__file__", str(packages / "torch" / "__init__.py"))
    facts = {"version": "13.0.88", "newest": [12, 1]}
    monkeypatch.setattr(toolchain, "_answers", lambda command, kind: facts)
    found = find_nvrtc(str(toolkit))
    assert found.path == str(own / "lib" / "libnvrtc.so.13")
    both = [str(folder / "include") for folder in (own, toolkit)]
    assert found.include_paths == (*both, *(f"{path}/cccl" for path in both))
    shutil.rmtree(own)
    assert find_nvrtc(str(toolkit)).path == str(toolkit / "lib64" / "libnvrtc.so.13")
    shutil.rmtree(toolkit)
    assert find_nvrtc(str(toolkit)) is None


@pytest.mark.parametrize("missing", ["CUDA_HOME", "CXX"])
def test_variants_without_nvcc_or_its_compiler(mine, toolkit, monkeypatch, missing):
    """What is for the GPU alone needs neither."""
    monkeypatch.setenv("CXX", str(mine.write_compiler()))
    assert Request(spec(mine, nvrtc=False, variant="three")).nvrtc is None
    monkeypatch.setenv(missing, "/nowhere")
    build = load(mine, nvrtc=False, ours=True, include_paths=(str(mine.sources),), variant="three")
    assert build.info.compiler == "NVRTC 13.0.88"


def test_variants_where_both_compilers_are(mine, toolkit, monkeypatch):
    """Those that want NVRTC get it, unless several architectures are asked for."""

    def chosen(**changes):
        return Request(spec(mine, variant="three", **changes)).nvrtc

    monkeypatch.setenv("CXX", str(mine.write_compiler()))
    assert chosen().version == "13.0.88"
    assert chosen(nvrtc=False) is None
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0a")
    assert chosen() is None
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setattr(requests, "find_nvrtc", lambda home: None)
    assert not Request(spec(mine, variant="three")).by_nvrtc


def test_standard_headers_stand_in(real_nvrtc):
    """What kernels include of the standard library, also beside CUDA's own headers."""
    names = {*os.listdir(STANDARD), "cmath", "math.h", "cstdio", "stdio.h", "cstdint", "stdint.h"}
    names |= {"limits", "cstddef", "cuda_fp16.h", "cuda_bf16.h"}
    includes = "".join(f"#include <{name}>\n" for name in sorted(names))
    uses = """
static_assert(std::is_same_v<std::decay_t<const float&>, float> && std::is_integral_v<uint8_t>);
static_assert(std::numeric_limits<float>::infinity() > std::numeric_limits<float>::max());
__global__ void f(float* x, std::int64_t n) {
  std::pair<float, std::conditional_t<true, int, float>> all{std::exp(x[0]), std::abs(-1)};
  std::memcpy(x, &all.first, sizeof(float));
  if (std::isnan(x[1])) x[2] = std::fabs(all.second - float(n));
}
__global__ void g(float* x) {
  int64_t n = std::sqrt(4.0); std::printf("%d", int(n)); ::printf("!"); x[n] = fabsf(*x);
}
"""
    real_nvrtc.write("scale.cu", includes + uses)
    assert load(real_nvrtc, functions=("f", "g")).record.symbols["g"] == ["_Z1gPf", "void (float*)"]


def test_compiled_and_named(real_nvrtc, monkeypatch):
    build = load(real_nvrtc, functions=("scale<float>", "scale<double>"))
    assert build.record.symbols == {
        "scale<float>": ["_Z5scaleIfEvPT_", "void (float*)"],
        "scale<double>": ["_Z5scaleIdEvPT_", "void (double*)"],
    }
    code = build.info.library.read_bytes()
    assert code.startswith(b"\x7fELF")
    assert all(symbol.encode() in code for symbol, _ in build.record.symbols.values())
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0+PTX")  # for later GPUs
    assert b".target sm_80" in load(real_nvrtc).info.library.read_bytes()


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("__global__ void f() {\n\tint a = here;\n}", 2, 10, 'identifier "here" is undefined'),
        ('#include "not_there.h"', 1, 23, 'cannot open source file "not_there.h"'),
        ("template <int N> __global__ void g() {}", None, None, "the kernel's name: identifier"),
        ('__global__ void f() { asm("trap2;"); }', None, None, "Not a name of any known instr"),
    ],
)
def test_errors_of_nvrtc(real_nvrtc, text, line, column, message):
    real_nvrtc.write("scale.cu", text + "\n")
    with pytest.raises(jit.BuildError, match=re.escape(message)) as caught:
        load(real_nvrtc, functions=("f",))
    assert (caught.value.line, caught.value.column) == (line, column)


def test_an_unknown_flag_is_told(real_nvrtc):
    told = r"unrecognized option -O3 found\n.*\n   = remove this"
    with pytest.raises(jit.BuildError, match=told):
        load(real_nvrtc, cuda_cflags=("-O3",))


LARGE = "\n".join(
    f"__global__ void k{i}(float* x) {{ *x = powf(*x, {i}.5f); }}" for i in range(300)
)


def test_threads_compile_at_the_same_time(real_nvrtc):
    """A small kernel is done while another thread compiles a large one."""
    path, seen = find_nvrtc(None).path, threading.Event()

    def compile_large():
        with cancelled_by(seen), suppress(Cancelled):
            nvrtc.compile(path, LARGE, "large.cu", ["-arch=sm_90"])

    large = threading.Thread(target=compile_large)
    nvrtc.compile(path, "__global__ void f() {}", "small.cu", ["-arch=sm_90"])
    large.start()
    time.sleep(0.1)
    nvrtc.compile(path, "__global__ void f() {}", "small.cu", ["-arch=sm_90"])
    assert large.is_alive()
    seen.set()
    large.join()


def test_a_compilation_ends_when_it_is_cancelled_or_takes_too_long(real_nvrtc):
    path, event = find_nvrtc(None).path, threading.Event()
    event.set()
    with cancelled_by(event), pytest.raises(Cancelled):
        nvrtc.compile(path, LARGE, "large.cu", ["-arch=sm_90"])
    with ended_after(0), pytest.raises(BuildTimeout, match="after 0 s"):
        nvrtc.compile(path, LARGE, "large.cu", ["-arch=sm_90"])


def test_a_kernel_without_any_tool(real_nvrtc, monkeypatch):
    """As on a machine that has torch alone."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CXX", "c++")
    assert not shutil.which("c++")
    assert engine.build(spec(real_nvrtc)).compiler.startswith("NVRTC")
