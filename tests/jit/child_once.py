"""Has a child build directories, with torch's stand-in, and then does as it is told.

    python child_once.py ACTION DIRECTORY...

Prints a line of JSON where there is something to tell. Entered as load_once.py is.
"""

import json
import os
import sys
import threading
import time
import types
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent / "fake_torch"))
package = types.ModuleType("lltm_jit")
package.__path__ = [str(REPOSITORY / "lltm_jit")]
sys.modules["lltm_jit"] = package

from lltm_jit import jit  # noqa: E402
from lltm_jit.jit.loading import child  # noqa: E402
from lltm_jit.jit.request import checks  # noqa: E402

ASKED = time.time()


def tell(**facts):
    """In one write, which that of another rank on the same pipe does not come between."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def told(spec):
    """What the first use of a build gives: its text, or the error."""
    try:
        done = jit.load(spec, jit.detect(), asked=ASKED)
    except jit.LltmJitError as error:
        return {"error": type(error).__name__, "message": str(error)}
    text = Path(done.module.__file__).read_bytes().rpartition(b"#FAKE\n")[2].decode()
    last = text.splitlines()[-1]
    return {"text": last, "cached": done.info.cached, "reused": done.info.reused}


def stay(specs):
    """Until standard input ends, in another environment."""
    os.environ["TORCH_EXTENSIONS_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] + "-other"
    tell(threads=threading.active_count())
    sys.stdin.readline()


def wait(specs):
    tell(started=True)
    tell(results=[told(spec) for spec in specs])


def wait_twice(specs):
    tell(results=[told(specs[0]), told(specs[0])])


def threads(specs):
    results = []
    waiting = [threading.Thread(target=lambda: results.append(told(specs[0]))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    tell(results=results)


def interrupted(specs):
    """As a notebook does it: the cell ends, the process goes on."""
    tell(started=True)
    try:
        told(specs[0])
    except KeyboardInterrupt:
        tell(interrupted=True)
    sys.stdin.readline()
    tell(results=[told(specs[0])])


def own(specs):
    """Another extension is built, and then the child's is used."""
    tell(started=True)
    sys.stdin.readline()
    if "CLOSE" in os.environ:
        os.closerange(3, 100)
    spec = jit.BuildSpec.from_directory("_C", Path(os.environ["OWN"]), jit.detect())
    tell(own=jit.load(spec).info.compiled)
    tell(results=[told(specs[0])])


def fork(specs):
    """A forked process waits like any other."""
    pid = os.fork()
    if pid == 0:
        tell(forked=os.getpid())
        sys.stdin.readline()
        tell(results=[told(specs[0])])
        os._exit(0)
    os.waitpid(pid, 0)


def main(action, *directories):
    toolchain = jit.detect()
    specs = [
        jit.BuildSpec.from_directory("_C", Path(directory), toolchain) for directory in directories
    ]
    for spec in specs:
        checks.check(spec, toolchain)
    starts = [[spec] for spec in specs] if "ONE_BY_ONE" in os.environ else [specs]
    for started in starts:
        child.start([(spec, toolchain) for spec in started])
    globals()[action](specs)


if __name__ == "__main__":
    main(*sys.argv[1:])
