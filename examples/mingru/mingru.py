"""MinGru: a recurrent layer of the cell in mingru.h, used like torch.nn.GRU."""

from pathlib import Path

import lltm_jit

MinGru = lltm_jit.recurrent_cell(Path(__file__).with_name("mingru.h"), "MinGruCell")
