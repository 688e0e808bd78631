"""``doctor``: is this machine able to build, and if not, what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from ._checks import Finding, checks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    findings = {}
    for name, check in checks().items():
        try:
            finding = check()
        except Exception as error:  # noqa: BLE001 - a check that breaks is a finding, and not the end
            finding = Finding(
                "problem", f"the check itself failed: {type(error).__name__}: {error}"
            )
        findings[name] = finding
        if not args.json:
            print(f"{finding.status:<8} {name:<16} {finding.text}", flush=True)
            if finding.cure:
                print(f"{'':<8} {'':<16} -> {finding.cure}", flush=True)
    problems = [name for name, finding in findings.items() if finding.status == "problem"]
    if args.json:
        json.dump(
            {name: asdict(finding) for name, finding in findings.items()}, sys.stdout, indent=2
        )
        print()
    elif problems:
        print(f"\nto be mended: {', '.join(problems)}")
    else:
        print("\nready to build")
    return 1 if problems else 0
