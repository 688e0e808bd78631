"""The tables of `python -m lltm_jit benchmark stylegan`, at small sizes."""

import json
import re
from dataclasses import replace

import pytest
import torch

from lltm_jit.cli import _stylegan_benchmark, _stylegan_report, main
from lltm_jit.cli._benchmark_arguments import STYLEGAN
from lltm_jit.cli._measure import Times
from lltm_jit.cli._stylegan_cases import BACKWARD, FORWARD, OPERATORS, OUTLIER, WITH_SIGNS, cases

QUICK = ["benchmark", "stylegan", "--shape", "1", "2", "8", "8", "--seconds", "0.001"]
CPU = torch.device("cpu")


def of(operator, shape=(2, 3, 8, 6), dtype=torch.float, device=CPU):
    return list(cases(operator, shape, dtype, device))


def test_the_command_knows_every_operator():
    assert STYLEGAN == OPERATORS


@pytest.mark.parametrize("operator", OPERATORS)
def test_tables_and_file(operator, capsys, tmp_path, idle):
    file = tmp_path / "figures.json"
    wanted = [*QUICK, "--only", operator, "--dtype", "float", "--json", str(file)]
    assert main(wanted) == 0
    header, times, errors, end = capsys.readouterr().out.split("\n\n")
    assert f"torch: {torch.__version__}" in header
    title, columns, *rows = times.splitlines()
    assert title == f"{operator}: float32, [1, 2, 8, 8], cpu"
    words = ["case", "phase", "median", "IQR", "of", "copy", "plain", "PyTorch", "IQR", "ratio"]
    assert columns.split() == words
    expected = of(operator)
    assert len(rows) == len(expected)
    for row, case in zip(rows, expected, strict=True):
        assert row.startswith(case.name)
        assert re.search(rf"  {re.escape(case.phase)}  .* us  .*%  .* us  .*\d\.\d+$", row)
    assert len(errors.splitlines()) == 2 + len({case.name for case in expected})
    assert "above" not in errors
    assert end == "no error is above its limit\n"
    saved = json.loads(file.read_text())
    assert [row["case"] for row in saved["rows"]] == [case.name for case in expected]
    assert saved["rows"][0]["kernels"]["median"] > 0
    assert saved["errors"][0]["operator"] == operator
    assert saved["header"]["torch"] == torch.__version__


def test_a_wrong_result_is_marked_and_fails(capsys, monkeypatch):
    right = _stylegan_benchmark.Case.run

    def wrong(case, inputs, impl):
        here = impl == "cuda" and case.name == "tanh, NCHW"
        return right(case, inputs, impl) * (1.01 if here else 1)

    monkeypatch.setattr(_stylegan_benchmark.Case, "run", wrong)
    assert main([*QUICK, "--only", "bias_act", "--dtype", "bfloat16"]) == 1
    *_, errors, end = capsys.readouterr().out.split("\n\n")
    marked = [row for row in errors.splitlines() if row.endswith("above")]
    assert len(marked) == 1
    assert marked[0].startswith("bias_act: tanh, NCHW")
    title, *named = end.splitlines()
    assert title == "above their limits:"
    assert re.match(r"bias_act: tanh, NCHW, bfloat16, result \S+, limit 1\.6e-03$", named[0])


