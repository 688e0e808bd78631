"""The operators as functions, like :mod:`torch.nn.functional`.

The StyleGAN operators have modules of their own in ``lltm_jit.ops``.
"""

from lltm_jit.ops import basic
from lltm_jit.ops.basic import *  # noqa: F403
from lltm_jit.ops.rnn.lltm import lltm_cell
from lltm_jit.ops.rnn.lltm_tutorial import lltm_backward, lltm_forward
from lltm_jit.ops.rnn.sequence import recurrent_sequence

__all__ = ["lltm_backward", "lltm_cell", "lltm_forward", "recurrent_sequence"]
__all__ += [name for name in basic.__all__ if name.islower()]
