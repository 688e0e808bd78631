"""The magics of IPython."""

import re
from unittest.mock import Mock

import pytest
from harness import text_of
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import lltm_jit
from lltm_jit.jit import BuildError, ipython, torch_api
from lltm_jit.jit.ipython import functions_of
from lltm_jit.jit.loading import engine
from lltm_jit.jit.machine import nvrtc


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    ipython.register(shell, lambda: pytest.fail("the package was not meant"))
    yield shell
    InteractiveShell.clear_instance()


CELL = """
static int helper() { return 2; }
double twice(double x) { return helper() * x; }
torch::Tensor twice_of(torch::Tensor x, double by = 2.0) {
  return helper() * x;
}
std::vector<at::Tensor> both(const at::Tensor& x,
                             const at::Tensor& y)
{ return {x, y}; }
__global__ void kernel(torch::Tensor x) {
}
// The text "/*" begins no comment.
at::Tensor first(at::Tensor x) {
  return x;  // nor does /* here
}
auto second(at::Tensor x) -> at::Tensor { return x; }
int quick(int x) noexcept { return x; }
/*
at::Tensor commented_out(at::Tensor x) { return x; }
*/
template <typename T,
          typename U>
at::Tensor of_types(at::Tensor x, T by) { return x; }
const char* between = "/*";
at::Tensor instead(at::Tensor x) { return x; }
at::Tensor third(at::Tensor x /* as it is */) { return x; }
"""


MORE = """
namespace mine {
namespace {
double hidden() { return 1; }
}  // namespace
namespace inner { int three() { return 3; } }
std::string greeting(const char* name = "you {") { return name; }
}  // namespace mine
extern "C" { int four() { return 4; } }
struct Params { int n; int twice() { return 2 * n; } };
  [[nodiscard]] int five(std::vector<int> of = {1, 2}) {
    auto f = [](int x) { return x; };
    return f(5);
  }
int of_params(Params params) { return params.n; }
float first_of(const float* values) { return values[0]; }
int overloaded(int x) { return x; }
double overloaded(double x) { return x; }
inline int six() { return 6; }
bool operator==(const Params& x, const Params& y) { return x.n == y.n; }
int Params_count = 0;
int table[] = {1, 2};
#define SEVEN \\
  int seven() { return 7; }
"""


def test_functions_of_a_cell():
    assert functions_of(CELL) == (
        {
            "twice": "double twice(double x);",
            "twice_of": "torch::Tensor twice_of(torch::Tensor x, double by = 2.0);",
            "both": "std::vector<at::Tensor> both(const at::Tensor& x,\n"
            "                             const at::Tensor& y);",
            "first": "at::Tensor first(at::Tensor x);",
            "second": "auto second(at::Tensor x) -> at::Tensor;",
            "instead": "at::Tensor instead(at::Tensor x);",
            "third": "at::Tensor third(at::Tensor x  );",
        },
        {"quick": "is noexcept"},
    )


def test_functions_of_a_cell_at_every_namespace_scope():
    bound, left_out = functions_of(MORE)
    assert bound == {
        "mine::inner::three": "namespace mine { namespace inner { int three(); } }",
        "mine::greeting": 'namespace mine { std::string greeting(const char* name = "you {"); }',
        "four": 'extern "C" { int four(); }',
        "five": "int five(std::vector<int> of = {1, 2});",
        "of_params": "int of_params(Params params);",
        "six": "inline int six();",
    }
    assert left_out == {"first_of": "has a pointer", "overloaded": "overloaded"}
    _, left_out = functions_of(MORE, "cuda")  # C++ sees declarations alone
    assert left_out["of_params"] == "uses a type that the cell defines"
    assert left_out["six"] == "not visible to C++"


def test_what_is_no_function_is_not_told():
    cell = """
        struct Type { int member() { return 1; } };
        enum class Which { one };
        auto lambda = [](int x) { return x; };
        int values[] = {1, 2}, value{f(3)};
        TORCH_LIBRARY(mine, m) {}
        __attribute__((noinline)) int twice(int x) { return 2 * x; }
    """
    assert functions_of(cell) == ({"twice": "int twice(int x);"}, {})
    page = 'std::string page() { return R"(\nhttp://x)"; }\n'  # nor does it hide one
    assert [*functions_of(page + "int after() { return 1; }\n")[0]] == ["page", "after"]


