"""The example of recurrent PPO learns what an agent without a memory cannot."""

import re
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "recurrent_ppo" / "recurrent_ppo.py"
EASY = ["--updates", "12", "--longest-delay", "4", "--learning-rate", "6e-3"]
SMALL = ["--hidden-size", "32", "--steps", "32", "--device", "cpu"]


def test_the_agent_remembers(run_here):
    """And both ways of calling its layer agree, which the program asserts in each update."""
    out, _ = run_here(PROGRAM, *EASY, *SMALL)
    (last,) = re.findall(r"symbols recalled: (\d+)%", out)
    assert int(last) > 60
    assert ", by chance 25%" in out
    assert re.search(r"\d ms step by step, \S+ in one call", out)
