"""Run the notebooks and store their outputs in them.

    python examples/refresh_notebooks.py             all of them
    python examples/refresh_notebooks.py 02 05       those whose names start like this

Paths of this machine are shortened: the folder of builds, temporary folders, the checkout and the
home directory. Needs the packages of `pip install '.[test]'`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from lltm_jit.jit.store import cache

HERE = Path(__file__).resolve().parent


def shortened(text: str) -> str:
    """A text without paths of this machine."""
    temporary = re.escape(tempfile.gettempdir())
    text = text.replace(str(cache.root()), "~/.cache/torch_extensions")
    text = re.sub(rf"{temporary}/tmp[\w-]+", "/tmp/project", text)
    text = text.replace(f"{HERE.parent}/", "").replace(str(Path.home()), "~")
    return re.sub(r"[^\n]*\r(?!\n)", "", text)  # what a bar has overwritten


def clean(value: object) -> object:
    """An output with every text shortened."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, dict):
        return {key: each if key == "image/png" else clean(each) for key, each in value.items()}
    return value


def refresh(path: Path) -> None:
    """Run a notebook, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(HERE)}}
    NotebookClient(notebook, timeout=600, resources=resources, coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(clean(output)) for output in cell.outputs]
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    for path in sorted(HERE.glob("*.ipynb")):
        if not sys.argv[1:] or path.name.startswith(tuple(sys.argv[1:])):
            print(path.name, flush=True)
            refresh(path)


if __name__ == "__main__":
    main()
