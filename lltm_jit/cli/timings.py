"""``timings``: the seconds that each file took when it was last compiled, from ninja's log."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import _build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # takes none


def run(args: argparse.Namespace) -> int:
    info = _build.package_build()
    seconds = seconds_by_output(info.directory / ".ninja_log")
    sources = {source.stem: source for source in info.sources}
    for output, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        source = sources.get(output.split(".")[0])
        print(f"{spent:8.2f} s  {source.name if source else f'link {output}'}")
    print(f"{sum(seconds.values()):8.2f} s  in all")
    return 0


def seconds_by_output(log: Path) -> dict[str, float]:
    """For each file that ninja made, how long its last command ran."""
    seconds = {}
    for line in log.read_text("utf-8").splitlines()[1:]:  # the first line names the format
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    return seconds
