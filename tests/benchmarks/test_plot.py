"""The plot of all benchmarks: what a reader sees of it."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.shared import plot
from benchmarks.shared.table import Row
from benchmarks.shared.times import GRAPH, HOST, Times, constant

pytestmark = pytest.mark.slow  # drawing takes a second a figure
HEADER = {"GPU": "NVIDIA H200", "torch": "2.11.0"}
BUSY = Times(1e-6, 2e-6, 3e-6, 4e-6, 9)


def rows(tables, cases, phases, names, modes=(HOST,), **more):
    for place, table in enumerate(tables):
        for phase in phases:
            for number, case in enumerate(cases):
                for name in names:
                    times = {mode: constant((1 + number) * 10.0**-place) for mode in modes}
                    yield Row(table, case, phase, name, times, **more)


ONE = Row("bias_act: float32", "tanh, NCHW", "forward", "kernels", {HOST: constant(1e-6)})
PLOTS = {
    "cell": list(rows(["float32"], ["H 64", "H 512"], ["forward"], ["reference", "fused"])),
    "sequence": list(
        rows(
            ["float16, cuda", "float32, cuda", "bfloat16, cuda"],
            [f"B 16, H {hidden}" for hidden in range(9)],
            ["forward", "forward + backward"],
            ["LLTM", "LSTM", "GRU", "nn.LSTM", "nn.GRU"],
            (GRAPH, HOST),
            floor=1e-7,
        )
    ),
    "long names": list(
        rows(
            ["upfirdn2d: float16", "upfirdn2d: float32"],
            ["upsample2d, 12 + 12 taps, channels_last"],
            ["forward + backward"],
            ["kernels", "plain PyTorch", "copy"],
        )
    ),
    "one": [ONE, replace(ONE, times={})],
    "busy": [replace(ONE, times={HOST: BUSY})],
}


@cache
def drawn(name):
    """The figure, as it is saved."""
    saved = []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("matplotlib.pyplot.close", saved.append)
        plot.draw(Path(folder) / "plot.png", "Title", HEADER, PLOTS[name])
    (figure,) = saved
    return figure


@pytest.fixture(params=PLOTS)
def figure(request):
    return drawn(request.param)


def test_nothing_lies_outside_the_frame(figure):
    figure.canvas.draw()
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())  # in inches
    assert min(drawn.x0, drawn.y0) >= 0
    width, height = figure.get_size_inches()
    assert drawn.x1 <= width
    assert drawn.y1 <= height


def test_ticks_are_plain_numbers(figure):
    figure.canvas.draw()
    low, high = figure.axes[0].get_xlim()
    ticks = zip(figure.axes[0].get_xticks(), figure.axes[0].get_xticklabels(), strict=True)
    labels = [label.get_text() for place, label in ticks if low <= place <= high]
    assert labels
    for label in labels:
        number, unit = label.split()
        assert unit in ("us", "s")
        assert f"{float(number):g}" == number


def test_legends():
    legends = {name: drawn(name).legends[0].get_texts() for name in PLOTS}
    told = {name: [text.get_text() for text in texts] for name, texts in legends.items()}
    names = ["LLTM", "LSTM", "GRU", "nn.LSTM", "nn.GRU"]
    band = "middle half of the times"
    assert told == {
        "cell": ["reference", "fused", HOST, band],
        "sequence": [*names, GRAPH, HOST, band, "floor"],
        "long names": ["kernels", "plain PyTorch", "copy", HOST, band],
        "one": ["kernels", HOST, band],
        "busy": ["kernels", HOST, band, "hollow: machine busy, unreliable"],
    }
