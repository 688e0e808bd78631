"""``python -m lltm_jit <command>``."""

import sys

from lltm_jit.cli import main

sys.exit(main())
