"""Makes a precompiled header: started by file path, with the standard library alone.

It reads one JSON object from standard input, takes the lock of those that make headers, and goes on
in a child that nobody waits for: the header is for later builds, and is finished even if the
program that asked has ended.
"""

import fcntl
import hashlib
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
    request = json.load(sys.stdin)
    lock = os.open(request["lock"], os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0  # somebody makes one
    if os.fork():
        return 0
    os.setsid()
    signal.signal(signal.SIGTERM, _exit_once)
    os.nice(request["nice"])
    os.umask(0o022)
    record = os.path.join(request["directory"], "header.json")
    if os.path.exists(record):
        return 0
    shutil.rmtree(request["directory"], ignore_errors=True)
    try:
        make(request, record)
    except (OSError, SystemExit):  # a full disk, or told to end: what was started is ended
        shutil.rmtree(request["directory"], ignore_errors=True)
    return 0


def _exit_once(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    sys.exit(1)


def make(request: dict, record: str) -> None:
    """Compile ``torch/extension.h`` in a directory; the record, which is written last, makes it
    valid. If the compiler fails, that is recorded: it would fail again.
    """
    directory = request["directory"]
    folder = os.path.join(directory, "torch")
    stub, depfile = os.path.join(directory, "stub.h"), os.path.join(directory, "stub.d")
    os.makedirs(folder)
    with open(stub, "w") as file:
        file.write("#include <torch/extension.h>\n")
    target = os.path.join(folder, "extension.h.gch")
    options = ["-MD", "-MF", depfile, "-x", "c++-header", stub, "-o", target]
    done = subprocess.run(
        [*request["command"], *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    read: list = []
    if done.returncode == 0:
        with open(depfile, errors="surrogateescape") as file:
            words = re.findall(r"(?:\\.|[^\s\\])+", file.read().replace("\\\n", " "))
        read = [re.sub(r"\\(.)", r"\1", word) for word in words[1:]]
        with open(os.path.join(folder, "extension.h"), "w") as file:
            file.write(BESIDE)
    else:
        shutil.rmtree(folder)
    for path in (stub, depfile):
        if os.path.exists(path):
            os.remove(path)  # or a source could include it
    told = {
        "failed": done.stdout.decode(errors="replace")[-4000:] if done.returncode else "",
        "files": {path: digest(path) for path in read if path != stub},
    }
    for path in filter(os.path.exists, (directory, folder)):
        os.chmod(path, request["mode"])
    with open(f"{record}.partial", "w") as file:
        json.dump(told, file)
        file.flush()
        os.fsync(file.fileno())  # an empty record would be neither valid nor made again
    os.rename(f"{record}.partial", record)


def digest(path: str) -> str:
    """The digest of a file's content, as ``files.digest`` has it."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
