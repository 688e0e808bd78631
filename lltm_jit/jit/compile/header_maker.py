"""Makes a precompiled header: started by file path, with the standard library alone.

It reads one line of JSON from standard input, and goes on in a child that nobody waits for: the
header is for later builds, and is finished even if the program that asked has ended.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

# Beside a precompiled header: g++ takes that once in a source, and reads this where the source
# includes it again, or where the precompiled one does not suit.
BESIDE = "#pragma GCC system_header\n#include_next <torch/extension.h>\n"


def main() -> int:
    request = json.loads(sys.stdin.buffer.readline())
    if os.fork():
        return 0
    os.setsid()
    signal.signal(signal.SIGTERM, _exit_once)
    os.nice(request["nice"])
    try:
        return make(request)
    except (OSError, SystemExit):
        return 1  # a full disk, or told to end: what was started is ended, and nothing is left
    finally:
        shutil.rmtree(request["directory"], ignore_errors=True)


def _exit_once(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    sys.exit(1)


def make(request: dict) -> int:
    """Compile ``torch/extension.h`` in a directory, and move it into place.

    If the compiler fails, that is recorded there: it would fail again.
    """
    directory = request["directory"]
    folder = os.path.join(directory, "torch")
    stub, depfile = os.path.join(directory, "stub.h"), os.path.join(directory, "stub.d")
    os.mkdir(folder)
    with open(stub, "w") as file:
        file.write("#include <torch/extension.h>\n")
    target = os.path.join(folder, "extension.h.gch")
    options = ["-MD", "-MF", depfile, "-x", "c++-header", stub, "-o", target]
    done = subprocess.run(
        [*request["command"], *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    files: list = []
    if done.returncode == 0:
        with open(depfile, errors="surrogateescape") as file:
            words = re.findall(r"(?:\\.|[^\s\\])+", file.read().replace("\\\n", " "))
        files = [re.sub(r"\\(.)", r"\1", word) for word in words[1:]]
        files = [path for path in files if path != stub]
        os.remove(depfile)
        os.remove(stub)  # or a source could include it
        with open(os.path.join(folder, "extension.h"), "w") as file:
            file.write(BESIDE)
    else:
        shutil.rmtree(folder)
    record = {
        "failed": done.stdout.decode(errors="replace")[-4000:] if done.returncode else "",
        "asked": sorted({name for path in files for name in _asked_for(path)}),
        "files": {path: identity(path) for path in files},
    }
    with open(os.path.join(directory, "header.json"), "w") as file:
        json.dump(record, file)
    for path in (directory, folder):
        if os.path.exists(path):
            os.chmod(path, request["mode"])
    os.rename(directory, request["header"])
    return 0


def _asked_for(path: str) -> list:
    """What a header would include if it existed."""
    with open(path, errors="replace") as file:
        return re.findall(r"__has_include(?:_next)?\s*\(\s*[<\"]([^>\"\n]+)", file.read())


def identity(path: str) -> list:
    """What identifies a file without reading it; it changes with an edit and with a replacement."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_size, status.st_mtime_ns]


if __name__ == "__main__":
    sys.exit(main())
