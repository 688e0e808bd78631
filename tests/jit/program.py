"""A program that uses the engine, for tests: `program.py ACTION WORD...`.

It prints a line of JSON where there is something to tell. The package's own kernels are not wanted
here, so ``lltm_jit`` is the one in small/, and torch is a small stand-in, unless REAL_TORCH is set.

    load DIRECTORY          print what came of it; TEXT is a source in place of the directory's
    bars DIRECTORY NAME...  build under a bar of the program's own: here, or in threads
    die DIRECTORY FILE      build in a thread, fork once FILE is there, and be killed
    ACTION FAMILY...        have a child build families, unless ALONE is set, and do as told

KILL=before NAME / after NAME ends `load` hard when that file of a build is renamed. The others wait
for lines of standard input.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / name) for name in ("fake_torch", "small")]
if "REAL_TORCH" in os.environ:
    sys.path.remove(str(HERE / "fake_torch"))

from lltm_jit import jit  # noqa: E402
from lltm_jit.cli import spec  # noqa: E402
from lltm_jit.jit.loading import background, reload  # noqa: E402

os.fsync = lambda descriptor: None  # a disk takes hundredths of a second
started = []  # one entry a process
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)


def tell(**facts):
    """In one write, which that of another rank on the same pipe does not come between."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def text_of(build):
    return Path(build.module.__file__).read_bytes().rpartition(b"#FAKE\n")[2].decode()


def load(directory):
    if "KILL" in os.environ:
        kill_while_publishing(*os.environ["KILL"].split())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    asked = jit.Spec("_C", (directory,))
    if "TEXT" in os.environ:
        asked = jit.Spec("_C", texts=(("main.cpp", os.environ["TEXT"]),))
    try:
        build = jit.load(asked)
    except jit.LltmJitError as error:
        result = {"error": type(error).__name__, "message": str(error)}
    else:
        names = ("cached", "reason", "compiled", "reused", "key", "architectures")
        result = {"text": text_of(build), **{name: getattr(build.info, name) for name in names}}
    modules = ("torch.utils.cpp_extension", "filelock", "ninja")
    imported = [name for name in modules if name in sys.modules]
    tell(**result, processes=len(started), imported=imported)


def kill_while_publishing(when, name):
    replace = os.replace

    def replace_and_die(source, target):
        there = Path(target).name == name and Path(target).parents[1].name == "lltm_jit"
        if there and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if there:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace_and_die


def bars(directory, *names):
    from tqdm import tqdm

    from lltm_jit.jit.user.progress import Reporter

    def build(name, label):
        jit.load(jit.Spec(name, (directory,)), reporter=Reporter(label=label))

    threads = [threading.Thread(target=build, args=(name, name)) for name in names]
    with tqdm(total=4, desc="training") as bar:
        bar.update()
        if not threads:
            build("_C", "")
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            bar.refresh()
        bar.update(3)
    print("done")


def die(directory, file):
    building = threading.Thread(target=jit.load, args=(jit.Spec("_C", (directory,)),), daemon=True)
    building.start()
    while not os.path.exists(file):
        time.sleep(0.02)
    if not os.fork():
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)


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
    last = text_of(done).splitlines()[-1]
    return {"text": last, "cached": done.info.cached, "reused": done.info.reused}


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
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        tell(used=[*pool.map(lambda _: use(), range(8))])


def interrupted():
    """As a notebook does it: the cell ends, the process goes on."""
    begin()
    try:
        use()
    except KeyboardInterrupt:
        tell(interrupted=True)
    sys.stdin.readline()
    tell(used=use())


KEPT = []


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
    if sys.stdin.readline():
        tell(used=use(), open=[os.fstat(file.fileno()).st_size for file in KEPT])


def fork():
    """A forked process waits like any other."""
    pid = os.fork()
    if pid == 0:
        tell(forked=os.getpid())
        sys.stdin.readline()
        tell(used=use())
        os._exit(0)
    os.waitpid(pid, 0)


def main(action, *words):
    if action not in ("load", "bars", "die"):
        if "ALONE" not in os.environ:
            for family in words:
                background.start([spec(family)])
        words = ()
    globals()[action](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
