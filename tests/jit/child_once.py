"""Has a child build families, with torch's stand-in, and then does as it is told.

    python child_once.py ACTION FAMILY...

Prints a line of JSON where there is something to tell, and waits for lines of standard input.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).with_name(name)) for name in ("fake_torch", "small")]

from lltm_jit import jit  # noqa: E402
from lltm_jit.cli import spec  # noqa: E402
from lltm_jit.jit.loading import background, reload  # noqa: E402


def tell(**facts):
    """In one write, which that of another rank on the same pipe does not come between."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def begin():
    """Once the child is where the environment says."""
    tell(started=True)
    while not os.path.exists(os.environ.get("AFTER", "/")):
        time.sleep(0.02)


def use(family="_C"):
    """What a use of the family gives: the last line of its text, or the error."""
    try:
        done = jit.load(spec(family))
    except jit.LltmJitError as error:
        return {"error": type(error).__name__, "message": str(error)}
    background.collect(family)
    text = Path(done.module.__file__).read_bytes().rpartition(b"#FAKE\n")[2].decode()
    return {"text": text.splitlines()[-1], "cached": done.info.cached, "reused": done.info.reused}


def stay():
    """Until standard input ends, in another environment."""
    os.environ["TORCH_EXTENSIONS_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] + "-other"
    tell(threads=threading.active_count())
    sys.stdin.readline()


def wait():
    begin()
    tell(used=use(), children=[*map(state, Path(f"/proc/{os.getpid()}/task").glob("*/children"))])


def state(file):
    return [Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in file.read_text().split()]


def wait_twice():
    tell(used=[use(), use()])


def threads():
    used = []
    waiting = [threading.Thread(target=lambda: used.append(use())) for _ in range(8)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    tell(used=used)


def interrupted():
    """As a notebook does it: the cell ends, the process goes on."""
    begin()
    try:
        use()
    except KeyboardInterrupt:
        tell(interrupted=True)
    sys.stdin.readline()
    tell(used=use())


def own():
    """Another extension is loaded, and then the child's is used."""
    sys.stdin.readline()
    if "CLOSE" in os.environ:
        os.closerange(3, 100)
        file = open("reused", "w+")  # noqa: SIM115
        while file.fileno() < 20:
            file = os.fdopen(os.dup(file.fileno()), "w+")
            KEPT.append(file)
    reload.load_and_give(jit.Spec("rnn", (os.environ["OWN"],)), False)
    tell(own=True)
    if not sys.stdin.readline():
        return
    tell(used=use(), open=[os.fstat(file.fileno()).st_size for file in KEPT])


KEPT = []


def fork():
    """A forked process waits like any other."""
    pid = os.fork()
    if pid == 0:
        tell(forked=os.getpid())
        sys.stdin.readline()
        tell(used=use())
        os._exit(0)
    os.waitpid(pid, 0)


def main(action, *families):
    if "ALONE" not in os.environ:
        for family in families:
            background.start([spec(family)])
    globals()[action]()


if __name__ == "__main__":
    main(*sys.argv[1:])
