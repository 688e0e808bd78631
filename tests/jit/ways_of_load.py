"""Ways of using ``load`` and ``load_inline``, ours beside torch's: results and seconds in a table.

    python tests/jit/ways_of_load.py [PART OF A NAME]

Every way runs twice a side, each time in a process of its own, on a cache of its own that is empty
the first time. The sides take turns. Python and torch are imported before the clock starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SIDES = ("ours", "torch")


def run_here(name: str, side: str, answer: Path) -> None:
    """One way in this process; writes what came of it and the seconds."""
    import torch

    if side == "ours":  # without the package's own extensions, which an import would build
        package = types.ModuleType("lltm_jit")
        package.__path__ = [str(REPOSITORY / "lltm_jit")]
        sys.modules["lltm_jit"] = package
        from lltm_jit.jit.torch_api import load, load_inline
    else:
        from torch.utils.cpp_extension import load, load_inline
    from ways import WAYS

    functions = types.SimpleNamespace(
        load=load, load_inline=load_inline, zeros=torch.zeros, ops=torch.ops
    )
    found = next(way for way in WAYS if way.name == name)
    began = time.perf_counter()
    try:
        result = found.function(functions)
    except Exception as error:  # noqa: BLE001  # it is a result, and stands in the table
        result = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    seconds = time.perf_counter() - began
    good = result == found.expected
    answer.write_text(json.dumps({"good": good, "seconds": seconds, "result": repr(result)}))
    os._exit(0)  # nothing here is worth the second that torch takes to unload


def run(name: str, side: str, folder: Path) -> dict:
    """One way in a process of its own."""
    folder.mkdir(exist_ok=True)
    work, answer = folder / "work", folder / "answer.json"
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, __file__, "--run", name, side, str(answer)],
        cwd=work,
        env={**os.environ, "TORCH_EXTENSIONS_DIR": str(folder / "cache"), "LLTM_JIT_QUIET": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return {"good": False, "seconds": float("nan"), "result": done.stderr[-300:]}
    return json.loads(answer.read_text())


def has_cuda() -> bool:
    import torch
    from torch.utils import cpp_extension

    return torch.version.cuda is not None and cpp_extension.CUDA_HOME is not None


def main(part: str) -> int:
    from ways import WAYS

    cuda = has_cuda()
    chosen = [way for way in WAYS if part in way.name and (cuda or not way.cuda)]
    print(f"{'':62} {'ours: first':>12} {'again':>8} {'torch: first':>13} {'again':>8}  ratio")
    good = dict.fromkeys(SIDES, 0)
    total = dict.fromkeys(SIDES, 0.0)
    with tempfile.TemporaryDirectory(prefix="lltm_jit-ways-") as place:
        for number, way in enumerate(chosen):
            found = {side: [] for side in SIDES}
            for _ in range(2):
                for side in SIDES:
                    folder = Path(place) / f"{number}-{side}"
                    found[side].append(run(way.name, side, folder))
            for side in SIDES:
                good[side] += all(each["good"] for each in found[side])
                total[side] += found[side][0]["seconds"]
            (a, b), (c, d) = ([each["seconds"] for each in found[side]] for side in SIDES)
            line = f"{way.name:62} {a:10.2f} s {b:6.2f} s {c:11.2f} s {d:6.2f} s  {a / c:5.2f}"
            print(line, flush=True)
            for side in SIDES:
                for each in found[side]:
                    if not each["good"]:
                        print(f"    {side}: expected {way.expected!r}, got {each['result']}")
    if not cuda:
        print("without the ways with CUDA: there is none here")
    for side in SIDES:
        print(
            f"{side}: {good[side]} of {len(chosen)} as expected, {total[side]:.0f} s for the first"
        )
    return 0 if good["ours"] == len(chosen) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_here(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    sys.exit(main(" ".join(sys.argv[1:])))
