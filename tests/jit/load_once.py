"""Loads a directory through the engine in a process of its own and prints what came of it as JSON.

    python load_once.py DIRECTORY [REPEATS]

KILL=before NAME / after NAME in the environment ends it hard when that file of a build is renamed;
TEXT is a source, in place of the directory's;
WAIT=FILE makes FILE when all is loaded and stays until FILE.go is there.

The package's own extension is not wanted here, so ``lltm_jit`` is entered without its ``__init__``,
and torch is a small stand-in, unless REAL_TORCH is set.
"""

import json
import os
import signal
import sys
import time
import types
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
if "REAL_TORCH" not in os.environ:
    sys.path.insert(0, str(Path(__file__).parent / "fake_torch"))
package = types.ModuleType("lltm_jit")
package.__path__ = [str(REPOSITORY / "lltm_jit")]
sys.modules["lltm_jit"] = package

from lltm_jit import jit  # noqa: E402


def kill_while_publishing(moment):
    when, name = moment.split()
    replace = os.replace

    def replace_and_die(source, target):
        there = Path(target).name == name and Path(target).parents[1].name == "lltm_jit"
        if there and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if there:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace_and_die


started = []  # one entry a process
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)


def main(directory, repeats="1"):
    if "KILL" in os.environ:
        kill_while_publishing(os.environ["KILL"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    spec = jit.Spec("_C", (directory,))
    if "TEXT" in os.environ:
        spec = jit.Spec("_C", texts=(("main.cpp", os.environ["TEXT"]),))
    for _ in range(int(repeats)):
        try:
            build = jit.load(spec)
        except jit.LltmJitError as error:
            result = {"error": type(error).__name__, "message": str(error)}
        else:
            text = Path(build.module.__file__).read_bytes().rpartition(b"#FAKE\n")[2].decode()
            result = {"cached": build.info.cached, "reason": build.info.reason, "text": text}
            result |= {"compiled": build.info.compiled, "reused": build.info.reused}
            result |= {"key": build.info.key, "architectures": build.info.architectures}
        result["processes"] = len(started)
        result["imported"] = [
            name
            for name in ("torch.utils.cpp_extension", "filelock", "ninja")
            if name in sys.modules
        ]
        print(json.dumps(result), flush=True)
    if "WAIT" in os.environ:
        Path(os.environ["WAIT"]).touch()
        while not Path(os.environ["WAIT"] + ".go").exists():
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
