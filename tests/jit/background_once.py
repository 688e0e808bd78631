"""Builds directories in the background, with torch's stand-in, and then does as it is told.

    python background_once.py ACTION DIRECTORY...

Prints a line of JSON where there is something to tell. Entered as load_once.py is.
"""

import json
import os
import sys
import threading
import types
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent / "fake_torch"))
package = types.ModuleType("lltm_jit")
package.__path__ = [str(REPOSITORY / "lltm_jit")]
sys.modules["lltm_jit"] = package

from lltm_jit import jit  # noqa: E402
from lltm_jit.jit.background import load_in_background, stand_back  # noqa: E402

IMPORTED = set()  # by other threads than the main one


def tell(**facts):
    """In one write, which that of another rank on the same pipe does not come between."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def told(build):
    """What a build gives: its text, or the error."""
    try:
        done = build.result()
    except jit.LltmJitError as error:
        return {"error": type(error).__name__, "message": str(error)}
    text = Path(done.module.__file__).read_bytes().rpartition(b"#FAKE\n")[2].decode()
    return {"text": text, "cached": done.info.cached, "compiled": done.info.compiled}


def leave(builds):
    tell(started=True)


def wait(builds):
    tell(started=True)
    tell(results=[told(build) for build in builds])


def wait_twice(builds):
    tell(results=[told(builds[0]), told(builds[0])])


def threads(builds):
    results = []
    waiting = [threading.Thread(target=lambda: results.append(told(builds[0]))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    tell(results=results)


def interrupted(builds):
    """As a notebook does it: the cell ends, the process goes on."""
    tell(started=True)
    try:
        builds[0].result()
    except KeyboardInterrupt:
        tell(interrupted=True)
    sys.stdin.readline()


def foreground(builds):
    """Another extension is wanted while this one is built, and nothing of this one."""
    stand_back()
    tell(started=True)
    spec = jit.BuildSpec.from_directory("_C", Path(os.environ["FOREGROUND"]), jit.detect())
    tell(results=[jit.load(spec).info.compiled])


def fork(builds):
    """A child that has none of the parent's threads builds or waits like another process."""
    pid = os.fork()
    if pid == 0:
        tell(child=os.getpid())
        sys.stdin.readline()
        spec = jit.BuildSpec.from_directory("_C", Path(sys.argv[2]), jit.detect())
        tell(child_cached=jit.load(spec).info.cached)
        os._exit(0)
    os.waitpid(pid, 0)


def imports(builds):
    """What the thread of a build imported: a child forked meanwhile could never import it."""
    builds[0].result()
    tell(imported=sorted(IMPORTED))


def note_import(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        IMPORTED.add(arguments[0])


def main(action, *directories):
    if action == "imports":
        sys.addaudithook(note_import)
    toolchain = jit.detect()
    builds = []

    def begin():
        for directory in directories:
            spec = jit.BuildSpec.from_directory("_C", Path(directory), toolchain)
            builds.append(load_in_background(spec, toolchain))

    if "IN_A_THREAD" in os.environ:  # as where a thread imports the package
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
    else:
        begin()
    globals()[action](builds)


if __name__ == "__main__":
    main(*sys.argv[1:])
