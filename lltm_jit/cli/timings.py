"""``timings``: the seconds that each file took when it was last compiled, from ninja's log."""

from __future__ import annotations

import argparse

from lltm_jit.jit import BuildInfo
from lltm_jit.jit.compile.files_read import finished
from lltm_jit.jit.loading.parallel import build_all
from lltm_jit.jit.user.progress import source_name

from . import _build, _extensions

EXAMPLES = """\
examples:
  {prog} timings         the slowest file first
  {prog} timings all     every family"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    infos = build_all(_extensions.chosen(args.names))
    steps = [step for info in infos for step in collect(info)]
    for seconds, name in sorted(steps, reverse=True):
        print(f"{seconds:8.2f} s  {name}")
    print(f"{sum(seconds for seconds, _ in steps):8.2f} s  total")
    return 0


def collect(info: BuildInfo) -> list[tuple[float, str]]:
    """The seconds of each step of a build, and what it made."""
    steps = _build.database(info.directory)
    sources = {step["output"]: source_name(step["file"], step["output"]) for step in steps}
    # ninja's log goes on from an earlier build's, which may have had sources that are gone.
    return [
        (seconds, f"{info.name}: {sources.get(output, f'link {output}')}")
        for output, seconds in finished(info.directory).items()
        if (info.directory / output).exists()
    ]
