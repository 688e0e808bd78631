"""``kernel`` on a fake driver that tells what it was given."""

import ctypes
import re
import struct
import threading
from functools import partial

import pytest
import torch
from harness import in_threads

import lltm_jit
from lltm_jit import jit
from lltm_jit.cli import main
from lltm_jit.jit import launch as launches
from lltm_jit.jit.machine import nvrtc
from lltm_jit.jit.user.errors import check_wanted

SCALE = """
template <typename T>
__global__ void scale(const T* x, T* y, long n, float factor) { work(); }
"""
OTHERS = """
struct Size { long rows, columns; };
__global__ void others(bool flag, short small, unsigned char byte, __half h, __nv_bfloat16 b,
                       double d, Size size, void* any, const Size* sizes) {}
"""
OTHERS_TYPE = (
    "void (bool, short, unsigned char, __half, __nv_bfloat16, double, Size, void*, Size const*)"
)


class OnGpu(torch.Tensor):
    """A tensor of the CPU that says that it is on a GPU."""

    place = 0

    def get_device(self):
        return self.place


def on_gpu(size=4, dtype=torch.float32, place=0):
    tensor = torch.zeros(size, dtype=dtype).as_subclass(OnGpu)
    tensor.place = place
    return tensor


@pytest.fixture
def gpu(by_nvrtc, driver, monkeypatch):
    """A fake driver, and a torch that seems to use it."""
    monkeypatch.setattr(launches, "_stream_of", lambda device: 7000 + device)
    monkeypatch.setattr(launches, "_device_now", lambda: 0)
    driver.capturing = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: driver.capturing)
    driver.chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", driver.chosen.append)
    return driver


def scale(name="scale<float>", **how):
    return lltm_jit.kernel(SCALE, name, **how)


def test_a_launch_gets_what_was_given(gpu):
    x, y = on_gpu(), on_gpu()
    assert scale()[(3, 2), 256, 64](x, y, 1 << 40, 2.5) is None
    (launch,) = gpu.launched
    assert (launch.grid, launch.block, launch.shared) == ((3, 2, 1), (256, 1, 1), 64)
    assert (launch.stream, launch.kernel) == (7000, 1000 + len("_Zscale<float>"))
    pointers = [struct.unpack("P", each[:8])[0] for each in launch.first[:2]]
    assert pointers == [x.data_ptr(), y.data_ptr()]
    assert struct.unpack("q", launch.first[2][:8]) == (1 << 40,)
    assert struct.unpack("f", launch.first[3][:4]) == (2.5,)


