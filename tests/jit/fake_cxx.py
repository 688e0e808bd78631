"""A C++ compiler for tests: quick, obedient, and it counts.

It compiles by gluing texts together and links by appending them to a real library, so the result
can be imported. Lines in a source tell it how to behave:

    //! sleep SECONDS     be slow
    //! error TEXT        fail with TEXT, as a compiler would
    //! full TEXT         the same, with narrow headers alone
    //! signal NAME       be killed by this signal
    //! wait FILE         write the process id to FILE, wait until FILE.go is there
    //! after FILE        wait until FILE is there
    //! stubborn          do not end when told to

A script imports this module, which Python then need not compile; nor does it import much.
"""

import os
import sys
import time

TEMPLATE = os.environ.get("FAKE_TEMPLATE", "")
COUNTS = os.environ.get("FAKE_COUNTS", "")
MARK = b"\n#FAKE\n"


def main(version, deaf, orders):
    """``deaf`` to what sources say; ``orders`` are more of them, by the names of sources."""
    program, *arguments = sys.argv
    is_nvcc = os.path.basename(program) == "nvcc"
    if is_nvcc and ("--dryrun" in arguments or not {"-c", "-E"} & {*arguments}):
        answer_as_nvcc(program, arguments)
    elif "--version" in arguments:
        print(f"{version}\nCopyright (C) Free Software Foundation, Inc.")
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
    elif "-c" in arguments:
        compile_source(arguments, deaf, orders)
    else:
        link(arguments)


def answer_as_nvcc(program, arguments):
    if "--version" in arguments:
        print("Cuda compilation tools, release 13.0, V13.0.88")
    elif "--dryrun" in arguments:
        print(f"#$ TOP={os.path.dirname(os.path.realpath(program))}/..")
    elif "--list-gpu-arch" in arguments:
        print("compute_75\ncompute_80\ncompute_90\ncompute_120")


def tell_the_search(arguments):
    print('#include "..." search starts here:\n#include <...> search starts here:')
    for directory in include_paths(arguments):
        print(f" {directory}")
    print("End of search list.")


def include_paths(arguments):
    return [a[2:] for a in arguments if a.startswith("-I")]


def compile_source(arguments, deaf, orders):
    source, target = after("-c", arguments), after("-o", arguments)
    name = os.path.basename(source)
    count(f"compile {name}")
    if name in orders:
        obey(source, 1, *orders[name])
    text, files = preprocess(source, include_paths(arguments))
    for number, line in enumerate([] if deaf else read(source), 1):
        if line.startswith("//! "):
            obey(source, number, *line[4:].split(maxsplit=1))
    escaped = " ".join(file.replace(" ", "\\ ") for file in files)
    write(after("-MF", arguments), f"{target}: {escaped}\n")
    write(target, text)


def after(flag, arguments):
    return arguments[arguments.index(flag) + 1]


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read().splitlines()


def write(path, text):
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def preprocess(path, include_paths):
    """The text with its own headers in it, and the files it came from."""
    files, texts = [path], []
    for line in read(path):
        directive, _, rest = line.partition('"')
        included = "".join(directive.split()) == "#include"
        found = included and find(rest.partition('"')[0], [os.path.dirname(path), *include_paths])
        if found:
            text, more = preprocess(found, include_paths)
            texts.append(text)
            files += more
        else:
            texts.append(line)
    return "\n".join(texts), files


def find(name, directories):
    paths = (os.path.join(directory, name) for directory in directories)
    return next(filter(os.path.exists, paths), None)


def obey(source, number, order, value=""):
    if order == "sleep":
        time.sleep(float(value))
    elif order == "error" or (order == "full" and any("narrow-" in a for a in sys.argv)):
        print(f"{source}:{number}:5: error: {value}", file=sys.stderr)
        sys.exit(1)
    elif order == "signal":
        import signal

        os.kill(os.getpid(), getattr(signal, value))
    elif order == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif order == "after":
        while not os.path.exists(value):
            time.sleep(0.02)
    elif order == "wait":
        write(value, str(os.getpid()))
        until = time.monotonic() + 300
        while not os.path.exists(f"{value}.go") and time.monotonic() < until:
            time.sleep(0.02)


def link(arguments):
    count("link")
    target = after("-o", arguments)
    files = [a for a in arguments if a.endswith(".o") and a != target]
    for told in (a.partition("=")[2] for a in arguments if "--dependency-file" in a):
        write(told, f"{target}: \\\n" + " \\\n".join(f"  {a}" for a in files) + "\n\n")
    objects = []
    for file in files:
        with open(file, "rb") as made:
            objects.append(made.read())
    with open(TEMPLATE, "rb") as template, open(target, "wb") as library:
        library.write(template.read() + MARK + b"\n".join(objects))
    os.chmod(target, 0o755)


def count(what):
    with open(COUNTS, "a") as file:
        file.write(what + "\n")
