"""``python -m benchmarks WHAT``: measure, print the table, and save or plot it."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks import builds, cell, elementwise, kernel, load, options, sequence, stylegan
from benchmarks.shared import machine, plot, table
from lltm_jit.cli import Parser, ending_well

PROGRAM = "python -m benchmarks"
WHAT = {
    "cell": (cell, "all implementations of the LLTM cell (the default)"),
    "sequence": (sequence, "recurrent layers over whole sequences, compared with torch.nn's"),
    "stylegan": (stylegan, "the StyleGAN operators, compared with plain PyTorch and a copy"),
    "elementwise": (elementwise, "the elementwise operators, compared with plain PyTorch"),
    "jit": (builds, "builds, rebuilds and cached imports of this package"),
    "load": (load, "builds of one source by lltm_jit.load, compared with torch's load"),
    "kernel": (kernel, "lltm_jit.kernel, compared with torch.cuda._compile_kernel (GPU)"),
}
EXPLAINED = """\
what is measured:
{what}

Each has options of its own: `{{prog}} sequence -h`.

examples:
  {{prog}}                                        the cell, on the CPU
  {{prog}} sequence -c --layer LSTM --dtype half
  {{prog}} sequence -c --published                what is slower than torch's layers
  {{prog}} stylegan --json before.json --plot before.png
  {{prog}} stylegan --from before.json --plot again.svg
  {{prog}} cell --compare before.json             ratios to an earlier run

columns of the tables:
  as called, in a graph   median of a call, from the host and in a CUDA graph; IQR: its middle half
  processors              seconds of all processors, those of the compilers too
  floor, share            a lower bound on the time (roofline), and its share of the time: on a GPU
                          computed for an H200, or the time of a copy of the same bytes; on a CPU
                          the time at the peak of this machine's matrix products
  error                   norm of the difference from float64, over the norm
  MiB                     memory that a call adds at its peak
  beside others           our time divided by theirs; a goal is the highest ratio to aim for
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; returns its exit code: 1 when a result is wrong, or a build too slow."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "cell")
    what = "\n".join(f"  {name:<13}{summary}" for name, (_, summary) in WHAT.items())
    if words[0] not in WHAT:
        parser = Parser(PROGRAM)
        parser.usage = f"{PROGRAM} [WHAT] [options]"
        parser.epilog = EXPLAINED.format(what=what).format(prog=PROGRAM)
        parser.add_argument("what", choices=list(WHAT), metavar="WHAT", help="see below")
        parser.parse_args(words)  # it exits
    name, *words = words
    benchmark, summary = WHAT[name]
    parser = Parser(f"{PROGRAM} {name}", f"{name}: {summary}")
    benchmark.add_options(parser)
    options.add_output(parser)
    args = parser.parse_args(words)
    return ending_well(partial(run, name, args))


def run(name: str, args: argparse.Namespace) -> int:
    """Measure, or load earlier rows, and show them."""
    benchmark, _ = WHAT[name]
    before = table.load(args.compare)[1] if args.compare else None  # a wrong file fails first
    if args.given:
        header, saved = table.load(args.given)
        measured = iter(table.groups(saved))
    else:
        measured = benchmark.measure(args)
        header = machine.header(getattr(args, "cuda", False))
    for fact, value in header.items():
        print(f"{fact}: {value}")
    rows = table.show(measured, benchmark.WIDTH)
    if args.json:
        table.save(args.json, header, rows)
    if before is not None:
        print(f"\n{table.comparison(before, rows)}")
    if args.plot:
        plot.draw(args.plot, benchmark.TITLE, header, rows)
    slow, wrong = table.missed(rows), table.wrong(rows)
    print("\nslower than their goals:" if slow else "\nno goal is missed", *slow, sep="\n")
    if wrong:
        print("\nwrong:", *wrong, sep="\n")
    return 1 if wrong or (slow and name in ("jit", "load")) else 0


if __name__ == "__main__":
    sys.exit(main())
