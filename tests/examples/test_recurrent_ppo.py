"""The example of recurrent PPO learns what an agent without a memory cannot."""

import re
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "recurrent_ppo" / "recurrent_ppo.py"


def test_the_agent_remembers(run):
    """And both ways of calling its layer agree, which the program asserts in each update."""
    small = ["--updates", "16", "--hidden-size", "32", "--device", "cpu"]
    done = run(PROGRAM, *small)
    assert done.returncode == 0, done.stderr
    *_, last = re.findall(r"update 16: (\d+)% of the symbols recalled", done.stdout)
    assert int(last) > 50
    assert "by chance: 25%" in done.stdout
    assert re.search(r"\d ms step by step, \S+ in one call", done.stdout)
