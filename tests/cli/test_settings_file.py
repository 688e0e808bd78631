"""MAX_JOBS.env.example says what the table of environment variables says.

`python tests/cli/test_settings_file.py` writes the file anew after the table was edited.
"""

from pathlib import Path

from lltm_jit.jit.knobs import KNOBS

FILE = Path(__file__).parents[2] / "MAX_JOBS.env.example"

HEADER = """\
# Settings of the build. Copy this file to MAX_JOBS.env beside it, and uncomment what you set.
# A variable of the real environment wins over this file. The file is read in a checkout only, never
# from the current directory.
"""


def render() -> str:
    entries = [f"# {knob.help}\n#{knob.name}={knob.default}\n" for knob in KNOBS.values()]
    return "\n".join([HEADER, *entries])


def test_the_example_lists_every_variable_with_its_default():
    assert FILE.read_text() == render(), f"write it anew: python {Path(__file__)}"


if __name__ == "__main__":
    FILE.write_text(render())
