"""Ways of using ``load`` and ``load_inline``, ours beside torch's: results and seconds in a table.

    python tests/jit/ways_of_load.py [PART OF A NAME]

Every way runs twice a side, each time in a process of its own, on a cache of its own that is empty
the first time. The sides take turns. What they import is imported before the clock starts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

os.environ["LLTM_JIT_AT_IMPORT"] = "0"

from ways import WAYS, Way

from lltm_jit.jit import torch_api  # those of a build too
from lltm_jit.jit.compile import builder  # noqa: F401  # those of a build too

SIDES = {"ours": torch_api, "torch": cpp_extension}


def run(way: Way, side: str, folder: Path) -> dict[str, Any]:
    """One way in a process of its own: whether it went well, the seconds and the result."""
    work, answer = folder / "work", folder / "answer.json"
    work.mkdir(parents=True, exist_ok=True)
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.chdir(work)
        with (folder / "said.txt").open("w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "cache")
        answer.write_text(json.dumps(result_of(way, side)))
        os._exit(0)
    os.waitpid(child, 0)
    if not answer.exists():
        return {"good": False, "seconds": float("nan"), "result": "an end without a word"}
    return json.loads(answer.read_text())


def result_of(way: Way, side: str) -> dict[str, Any]:
    functions = types.SimpleNamespace(
        load=SIDES[side].load,
        load_inline=SIDES[side].load_inline,
        zeros=torch.zeros,
        ops=torch.ops,
    )
    began = time.perf_counter()
    try:
        result = way.function(functions)
    except Exception as error:  # noqa: BLE001  # it is a result, and stands in the table
        result = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    seconds = time.perf_counter() - began
    return {"good": result == way.expected, "seconds": seconds, "result": repr(result)}


def main(part: str) -> int:
    cuda = torch.version.cuda is not None and cpp_extension.CUDA_HOME is not None
    chosen = [way for way in WAYS if part in way.name and (cuda or not way.cuda)]
    print(f"{'':62} {'ours: first':>12} {'again':>8} {'torch: first':>13} {'again':>8}  ratio")
    good = dict.fromkeys(SIDES, 0)
    total = dict.fromkeys(SIDES, 0.0)
    with tempfile.TemporaryDirectory(prefix="lltm_jit-ways-") as place:
        os.chmod(place, 0o700)
        for number, way in enumerate(chosen):
            found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for _ in range(2):
                for side, results in found.items():
                    results.append(run(way, side, Path(place) / f"{number}-{side}"))
            for side, results in found.items():
                good[side] += all(each["good"] for each in results)
                total[side] += results[0]["seconds"]
            (a, b), (c, d) = ([each["seconds"] for each in results] for results in found.values())
            times = f"{a:10.2f} s {b:6.2f} s {c:11.2f} s {d:6.2f} s"
            print(f"{way.name:62} {times}  {a / c:5.2f}", flush=True)
            for side, results in found.items():
                for each in results:
                    if not each["good"]:
                        print(f"    {side}: expected {way.expected!r}, got {each['result']}")
    cpp_extension.remove_extension_h_precompiler_headers()
    if not cuda:
        print("without the ways with CUDA: there is none here")
    for side in SIDES:
        print(
            f"{side}: {good[side]} of {len(chosen)} as expected, {total[side]:.0f} s for the first"
        )
    return 0 if good["ours"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
