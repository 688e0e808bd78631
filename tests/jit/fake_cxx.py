"""A C++ compiler for tests: quick, obedient, and it counts.

It compiles by gluing texts together and links by appending them to a real library, so the result
can be imported. Lines in a source tell it how to behave:

    //! sleep SECONDS     be slow
    //! error TEXT        fail with TEXT, as a compiler would
    //! signal NUMBER     be killed by this signal
    //! wait FILE         write the process id to FILE, wait until FILE.go is there
    //! after FILE        wait until FILE is there
    //! stubborn          do not end when told to
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

VERSION = "c++ (Fake) 1.2.3"
TEMPLATE = os.environ.get("FAKE_TEMPLATE", "")
COUNTS = os.environ.get("FAKE_COUNTS", "")
MARK = b"\n#FAKE\n"


def main(arguments):
    if Path(sys.argv[0]).name == "nvcc" and not {"-c", "-E"} & {*arguments}:
        answer_as_nvcc(arguments)
    elif "--version" in arguments:
        print(f"{VERSION}\nCopyright (C) Free Software Foundation, Inc.")
    elif "-dumpversion" in arguments:
        print("12.2.0")
    elif "-E" in arguments:
        tell_the_search(arguments)
    elif "-Wl,--help" in arguments:
        print("  --dependency-file FILE      Write dependency file")
    elif "-v" in arguments:
        print("COLLECT_GCC=g++\ngcc version 12.2.0")
    elif "-print-prog-name=cc1plus" in arguments:
        print("cc1plus")
    elif "c++-header" in arguments:
        make_header(arguments)
    elif "-c" in arguments:
        compile_source(arguments)
    else:
        link(arguments)


def answer_as_nvcc(arguments):
    if "--version" in arguments:
        print("Cuda compilation tools, release 13.0, V13.0.88")
    elif "--dryrun" in arguments:
        print(f"#$ TOP={os.path.dirname(os.path.realpath(sys.argv[0]))}/..")
    elif "--list-gpu-arch" in arguments:
        print("compute_75\ncompute_80\ncompute_90\ncompute_120")


def tell_the_search(arguments):
    print('#include "..." search starts here:\n#include <...> search starts here:')
    for directory in include_paths(arguments):
        print(f" {directory}")
    print("End of search list.")


def include_paths(arguments):
    return [a[2:] for a in arguments if a.startswith("-I")]


def compile_source(arguments):
    source = Path(arguments[arguments.index("-c") + 1])
    target = Path(arguments[arguments.index("-o") + 1])
    precompiled = Path(os.environ.get("CPATH", ""), "torch", "extension.h.gch").exists()
    count(f"compile {source.name}" + " with a header" * precompiled)
    text, files = preprocess(source, include_paths(arguments))
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if line.startswith("//! "):
            obey(source, number, *line[4:].split(maxsplit=1))
    depfile = Path(arguments[arguments.index("-MF") + 1])
    depfile.write_text(f"{target}: " + " ".join(f.replace(" ", "\\ ") for f in files) + "\n")
    target.write_bytes(text.encode())


def make_header(arguments):
    """As the orders in FAKE_HEADER say."""
    count("header")
    for line in os.environ.get("FAKE_HEADER", "").splitlines():
        obey("extension.h", 1, *line.split(maxsplit=1))
    Path(arguments[arguments.index("-MF") + 1]).write_text(f"x: {os.environ['FAKE_TEMPLATE']}\n")
    Path(arguments[arguments.index("-o") + 1]).write_bytes(b"header")


def preprocess(path, include_paths):
    """The text with its own headers in it, and the files it came from."""
    files, texts = [str(path)], []
    for line in path.read_text().splitlines():
        include = re.match(r'\s*#\s*include "(.+)"', line)
        found = include and find(include[1], [path.parent, *include_paths])
        if found:
            text, more = preprocess(found, include_paths)
            texts.append(text)
            files += more
        else:
            texts.append(line)
    return "\n".join(texts), files


def find(name, directories):
    return next((Path(d) / name for d in directories if (Path(d) / name).exists()), None)


def obey(source, number, order, value=""):
    if order == "sleep":
        time.sleep(float(value))
    elif order == "error":
        print(f"{source}:{number}:5: error: {value}", file=sys.stderr)
        sys.exit(1)
    elif order == "signal":
        os.kill(os.getpid(), getattr(signal, value))
    elif order == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif order == "after":
        while not Path(value).exists():
            time.sleep(0.02)
    elif order == "wait":
        Path(value).write_text(str(os.getpid()))
        until = time.monotonic() + 60
        while not Path(value + ".go").exists() and time.monotonic() < until:
            time.sleep(0.02)


def link(arguments):
    count("link")
    target = Path(arguments[arguments.index("-o") + 1])
    files = [a for a in arguments if a.endswith(".o") and a != str(target)]
    objects = b"\n".join(Path(a).read_bytes() for a in files)
    for told in (a.partition("=")[2] for a in arguments if "--dependency-file" in a):
        Path(told).write_text(f"{target}: \\\n" + " \\\n".join(f"  {a}" for a in files) + "\n\n")
    target.write_bytes(Path(TEMPLATE).read_bytes() + MARK + objects)
    target.chmod(0o755)


def count(what):
    with open(COUNTS, "a") as file:
        file.write(what + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
