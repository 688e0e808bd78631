"""The operators as functions, like :mod:`torch.nn.functional`.

The StyleGAN operators have modules of their own in ``lltm_jit.ops``.
"""

from lltm_jit.ops.basic.my_op import my_op
from lltm_jit.ops.basic.sigmoid import d_sigmoid, sigmoid
from lltm_jit.ops.rnn.lltm import lltm_cell
from lltm_jit.ops.rnn.lltm_tutorial import lltm_backward, lltm_forward
from lltm_jit.ops.rnn.sequence import recurrent_sequence

__all__ = [
    "d_sigmoid",
    "lltm_backward",
    "lltm_cell",
    "lltm_forward",
    "my_op",
    "recurrent_sequence",
    "sigmoid",
]
