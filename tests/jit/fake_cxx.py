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

A shell script answers questions. To compile or link, it starts Python, which takes longer. Python
imports this module, so that it need not compile it each time.
"""

import os
import sys
import time

TEMPLATE = os.environ.get("FAKE_TEMPLATE", "")
COUNTS = os.environ.get("FAKE_COUNTS", "")
MARK = b"\n#FAKE\n"
SCRIPT = f"""\
case "${{0##*/}} $*" in
nvcc*--version*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
nvcc*--dryrun*) echo "#$ TOP=$(dirname "$(realpath "$0")")/.." ;;
nvcc*--list-gpu-arch*) printf 'compute_%s\\n' 75 80 90 120 ;;
*--version*) printf '%s\\n' "VERSION" 'Copyright (C) Free Software Foundation, Inc.' ;;
*-dumpversion*) echo 12.2.0 ;;
*-Wl,--help*) echo '  --dependency-file FILE      Write dependency file' ;;
*-print-prog-name=cc1plus*) echo cc1plus ;;
*' -v' | *' -E '*) printf '%s\\n' COLLECT_GCC=g++ 'gcc version 12.2.0' ;;
*) exec '{os.path.realpath(sys.executable)}' -ISc "import sys
sys.path.insert(0, '{os.path.dirname(os.path.abspath(__file__))}')
import fake_cxx
fake_cxx.main()" "$@" ;;
esac
"""


def main():
    if "-c" in sys.argv[1:]:
        compile_source(sys.argv[1:])
    else:
        link(sys.argv[1:])


def compile_source(arguments):
    source, target = after("-c", arguments), after("-o", arguments)
    name = os.path.basename(source)
    count(f"compile {name}")
    folders = [word[2:] for word in arguments if word.startswith("-I")]
    text, files = preprocess(source, folders)
    for number, line in enumerate(read(source), 1):
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