def test_a_grid_is_a_function_of_the_arguments(gpu):
    scale()[lambda x, y, n, factor: (n + 255) // 256, (16, 16)](on_gpu(), on_gpu(), 1000, 1)
    assert gpu.launched[0].grid == (4, 1, 1)
    scale()[lambda *arguments: 0, 1](on_gpu(), on_gpu(), 0, 1)
    scale()[0, 1](on_gpu(), on_gpu(), 0, 1)
    assert len(gpu.launched) == 1


def test_more_shared_memory_clusters_and_cooperative_launches(gpu):
    kernel = scale()
    for _ in range(2):
        launch = kernel.launch(16, 32, 100_000, cluster=(16, 1), cooperative=True)
        launch(on_gpu(), on_gpu(), 1, 1)
    assert gpu.attributes == [(8, 100_000, 0), (14, 1, 0)]
    told = gpu.launched[0].attributes
    assert struct.unpack("i4xIII", told[:20]) == (4, 16, 1, 1)
    assert struct.unpack("i4xi", told[72:84]) == (2, 1)


def test_every_other_type(gpu, by_nvrtc):
    gpu.sizes = [1, 2, 1, 2, 2, 8, 16, 8, 8]
    by_nvrtc.type = OTHERS_TYPE
    kernel = lltm_jit.kernel(OTHERS, "others")
    with pytest.raises(ValueError, match="argument 7, Size, to have 16 bytes, but got 8"):
        kernel[1, 1](True, 1, 1, 1, 1, 1, b"12345678", None, None)
    with pytest.raises(ValueError, match="argument 5 to fit into __nv_bfloat16, but got 1000"):
        kernel[1, 1](True, 1, 1, 1, 10**400, 1, bytes(16), None, None)
    size = (ctypes.c_int64 * 2)(3, 4)
    kernel[1, 1](True, -2, 200, 1.5, -1.5, 0.1, size, on_gpu(dtype=torch.int8), None)
    first = gpu.launched[0].first
    formats = ["?", "h", "B", "e", "2s", "d", "qq", "P", "P"]
    each = zip(formats, first, strict=True)
    values = [struct.unpack(f, told[: struct.calcsize(f)]) for f, told in each]
    assert values[:4] == [(True,), (-2,), (200,), (1.5,)]
    assert values[4:7] == [((0xBFC0).to_bytes(2, "little"),), (0.1,), (3, 4)]
    assert values[8] == (0,)


POINTER = r"argument 1, float const\*, to be a float32 tensor on a GPU, but got 1"
GOT_3 = r"expected 4 arguments, \(float const\*, float\*, long, float\), but got 3"
ON_CPU = r"float\*, to be a float32 tensor on a GPU, but got a float32 tensor on cpu"
HALF = "to be a float32 tensor on a GPU, but got a float16 tensor"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({3: None}, TypeError, GOT_3),
        ({0: 1}, TypeError, POINTER),
        ({1: on_gpu(dtype=torch.half)}, TypeError, HALF),
        ({1: torch.zeros(4)}, TypeError, ON_CPU),
        ({1: on_gpu(place=1)}, ValueError, "all tensors on one GPU, but got cuda:0 and cuda:1"),
        ({2: 1.0}, TypeError, r"argument 3, long, to be an integer, but got 1\.0"),
        ({2: torch.ones(1)}, TypeError, "long, to be an integer, but got a float32 tensor"),
        ({2: 1 << 63}, ValueError, "argument 3 to fit into long, but got 9223372036854775808"),
        ({3: "2"}, TypeError, "argument 4, float, to be a number, but got '2'"),
    ],
)
def test_wrong_arguments(gpu, change, error, message):
    given = {0: on_gpu(), 1: on_gpu(), 2: 4, 3: 2.0, **change}
    arguments = [value for value in given.values() if value is not None]
    with pytest.raises(error, match=message):
        scale()[1, 32](*arguments)
    assert not gpu.launched
    scale()[1, 32](on_gpu(), on_gpu(), 4, 2.0)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (1, r"expected scale<float>\[grid, block\]"),
        ((1,), r"expected scale<float>\[grid, block\]"),
        ((-1, 1), "expected the grid to be a size, or up to three of them, but got -1"),
        ((1, 0), "expected the block to be a size, or up to three of them, but got 0"),
        (((1, 1, 1, 1), 1), "expected the grid to be a size, or up to three"),
        ((1.5, 1), "expected the grid to be a size, or up to three"),
    ],
)
def test_wrong_sizes(gpu, how, message):
    with pytest.raises((TypeError, ValueError), match=message):
        scale()[how]


def test_a_refused_launch_is_told(gpu):
    gpu.statuses = [1]
    told = r"scale<float> cannot be launched: the driver says 'invalid argument' to grid \(1, 1, 1"
    with pytest.raises(jit.LltmJitError, match=told):
        scale()[1, 2048](on_gpu(), on_gpu(), 1, 1)


def test_a_thread_without_a_context_gets_one(gpu):
    kernel = scale()
    kernel[1, 1](on_gpu(), on_gpu(), 1, 1)
    gpu.chosen.clear()
    gpu.statuses = [201]
    kernel[1, 1](on_gpu(), on_gpu(), 1, 1)
    assert gpu.chosen == [0]
    assert len(gpu.launched) == 2


def test_while_a_graph_is_captured(gpu):
    kernel = scale()
    gpu.capturing = True
    with pytest.raises(jit.LltmJitError, match=r"launch it, or call its load\(\), before the cap"):
        kernel[1, 1](on_gpu(), on_gpu(), 1, 1)
    gpu.capturing = False
    kernel[1, 1](on_gpu(), on_gpu(), 1, 1)
    gpu.capturing = True
    kernel[1, 1](on_gpu(), on_gpu(), 1, 1)
    assert len(gpu.launched) == 2


def test_threads_have_their_own_memory(gpu):
    """A launch begins while another one is being made."""
    kernel, usual = scale(), gpu.cuLaunchKernelEx
    inside = threading.Barrier(2)

    def slow(config, *rest):
        inside.wait(60)
        return usual(config, *rest)

    gpu.cuLaunchKernelEx = slow
    in_threads(*(partial(kernel[n, 1], on_gpu(), on_gpu(), n, float(n)) for n in (1, 2)))
    told = {(each.grid[0], *struct.unpack("f", each.first[3][:4])) for each in gpu.launched}
    assert told == {(1, 1.0), (2, 2.0)}


