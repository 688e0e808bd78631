"""``timings``: show how long each file took to compile.

examples:
  python -m lltm_jit timings         the slowest file first
  python -m lltm_jit timings all     every family
"""

import argparse

from lltm_jit.jit.loading.build import in_columns
from lltm_jit.jit.loading.engine import build_all
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import cache
from lltm_jit.jit.user.progress import source_name

from . import _extensions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    extensions, steps = _extensions.chosen(args.names), []
    for extension, info in zip(extensions, build_all(extensions), strict=True):
        record, request = cache.read_record(info.directory), Request(extension)
        assert record is not None
        for name, source in request.objects.items():
            steps.append((record.steps[name], f"{info.name}: {source_name(source, name)}"))
    total = (sum(seconds for seconds, _ in steps), "total")
    rows = [*sorted(steps, reverse=True), total]
    print(in_columns([(f"{seconds:8.2f} s", what) for seconds, what in rows]))
    return 0
