"""``doctor``: check whether this machine can build, and say what to fix.

examples:
  python -m lltm_jit doctor           one line per check; below each problem, how to fix it
  python -m lltm_jit doctor --json    the same, for programs; exits with 1 if builds would fail
"""

import argparse
import json
from collections.abc import Callable
from functools import partial

from lltm_jit import native

from . import builds, tools
from .trial import Finding, ok, problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "print one JSON object: for each check its status, text and cure"
    parser.add_argument("--json", action="store_true", help=about)


def run(args: argparse.Namespace) -> int:
    findings: dict[str, Finding] = {}
    for name, check in checks().items():
        finding = findings[name] = outcome(check, findings)
        if not args.json:
            print(f"{finding.status:<8} {name:<18} {finding.text}", flush=True)
            if finding.cure:
                print(f"{'':<8} {'':<18} -> {finding.cure}", flush=True)
    problems = [name for name, finding in findings.items() if finding.status == "problem"]
    if args.json:
        told = {name: finding._asdict() for name, finding in findings.items()}
        print(json.dumps(told, indent=2))
    else:
        see = f"not ready to build: see {', '.join(problems)}"
        print(f"\n{see if problems else 'ready to build'}")
    return 1 if problems else 0


def checks() -> dict[str, Callable[[], Finding]]:
    """The checks by name, in the order in which one depends on the other."""
    return {
        "settings": builds.chosen_settings,
        "Python": tools.python,
        "torch": tools.torch_itself,
        "C++ compiler": tools.cxx,
        "C++ trial build": tools.cxx_trial,
        "ninja": tools.ninja,
        "GPU": tools.gpu,
        "nvcc": tools.nvcc,
        "CUDA trial build": tools.cuda_trial,
        "builds directory": builds.builds_directory,
        "disk": builds.disk,
        "memory": builds.memory,
        "locks": builds.locks,
        **{f"build of {family}": partial(builds.build, family) for family in native.families()},
    }


def outcome(check: Callable[[], Finding], before: dict[str, Finding]) -> Finding:
    """What a check finds; one that breaks is a finding too, and not the end."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        for name, finding in before.items():
            if finding.text == str(error):
                return ok(f"skipped: see {name}")
        return problem(f"the check itself failed: {type(error).__name__}: {error}")
