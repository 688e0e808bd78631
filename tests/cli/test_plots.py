"""The plots of `benchmark --plot`: what a reader sees of them."""

import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import test_benchmark
import test_benchmark_sequence
import test_benchmark_stylegan

from lltm_jit.cli import _plots, _report, _sequence_report, _stylegan_report
from lltm_jit.cli._measure import PHASES, Times
from lltm_jit.cli._sequence_cases import OURS
from lltm_jit.cli._sequence_cases import PHASES as SEQUENCE_PHASES

HEADER = {"GPU": "NVIDIA H200", "torch": "2.11.0"}
BUSY = Times(1e-6, 2e-6, 3e-6, 4e-6, 9)


def cell_rows(graph):
    for phase in PHASES:
        for hidden in (64, 512, 768):
            for name in ("reference", "fused"):
                given = test_benchmark.row(hidden * 1e-7, 1e-7, name)
                yield replace(given, phase=phase, hidden_size=hidden, graph=graph)


def sequence_rows():
    for dtype in ("float16", "float32"):
        for phase in SEQUENCE_PHASES:
            for hidden in (128, 2048):
                for layer in OURS:
                    given = {"dtype": dtype, "phase": phase, "hidden_size": hidden}
                    yield test_benchmark_sequence.row(layer, hidden * 1e-8, **given)


def stylegan_rows():
    one = test_benchmark_stylegan.row(2.0, 8.0, 1.0)
    for name in ("linear, NCHW", "upsample2d, 12 + 12 taps, channels_last"):
        for dtype in ("float16", "bfloat16", "float32"):
            yield replace(one, case=name, dtype=dtype, device="cuda", in_graph=True)
        yield replace(one, case=name, device="cuda", kernels=Times(1.0, 2.0, 3.0, 4.0, 9))


PLOTS = {
    "cell": (_report.plot, cell_rows(graph=None)),
    "cell on a GPU": (_report.plot, cell_rows(graph=BUSY)),
    "sequence": (_sequence_report.plot, sequence_rows()),
    "stylegan": (_stylegan_report.plot, stylegan_rows()),
    "stylegan, one panel": (_stylegan_report.plot, [test_benchmark_stylegan.row(2.0, 8.0, 1.0)]),
}


@cache
def drawn(name):
    """The figure, as it is saved."""
    saved = []
    plot, rows = PLOTS[name]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("matplotlib.pyplot.close", saved.append)
        plot(Path(folder) / "plot.png", HEADER, list(rows))
    (figure,) = saved
    return figure


@pytest.fixture(params=PLOTS)
def figure(request):
    return drawn(request.param)


def texts(artist):
    return [text.get_text() for text in artist.get_texts()]


def test_nothing_lies_outside_the_frame(figure):
    figure.canvas.draw()
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())  # in inches
    assert min(drawn.x0, drawn.y0) >= 0
    width, height = figure.get_size_inches()
    assert drawn.x1 <= width
    assert drawn.y1 <= height


def test_panels_share_the_axis_of_what_is_compared(figure):
    axes = [axis for axis in figure.axes if axis.get_visible()]
    bars = "copy" in figure.get_suptitle()
    limits = {axis.get_xlim() if bars else axis.get_ylim() for axis in axes}
    assert len(limits) == 1


def test_ticks_are_plain_numbers(figure):
    figure.canvas.draw()
    axis = figure.axes[0]
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert all(re.fullmatch(r"\d+", label) for label in labels), labels
    if "copy" not in figure.get_suptitle():
        labels = [label.get_text() for label in axis.get_yticklabels()]
        assert all(re.fullmatch(r"[\d.]+ us", label) for label in labels), labels


def test_legends():
    told = {name: texts(drawn(name).legends[0]) for name in PLOTS}
    band, busy = "band: middle half of the times", "machine busy, unreliable"
    styles = ["as the host calls", "in a CUDA graph"]
    names = ["LLTM", "LSTM", "GRU", "nn.LSTM", "nn.GRU"]
    assert told == {
        "cell": ["reference", "fused", band],
        "cell on a GPU": ["reference", "fused", *styles, band, f"hollow: {busy}"],
        "sequence": [*names, *styles, "the LLTM's floor", band],
        "stylegan": ["kernels", "plain PyTorch", "a copy", f"pale: {busy}"],
        "stylegan, one panel": ["kernels", "plain PyTorch", "a copy"],
    }


def test_times_of_both_kinds_have_their_lines():
    styles = {line.get_linestyle() for line in drawn("cell on a GPU").axes[0].lines}
    assert {_plots.HOST, _plots.GRAPH} <= styles
