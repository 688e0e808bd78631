"""What a kernel takes, as the text of its declaration says."""

from __future__ import annotations

import pytest

from lltm_jit.jit import BuildError
from lltm_jit.jit.declarations import declared, parameters_of, signature


def types(text: str, name: str = "f", **constants: str) -> list[str]:
    """The parameters in short: the code of struct, or of a pointer the dtypes."""
    found = []
    for each in parameters_of(name, [text], constants):
        known = each.type
        dtypes = [str(dtype).removeprefix("torch.") for dtype in known.dtypes] if known else ["?"]
        found.append("/".join(dtypes) + "*" if each.pointer else known.code if known else "?")
    return found


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", []),
        ("void", []),
        ("float x", ["f"]),
        ("float", ["f"]),
        ("const float* __restrict__ x, float *const y", ["float32*", "float32*"]),
        ("float const * x", ["float32*"]),
        ("float x[], const int y[4]", ["float32*", "int32*"]),
        ("unsigned n, unsigned int m, unsigned", ["I", "I", "I"]),
        ("long n, long int m, signed long long int k, int64_t j", ["q", "q", "q", "q"]),
        ("std::size_t n, size_t, unsigned long long m", ["Q", "Q", "Q"]),
        ("char a, signed char b, unsigned char c, bool d", ["b", "b", "B", "?"]),
        ("short int a, uint16_t b", ["h", "H"]),
        ("__half a, half* b", ["e", "float16*"]),
        ("__nv_bfloat16 a, nv_bfloat16* b", ["bfloat16", "bfloat16*"]),
        ("float4* a, const half2* b, __nv_bfloat162* c", ["float32*", "float16*", "bfloat16*"]),
        ("int2* a, uchar4* b, float2* c", ["int32*", "uint8*", "complex64/float32*"]),
        ("void* a, const void *b", ["*", "*"]),
        ("float** a", ["int64/uint64*"]),
        ("Mine a, Mine* b, const struct Mine c", ["?", "?*", "?"]),
        ("const __grid_constant__ CUtensorMap map", ["?"]),
        ("int n = 3, float x = f(1, 2)", ["i", "f"]),
        ("[[maybe_unused]] int n", ["i"]),
        ("int n /* how, many */, // of them\n float x", ["i", "f"]),
        ("__nv_fp8_e4m3* a", ["float8_e4m3fn*"]),
    ],
)
def test_types(parameters, expected):
    assert types(f"__global__ void f({parameters}) {{ }}") == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("template <typename T> __global__ void f(T* x, T a)", "f<float>", ["float32*", "f"]),
        ("template <class T, int N> __global__ void f(T x)", "f<unsigned long long, 3>", ["Q"]),
        ("template <typename T = double> __global__ void f(T x)", "f<>", ["d"]),
        ("template <int N = (2 > 1), typename T = int> __global__ void f(T x)", "f<1>", ["i"]),
        ("template <typename T> __global__ void f(typename Of<T>::type* x)", "f<int>", ["?*"]),
        ("template <typename T> static __global__ void f(T* x)", "f< __half >", ["float16*"]),
        ("namespace a { __global__ void f(int n) {} }", "a::f", ["i"]),
        ('extern "C" __global__ void f(int n)', "f", ["i"]),
        ("__global__ void __launch_bounds__(256, (2)) f(int n)", "f", ["i"]),
        ("__global__ __launch_bounds__(N) void __cluster_dims__(2, 1, 1) f(int n)", "f", ["i"]),
        ("using Real = double; __global__ void f(Real* x)", "f", ["float64*"]),
        ("typedef unsigned char byte; __global__ void f(byte x)", "f", ["B"]),
        ("#define REAL float\n__global__ void f(REAL* x)", "f", ["float32*"]),
        ("using T = int; template <typename T> __global__ void f(T x)", "f<float>", ["f"]),
        ("using R = int;\n#else\nusing R = long;\n#endif\n__global__ void f(R x)", "f", ["?"]),
        ("__global__ void f(int n);\n__global__ void f(int count) {}", "f", ["i"]),
        ("// __global__ void f(float x);\n__global__ void f(int n)", "f", ["i"]),
        ('const char* s = "__global__ void f(float)"; __global__ void f(int n)', "f", ["i"]),
        (
            "template <typename T> __global__ void f(T n) {}\n"
            "template <> __global__ void f<int>(int n) {}",
            "f<float>",
            ["f"],
        ),
    ],
)  # fmt: skip
def test_declarations(text, name, expected):
    assert types(f"{text} {{ }}", name) == expected


def test_constants_are_names_of_types():
    assert types("__global__ void f(REAL* x) {}", REAL="double") == ["float64*"]


def test_what_is_ambiguous_or_missing_is_told():
    two = "__global__ void f(int n) {}\n__global__ void f(float x) {}"
    with pytest.raises(BuildError, match=r"declares f with \(int n\) and \(float x\); give these"):
        types(two)
    with pytest.raises(BuildError, match=r"declares no kernel g<int>, .*; its kernels: f"):
        types("__global__ void f(int n) {}", "g<int>")


def test_a_signature_is_as_declared():
    text = "template <typename T>\n__global__ void f(const  T* x,\n    long n = 1)"
    assert signature(parameters_of("f<int>", [text], {})) == "const T* x, long n"


def test_all_kernels_of_a_text():
    text = "__global__ void a() {}\n__device__ void b() {}\ntemplate <int N> __global__ void c() {}"
    assert [(each.name, each.template) for each in declared(text)] == [("a", ()), ("c", ("int N",))]
