"""Peephole: a recurrent layer of the cell in peephole.h, used like torch.nn.LSTM."""

from pathlib import Path

import lltm_jit

Peephole = lltm_jit.recurrent_cell(Path(__file__).with_name("peephole.h"), "PeepholeCell")
