"""Draw the pictures of speed from the measurements in figures.json.

    python examples/plots/make_figures.py

Writes a PNG for each figure, and its caption in the figure's page, which names the commands that
measured.
To refresh a figure run its commands, enter what they print into figures.json, and run this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS, THEIRS = "#2a7f62", "#b4b8bf"
HEIGHT = 0.36  # of a bar; a row is 1


def load() -> dict[str, Any]:
    """The measurements."""
    return json.loads((HERE / "figures.json").read_text("utf-8"))


def digest(figure: dict[str, Any]) -> str:
    """What the picture of a figure carries, so that a stale one is noticed."""
    return hashlib.sha256(json.dumps(figure, sort_keys=True).encode()).hexdigest()


def draw(figure: dict[str, Any], path: Path) -> None:
    """Draw a panel of pairs of bars for each measurement."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    panels = figure["panels"]
    rows = max(len(panel["rows"]) for panel in panels)
    size = (4.3 * len(panels), 1.7 + 0.5 * rows)
    drawn, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=True):
        draw_panel(axis, panel)
    drawn.savefig(path, dpi=130, metadata={"Description": digest(figure), "Software": None})
    plt.close(drawn)


def draw_panel(axis: Any, panel: dict[str, Any]) -> None:
    rows = panel["rows"]
    longest = max(max(row["ours"], row["theirs"]) for row in rows)
    for place, row in enumerate(rows):
        for name, shift, color in (("ours", -0.5, OURS), ("theirs", 0.5, THEIRS)):
            y = place + shift * HEIGHT
            axis.barh(y, row[name], HEIGHT, color=color, label=panel[name] if not place else None)
            text = f" {row[name]:.{2 if row[name] < 10 else 0}f}"
            ratio = row["theirs"] / row["ours"]
            if name == "ours":
                bound = panel.get("is_bound")
                text += f"   ({1 / ratio:.1f}× the bound)" if bound else f"   ({ratio:.1f}×)"
            axis.text(row[name], y, text, va="center", fontsize=8.5)
    axis.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=9)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(0, (1.62 if panel.get("is_bound") else 1.3) * longest)
    axis.set_xlabel(panel["unit"], fontsize=9)
    axis.set_title(panel["title"], fontsize=10.5, loc="left")
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(-0.02, -0.2), frameon=False)


def caption(name: str, figure: dict[str, Any]) -> str:
    """The Markdown of a figure: the picture, and a command for each panel."""
    path = os.path.relpath(HERE / f"{name}.png", (ROOT / figure["page"]).parent)
    lines = [f"![{figure['alt']}]({path})", ""]
    for panel in figure["panels"]:
        note = f", {panel['note']}" if "note" in panel else ""
        lines.append(f"- {panel['title']} ({panel['machine']}): `{panel['command']}`{note}")
    return "\n".join([*lines, ""])


def with_caption(text: str, name: str, figure: dict[str, Any]) -> str:
    """The text of a figure's page with the caption of now between its markers."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{figure['page']} has no {begin.strip()} ... {end.strip()}")
    return before + begin + caption(name, figure) + end + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the pictures")
    args = parser.parse_args()
    figures = load()
    for name, figure in figures.items():
        draw(figure, args.output / f"{name}.png")
        page = ROOT / figure["page"]
        page.write_text(with_caption(page.read_text("utf-8"), name, figure), "utf-8")


if __name__ == "__main__":
    main()