def test_cell_is_built_into_a_variable(bench, shell, capsys):
    shell.run_cell_magic("cpp", "_C", CELL)
    text = text_of(shell.user_ns["_C"])
    assert 'm.def("twice_of"' in text
    assert 'm.def("twice"' in text
    assert 'm.def("helper"' not in text
    shell.run_cell_magic("cpp", "mine --name _C twice", CELL)
    text = text_of(shell.user_ns["mine"])
    assert re.findall(r'm.def\("(\w+)"', text) == ["twice"]
    shell.run_cell_magic("cpp", "--name _C", MORE)
    text = text_of(shell.user_ns["_C"])
    assert 'm.def("three", torch::wrap_pybind_function(mine::inner::three)' in text
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "not bound: quick (is noexcept)",
        "not bound: first_of (has a pointer), overloaded (overloaded)",
    ]


def test_flags_of_a_cell(bench, shell, monkeypatch, capsys):
    monkeypatch.chdir(bench.directory)
    line = "_C -O0 -I kernels -Icore -Lplace -lm -D N=1 -DTEXT='a b' -v"
    shell.run_cell_magic("cpp", line, CELL)
    said = capsys.readouterr().err
    places = (f"-I{bench.sources}", f"-L{bench.directory}/place")
    for word in ("-O0", "-DN=1", "'-DTEXT=a b'", *places):
        assert f" {word}" in said
    assert re.search(r"(?:started|ran) .* -lm\b", said)


def test_a_cell_includes_what_lies_beside_the_notebook(real, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch_api, "_IMPLICIT_HEADERS", {"main.cpp": ""})
    (tmp_path / "beside.h").write_text("extern int here;\n")
    cell = '#include "beside.h"\n#define PYBIND11_MODULE\nint here = 1;\n'
    with pytest.raises(BuildError, match="define no Python module"):  # which is the loader's word
        shell.run_cell_magic("cpp", "_C", cell)


@pytest.mark.parametrize("kind", ["cpp", "cuda"])
def test_the_magics_have_help(shell, capsys, kind):
    shell.run_cell_magic(kind, "-h", "int x;\n")
    shell.run_line_magic(kind, "--help")
    shell.run_line_magic("pinfo", f"%%{kind}")
    said = capsys.readouterr().out
    assert said.count(f"%{kind} [--name NAME]") == 3
    assert said.count("show the compilers' commands and output") == 3


def test_cell_of_cuda_is_built_with_declarations_of_its_functions(cuda, toolkit, shell):
    shell.run_cell_magic("cuda", "_C", "at::Tensor twice(at::Tensor x) { return kernel(x); }\n")
    text = text_of(shell.user_ns["_C"])
    main, device = text.split("#include <torch/types.h>")
    assert '#line 1 "declarations"\nat::Tensor twice(at::Tensor x);\n' in main
    assert 'm.def("twice"' in main
    assert '#line 1 "the cell"\n\nat::Tensor twice(at::Tensor x) { return kernel(x); }' in device
    assert cuda.counts == ["compile cuda.cu", "compile main.cpp", "link"]


def test_the_package_is_an_extension_of_ipython(capsys):
    lltm_jit.reload()  # waits for what imports and other tests have asked for
    shell = InteractiveShell.instance()
    try:
        assert shell.extension_manager.load_extension("lltm_jit") is None
        shell.run_line_magic("lltm_reload", "")
    finally:
        InteractiveShell.clear_instance()
    assert capsys.readouterr().out.startswith("nothing changed (")


def test_error_names_the_cells_own_line_and_nothing_above(root, shell, monkeypatch, capsys):
    monkeypatch.setattr(torch_api, "_IMPLICIT_HEADERS", {"main.cpp": ""})
    done = shell.run_cell("%%cpp broken\n#undef PYBIND11_MODULE\nint x = zero;\n")
    assert isinstance(done.error_in_exec, BuildError)
    said = capsys.readouterr()
    lines = (said.out + said.err).partition("error: ")[2].splitlines()
    assert "zero" in lines[0]
    assert lines[1:5] == ["  --> Cell In[1], line 3", "  |", "3 | int x = zero;", "  |         ^"]
    assert "Traceback" not in said.out + said.err
    assert len(lines) < 10


