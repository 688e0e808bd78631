"""The example of recurrent PPO learns what an agent without a memory cannot."""

import re

EASY = ["--updates", "12", "--longest-delay", "4", "--learning-rate", "6e-3"]
SMALL = ["--hidden-size", "32", "--steps", "32", "--device", "cpu"]


def test_the_agent_remembers(run_here):
    """And both ways of calling its layer agree, which the program asserts in each update."""
    out, _ = run_here("recurrent_ppo/recurrent_ppo.py", *EASY, *SMALL)
    (last,) = re.findall(r"symbols recalled: (\d+)%", out)
    assert int(last) > 60
    assert ", by chance 25%" in out
    assert re.search(r"\d ms step by step, \S+ in one call", out)
