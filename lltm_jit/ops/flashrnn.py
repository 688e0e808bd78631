"""``flashrnn``; see :func:`lltm_jit.ops.rnn.flashrnn.flashrnn`."""

from lltm_jit.ops.rnn.flashrnn import flashrnn

__all__ = ["flashrnn"]