def test_without_a_gpu_nothing_is_built(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("lltm_jit.native.load", lambda family: pytest.fail(f"built {family}"))
    assert main([*QUICK, "-c"]) == 1
    assert capsys.readouterr().err.startswith("error: expected a CUDA device, but ")


def test_without_a_dtype_errors_are_of_all_that_a_gpu_has(capsys):
    assert main([*QUICK, "--only", "bias_act"]) == 0
    errors = capsys.readouterr().out.split("\n\n")[-2]
    assert {row.split()[-6] for row in errors.splitlines()[2:]} == {
        "float32",
        "float16",
        "bfloat16",
    }


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_phase_does_what_it_says(operator):
    for case in of(operator):
        result = case.step(case.inputs(), "ref")()
        if case.phase == BACKWARD:
            inputs = case.inputs()
            assert [gradient.shape for gradient in result] == [tensor.shape for tensor in inputs]
            assert any(gradient.any() for gradient in result)
        else:
            assert result.requires_grad == (case.phase == WITH_SIGNS)


def test_fewest_bytes_by_hand():
    size = 2 * 3 * 8 * 6

    def found(operator, name, phase=FORWARD, dtype=torch.float):
        named = [case for case in of(operator, dtype=dtype) if case.name == name]
        return next(case.bytes for case in named if case.phase == phase)

    assert found("bias_act", "tanh, NCHW", dtype=torch.half) == 2 * (size + size)
    assert found("bias_act", "lrelu, clamp, channels_last", BACKWARD) == 4 * (2 * size + 3 * size)
    name = "upsample2d, 4 taps, NCHW"
    assert found("upfirdn2d", name) == 4 * (size + 4 * size)
    assert found("upfirdn2d", name, BACKWARD) == 2 * found("upfirdn2d", name)
    assert found("upfirdn2d", "downsample2d, 12 + 12 taps, NCHW") == 4 * (size + size // 4)
    for name, bits in (("up 2, down 2", 1), ("up 2, down 2, clamped", 2)):
        signs = 4 * size * bits // 8
        assert found("filtered_lrelu", name) == 4 * 2 * size
        assert found("filtered_lrelu", name, WITH_SIGNS) == 4 * 2 * size + signs
        assert found("filtered_lrelu", name, BACKWARD) == 4 * 4 * size + 2 * signs


def test_outliers_are_in_as_many_planes_as_the_case_says():
    found = [case for case in of("filtered_lrelu", device=torch.device("meta")) if case.outliers]
    assert [case.outliers for case in found] == [1, 6]
    for case in found:
        x, _ = replace(case, device=CPU).inputs()
        assert (x == OUTLIER).sum((2, 3)).flatten().tolist() == [1] * case.outliers + [0] * (
            6 - case.outliers
        )


def test_factors_keep_the_size_that_the_bytes_are_counted_for():
    """On the meta device there are as many pairs of factors as on a GPU."""
    for case in of("filtered_lrelu", (1, 1, 16, 16)):
        assert case.run(case.inputs(), "ref").shape == (1, 1, 16, 16)
    for case in of("upfirdn2d", (1, 1, 16, 16)):
        if case.phase == FORWARD:
            result = case.run(case.inputs(), "ref")
            assert 4 * (256 + result.numel()) == case.bytes


def row(kernels, plain, copy):
    times = [Times(t, t, t, t, 9) for t in (kernels, plain, copy)]
    names = {"operator": "bias_act", "case": "tanh", "phase": FORWARD, "device": "cpu"}
    return _stylegan_report.Row(
        **names, dtype="float32", shape=(1, 2), in_graph=False, bytes=8, kernels=times[0],
        plain=times[1], copy=times[2],
    )  # fmt: skip


def test_share_and_ratio():
    one = row(2.0, 8.0, 1.0)
    assert (one.share, one.ratio) == (0.5, 0.25)


def test_a_busy_machine_and_more_than_a_copy_are_told_of(capsys):
    one = row(2.0, 8.0, 1.0)
    busy = replace(one, kernels=Times(1.0, 1.0, 2.0, 3.0, 9))
    _stylegan_report.show([one, busy, row(1.0, 8.0, 2.0)], 4)
    quiet, marked, quick, *notes = capsys.readouterr().out.splitlines()[3:]
    assert quiet.split()[-6:] == ["50%", "8000000.0", "us", "0.0", "us", "0.250"]
    assert " ~50% " in marked
    assert marked.endswith(" ~0.250")
    assert " >100% " in quick
    assert [note.split(" ")[0] for note in notes] == ["~", ">100%:"]


def test_plot_is_drawn(tmp_path):
    file = tmp_path / "plot.png"
    _stylegan_report.plot(file, {"CPU": "one"}, [row(2.0, 8.0, 1.0)])
    assert file.read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_file_are_shown_and_drawn(capsys, tmp_path):
    figures, drawing = tmp_path / "gpu.json", tmp_path / "plot.svg"
    error = _stylegan_report.Error("bias_act", "tanh", "float32", 1.0, 0.0, 0.0, 0.0, 0.0)
    _stylegan_report.save(figures, {"GPU": "a GPU"}, [row(2.0, 8.0, 1.0)], [error])
    command = ["benchmark", "stylegan", "--from", str(figures), "--plot", str(drawing)]
    assert main(command) == 1  # for the error
    header, times, errors, end = capsys.readouterr().out.split("\n\n")
    assert (header, times.splitlines()[0]) == ("GPU: a GPU", "bias_act: float32, [1, 2], cpu")
    assert errors.endswith("above")
    named = "bias_act: tanh, float32, result 1.0e+00, limit 1.0e-13"
    assert end == f"above their limits:\n{named}\n"
    assert drawing.read_text().startswith("<?xml")


def test_the_copy_moves_the_bytes_of_the_case():
    copied = _stylegan_benchmark.copy_in_rotation(80, CPU)()
    assert 2 * copied.nbytes == 80
    assert copied.fill_(torch.nan).isnan().all()  # as the timer in a graph does


def test_tensors_take_turns_on_a_gpu_alone():
    count = _stylegan_benchmark.inputs_in_turn
    assert count(10, CPU) == 1
    assert count(64_000_000, torch.device("cuda")) == 4
    assert count(10, torch.device("cuda")) == 16