def test_a_reload_launches_the_new_code(gpu, by_nvrtc):
    path = by_nvrtc.write("scale.cu", SCALE)
    kernel = lltm_jit.kernel(path, "scale<float>")
    launch = kernel[1, 1]
    launch(on_gpu(), on_gpu(), 1, 1)
    path.write_text(SCALE.replace("long n", "int n") + "// new\n")
    by_nvrtc.type = by_nvrtc.type.replace("long", "int")
    assert lltm_jit.reload(kernel) is kernel
    launch(on_gpu(), on_gpu(), 1, 1)
    assert [b"new" in code for code in gpu.loaded] == [False, True]
    assert lltm_jit.build_info(kernel).reason == "scale.cu changed"
    assert repr(kernel) == "<kernel scale<float>(float const*, float*, int, float)>"
    path.write_text(SCALE + "// wrong\n")
    with pytest.raises(jit.BuildError, match='"wrong" is undefined'):
        lltm_jit.reload(kernel)
    launch(on_gpu(), on_gpu(), 1, 1)
    assert len(gpu.launched) == 3


def test_a_save_is_watched(gpu, by_nvrtc):
    path = by_nvrtc.write("scale.cu", SCALE)
    kernel = lltm_jit.kernel(path, "scale<float>")
    seen = threading.Event()
    with lltm_jit.watch(kernel, lambda done: seen.set()):
        path.write_text(SCALE + "// new\n")
        assert seen.wait(60)
    assert len(by_nvrtc.compiled) == 2


def test_constants_are_macros(gpu, by_nvrtc):
    scale(constants={"BLOCK": 256, "FAST": True, "T2": "float2"})
    assert "#define BLOCK 256\n#define FAST 1\n#define T2 float2\n" in by_nvrtc.compiled[0][0]
    with pytest.raises(jit.BuildError, match="expected a macro and a value on one line"):
        scale(constants={"A B": 1})


def test_the_text_is_found_by_content(gpu, by_nvrtc):
    """With its options; several kernels of it are one build."""
    text = SCALE + "// of this test\n"
    for options in ((), (), ("--use_fast_math",), ()):
        lltm_jit.kernel(text, "scale<float>", options=options)
    scale, others = lltm_jit.kernel(text + OTHERS, ["scale<float>", "others"])
    assert (scale.name, others.name) == ("scale<float>", "others")
    assert len(by_nvrtc.compiled) == 3
    with pytest.raises(TypeError, match="expected options to be a list, but got '-a'"):
        lltm_jit.kernel(text, "scale<float>", options="-a")


def test_a_kernel_that_is_not_there(gpu, monkeypatch):
    log = '__nv_name_map(1): error: identifier "f" is undefined'
    monkeypatch.setattr(nvrtc, "compile", lambda *asked: nvrtc.Compiled(b"", {}, log))
    with pytest.raises(jit.BuildError, match="the kernels of the source: scale, others"):
        lltm_jit.kernel(SCALE + OTHERS, "f")


def test_what_cannot_be_launched_is_refused_at_once(gpu, by_nvrtc):
    by_nvrtc.type = "void (int&)"
    with pytest.raises(jit.BuildError, match="f takes a reference, int&, which a launch"):
        lltm_jit.kernel("__global__ void f(int& x) {}", "f")


def test_a_build_that_takes_too_long_is_ended(gpu, hour, monkeypatch):
    monkeypatch.setattr(nvrtc, "compile", lambda *asked: (hour.set(), check_wanted()))
    with pytest.raises(lltm_jit.BuildTimeout, match=r"after 900 s, while compiling scale\.cu"):
        lltm_jit.kernel(SCALE + "// too long\n", "scale<float>", timeout=900)


def test_the_commands_know_it(gpu, by_nvrtc, capsys):
    def told(*words, code=0):
        assert main([*words]) == code
        return "".join(capsys.readouterr())

    path = by_nvrtc.write("scale.cu", SCALE)
    lltm_jit.kernel(path, "scale<float>")
    assert re.search(r"scale +\d.* first build", told("cache", "list"))
    path.write_text(SCALE + "// edited\n")
    assert "lltm_jit.kernel would" in told("cache", "why", "scale")
    assert "-kernel=scale<float>" in told("log", "scale")
    assert "/scale.cuda.o\n" in told("build", "scale")
    assert "scale is a kernel, which NVRTC compiles without" in told("flags", "scale", code=1)
