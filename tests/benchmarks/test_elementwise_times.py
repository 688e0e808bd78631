"""`python -m benchmarks elementwise`, at a small size."""

import json

from benchmarks.__main__ import main
from benchmarks.elementwise import BACKWARD, FORWARD
from lltm_jit.ops._elementwise import OPERATORS


def test_every_operator_is_timed(capsys, tmp_path, quick_clock):
    file = tmp_path / "figures.json"
    assert main(["elementwise", "--size", "9", "--seconds", "0.001", "--json", str(file)]) == 0
    assert "\nfloat32, 9 elements, cpu\n" in capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    assert [(row["case"], row["phase"], row["name"]) for row in rows] == [
        (operator, phase, name)
        for operator in OPERATORS
        for phase in (FORWARD, BACKWARD)
        for name in ("kernels", "plain PyTorch", "copy")
    ]
