"""How a layer is called, for type checkers: torch's modules do not pass on what forward says."""

# mypy: disable-error-code=overload-cannot-match
# (where torch is not followed, a Tensor may be anything, a PackedSequence too)

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, overload

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

StateT = TypeVar("StateT")


class Call(Protocol[StateT]):
    """The call of a layer whose state is a ``StateT``."""

    @overload
    def __call__(
        self,
        input: Tensor,
        state: StateT | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, StateT]: ...
    @overload
    def __call__(
        self, input: PackedSequence, state: StateT | None = None
    ) -> tuple[PackedSequence, StateT]: ...
