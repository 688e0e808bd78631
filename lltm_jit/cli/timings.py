"""``timings``: the seconds that each file took when it was last compiled, from ninja's log."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import _build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # takes none


def run(args: argparse.Namespace) -> int:
    info = _build.package_build().info
    seconds = seconds_by_output(info.directory)
    sources = {source.stem: source for source in info.sources}
    for output, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        source = sources.get(output.split(".")[0])
        print(f"{spent:8.2f} s  {source.name if source else f'link {output}'}")
    print(f"{sum(seconds.values()):8.2f} s  in all")
    return 0


def seconds_by_output(build: Path) -> dict[str, float]:
    """For each file that ninja made in a build's directory, how long its last command ran."""
    seconds = {}
    for line in (build / ".ninja_log").read_text("utf-8").splitlines()[1:]:  # after the format
        start, end, _, output, _ = line.split("\t")
        # The log goes on from an earlier build's, which may have had sources that are gone.
        if (build / output).exists():
            seconds[output] = (int(end) - int(start)) / 1000
    return seconds
