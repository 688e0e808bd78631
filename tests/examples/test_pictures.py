"""The pictures of speed are those of the measurements."""

from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


@pytest.fixture
def figures(monkeypatch):
    """The script that draws them, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "plots"))
    import make_figures

    return make_figures


def test_the_pictures_show_the_measurements(figures):
    for name, figure in figures.load().items():
        with Image.open(figures.HERE / f"{name}.png") as picture:
            assert picture.info["Description"] == figures.digest(figure), f"{name}.png is stale"
        page = (ROOT / figure["page"]).read_text("utf-8")
        assert figures.with_caption(page, name, figure) == page


def test_a_picture_is_drawn(figures, tmp_path):
    figure = next(iter(figures.load().values()))
    figures.draw(figure, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.width > 1000
        assert picture.info["Description"] == figures.digest(figure)