def test_load_shows_its_error_alone_and_tb_all(bench, shell, capsys):
    bench.write("one/one.cpp", "//! error wrong\n")
    shell.user_ns.update(load=torch_api.load, sources=bench.sources)
    shell.run_cell("load('_C', sources)")
    said = capsys.readouterr().out
    assert said.startswith("error: wrong\n  --> ")
    assert len(said.splitlines()) < 8
    shell.run_line_magic("tb", "")
    said = capsys.readouterr().out
    assert said.startswith("Traceback")
    assert "error: wrong" in said


def test_an_interrupted_build_is_one_line(bench, shell, monkeypatch, capsys):
    monkeypatch.setattr(engine, "_make", Mock(side_effect=KeyboardInterrupt))
    shell.user_ns.update(load=torch_api.load, sources=bench.sources)
    shell.run_cell("load('_C', sources)")
    said = capsys.readouterr().out
    assert said == "KeyboardInterrupt: _C is not built; what it compiled is kept\n"


def test_line_magic_reloads_a_variable(bench, shell, capsys):
    shell.user_ns["mine"] = torch_api.load("_C", bench.sources)
    bench.write("two/two.cpp", "deux\n")
    shell.run_line_magic("lltm_reload", "mine")
    assert capsys.readouterr().out.startswith("kernels/two/two.cpp changed (")
    assert "deux" in text_of(shell.user_ns["mine"])


def test_wrong_use_is_told(shell):
    for line, cell, said in (
        ("", "int x;", "expected %%cpp NAME"),
        ("a-b", "int x;", "got the name 'a-b'"),
        ("mine", "int x;", "the cell defines no function to bind$"),
        ("mine", "int f(int* x) { return *x; }", r"no function to bind: f \(has a pointer\)"),
        ("mine -D'A", "int f() { return 1; }", "%%cpp mine -D'A: No closing quotation"),
        ("mine -O7", "int f() { return 1; }", "argument -O: invalid choice: '7'"),
    ):
        with pytest.raises(UsageError, match=said):
            shell.run_cell_magic("cpp", line, cell)
    with pytest.raises(UsageError, match="nothing is not a variable that holds a module"):
        shell.run_line_magic("lltm_reload", "nothing")


KERNELS = """__global__ void one(float* x) { *x = 1; }
template <typename T>
__global__ void all(T* x) { *x = 2; }
"""


def test_a_cell_of_kernels_gives_these(shell, by_nvrtc, capsys):
    """It needs no C++ around them, and no other compiler."""
    shell.run_cell_magic("cuda", "mine", KERNELS)
    assert vars(shell.user_ns["mine"]).keys() == {"one"}
    assert "not compiled: all (a template: name it as all<...>)" in capsys.readouterr().out
    shell.run_cell_magic("cuda", "mine one all<float>", KERNELS)
    assert shell.user_ns["mine"].all.name == "all<float>"
    shell.run_cell_magic("cuda", "mine all<int> all<float>", KERNELS)
    assert vars(shell.user_ns["mine"]).keys() == {"all<int>", "all<float>"}
    with pytest.raises(UsageError, match="no kernel to compile: all"):
        shell.run_cell_magic("cuda", "mine", KERNELS.partition("\n")[2])


def test_a_kernel_in_a_variable_is_reloaded(shell, by_nvrtc, capsys):
    path = by_nvrtc.write("one.cu", KERNELS)
    shell.user_ns["one"] = lltm_jit.kernel(path, "one")
    path.write_text(KERNELS + "// edited\n")
    shell.run_line_magic("lltm_reload", "one")
    assert capsys.readouterr().out.startswith("one.cu changed (")


def test_an_error_in_a_cell_of_kernels_has_its_line(shell, by_nvrtc, monkeypatch):
    shell.execution_count = 7
    said = 'the cell(3): error: identifier "y" is undefined\n  __global__ void f() { y; }\n'
    failed = nvrtc.Compiled(b"", {}, f"{said}                        ^\n")
    monkeypatch.setattr(nvrtc, "compile", lambda *asked: failed)
    with pytest.raises(BuildError, match=r"Cell In\[7\], line 3\n  \|\n3 \| __global__ void f"):
        shell.run_cell_magic("cuda", "mine", "// a comment\n__global__ void f() { y; }\n")
