"""``timings``: show how long each file took to compile.

examples:
  python -m lltm_jit timings         the slowest file first
  python -m lltm_jit timings all     every family
"""

import argparse

from lltm_jit.jit import BuildInfo, Spec
from lltm_jit.jit.loading.build import in_columns
from lltm_jit.jit.loading.engine import build_all
from lltm_jit.jit.store import cache
from lltm_jit.jit.user.progress import source_name

from . import _extensions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    extensions = _extensions.chosen(args.names)
    builds = zip(extensions, build_all(extensions), strict=True)
    steps = sorted((step for each in builds for step in _steps(*each)), reverse=True)
    total = sum(seconds for seconds, _ in steps)
    print(in_columns([(f"{took:8.2f} s", name) for took, name in [*steps, (total, "total")]]))
    return 0


def _steps(extension: Spec, info: BuildInfo) -> list[tuple[float, str]]:
    """The seconds of each source of an extension that is built."""
    record = cache.read_record(info.directory)
    assert record is not None
    with _extensions.requested(extension) as request:
        sources = dict(zip(request.objects, request.sources, strict=True))
    return [
        (seconds, f"{info.name}: {source_name(sources[name], name)}")
        for name, seconds in record.steps.items()
    ]
