"""What a kernel takes, as the compiler tells it."""

import pytest

from lltm_jit.jit.machine import nvrtc
from lltm_jit.jit.machine.toolchain import find_nvrtc
from lltm_jit.jit.parameters import kernels_in, parameters_of
from lltm_jit.jit.user.errors import BuildError

HEAD = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuComplex.h>
struct Mine { long x[16]; };
enum class Mode : char { one };
typedef unsigned char byte;
namespace a { namespace { struct Hidden {}; } using Real = double; }
#define REAL float
template <typename T> struct Of { using type = double; };
template <typename T, int N> struct Many { T x[N]; };
"""


def short(parameters) -> list[str]:
    """The parameters in short: the code of struct, or of a pointer the dtypes."""
    found = []
    for each in parameters:
        dtypes = "/".join(str(dtype).removeprefix("torch.") for dtype in each.dtypes)
        code = each.number.code if each.number else "?"
        found.append(f"{dtypes}*" if each.pointer else code)
    return found


@pytest.fixture(scope="module")
def compiled():
    """The type of a kernel, by torch's NVRTC."""
    found = find_nvrtc(None)
    if found is None:
        pytest.skip("needs a torch with CUDA, whose NVRTC needs no GPU")
    options = ["-arch=sm_90", "-default-device", *(f"-I{each}" for each in found.include_paths)]

    def type_of(text: str, name: str = "f") -> str:
        done = nvrtc.compile(found.path, HEAD + text, "f.cu", options, [name])
        assert done.code, done.log
        return done.symbols[name][1]

    return type_of


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("", []),
        ("void", []),
        ("const float* __restrict__ x, float *const y, volatile float* z", ["float32*"] * 3),
        ("float x[], const int y[4], int (*z)[4]", ["float32*", "int32*", "int32*"]),
        ("unsigned n, long m, long long k, size_t j = 3", ["I", "q", "q", "Q"]),
        ("char a, signed char b, byte c, const bool d, short e", ["b", "b", "B", "?", "h"]),
        ("__half a, half* b, __nv_bfloat16 c, nv_bfloat16* d", ["e", "float16*", "H", "bfloat16*"]),
        ("float4* a, const half2* b, __nv_bfloat162* c", ["float32*", "float16*", "bfloat16*"]),
        ("int2* a, uchar4* b, longlong2* c, ulong2* d", ["int32*", "uint8*", "int64*",
                                                       "uint64/int64*"]),
        ("float2* a, cuDoubleComplex* b", ["complex64/float32*", "complex128/float64*"]),
        ("__nv_fp8_e4m3* a, __nv_fp8_e5m2 b", ["float8_e4m3fn*", "?"]),
        ("void* a, float* const* b, Mine* c", ["*", "int64/uint64*", "*"]),
        ("Mine a, const __grid_constant__ Mine b, Mode c, float4 d", ["?", "?", "?", "?"]),
        ("a::Hidden* a, a::Real b, REAL c, void (*d)(int, float)", ["*", "d", "f", "?"]),
        ("Many<float, (3 > 2)> a, Many<Many<int, 2>, 3>* b, int c", ["?", "*", "i"]),
    ],
)  # fmt: skip
def test_types(compiled, declared, expected):
    told = compiled(f"__global__ void f({declared}) {{ }}")
    assert short(parameters_of("f", told)) == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("template <typename T> __global__ void f(T* x, T a)", "f<float>", ["float32*", "f"]),
        ("template <class T, int N> __global__ void f(T x)", "f<unsigned long, 3>", ["Q"]),
        ("template <typename T = double> __global__ void f(T x)", "f<>", ["d"]),
        ("template <class T> __global__ void f(typename Of<T>::type x)", "f<int>", ["d"]),
        ("template <typename... T> __global__ void f(T... x)", "f<int, float*>", ["i", "float32*"]),
        ("template <class T> __global__ auto f(T x) -> void", "f<int>", ["i"]),
        ("namespace b { namespace { __global__ void f(int n) {} } } void g()", "b::f", ["i"]),
        ('extern "C" __global__ void f(float* x, long n)', "f", ["float32*", "q"]),
        ('extern "C" { __global__ void f(REAL x) {} } void g()', "f", ["f"]),
        ("static __global__ void __launch_bounds__(256) f(int n)", "f", ["i"]),
    ],
)  # fmt: skip
def test_kernels(compiled, text, name, expected):
    assert short(parameters_of(name, compiled(f"{text} {{ }}", name))) == expected


def test_parameters_keep_the_compilers_words(compiled):
    told = compiled("__global__ void f(const a::Hidden* x, size_t n) {}")
    texts = [each.text for each in parameters_of("f", told)]
    assert texts == ["a::(anonymous namespace)::Hidden const*", "unsigned long"]


def test_the_kernels_of_a_text():
    text = """
    #define KERNEL __global__ void defined(
    // __global__ void comment();
    const char* s = "__global__ void string()";
    extern "C" __global__ void a() {}
    __device__ void b() {}
    template <int N = (2 > 1)> static __global__ void __launch_bounds__(256, (2)) c(int n) {}
    template <> __global__ void c<3>(int n) {}
    __global__ __launch_bounds__(f(1)) void __cluster_dims__(2, 1, 1) d(int n);
    """
    assert kernels_in(text) == {"a": False, "c": True, "d": False}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("void (int&)", "f takes a reference, int&, which a launch cannot pass"),
        ("void (float (&) [4])", r"f takes a reference, float \(&\) \[4\], which"),
        ("float", "expected f to be a kernel, but it is of type float"),
    ],
)
def test_what_cannot_be_launched(told, message):
    with pytest.raises(BuildError, match=message):
        parameters_of("f", told)
