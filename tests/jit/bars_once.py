"""A program with a bar of its own, which builds while that is there: `here`, or in threads.

python bars_once.py DIRECTORY NAME...
"""

import sys
import threading
import time

import load_once  # noqa: F401  # which has lltm_jit enter without its __init__
from tqdm import tqdm

from lltm_jit import jit
from lltm_jit.jit.user.progress import Reporter


def build(directory, name, label):
    jit.load(jit.Spec(name, (directory,)), reporter=Reporter(label=label))


def main(directory, *names):
    threads = [threading.Thread(target=build, args=(directory, name, name)) for name in names]
    with tqdm(total=4, desc="training") as bar:
        bar.update()
        if not threads:
            build(directory, "_C", "")
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            bar.refresh()
        bar.update(3)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
