"""What a layer knows of its cell, what its state is, and how it is called."""

# mypy: disable-error-code=overload-cannot-match
# (where torch is not followed, a Tensor may be anything, a PackedSequence too)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

State: TypeAlias = "Tensor | tuple[Tensor, ...]"

# Output, h_n and c_n; and the other states after each step, (L, S-1, B, H), if they are wanted.
Results: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor | None]"


class Pass(NamedTuple):
    """What the parts of a sequence have in common, in one direction or in both at once."""

    kinds: list[str]  # of the weights, such as "weight_ih"
    reverse: bool
    tf32: bool
    every: bool  # whether the other states of all steps are wanted
    resets: bool  # whether the control of the steps may reset rows

    def by_kind(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """The weights of each kind, one for each direction."""
        found: dict[str, list[Tensor]] = {}
        for kind, weight in zip(self.kinds, weights, strict=True):
            found.setdefault(kind, []).append(weight)
        return found


@dataclass(frozen=True)
class Cell:
    """What a layer must know about its cell, as the compiled library of the cell says."""

    name: str  # as recurrent_sequence() takes it
    gates: int
    states: int  # the first is the output
    parameters: int  # learnt per hidden unit, besides matrices and biases
    adds_gates: bool  # whether it uses only the sum of a gate's input part and hidden part
    product: bool = True  # whether it has recurrent weights
    normalises_gates: bool = False  # over a row, after which a bias of the hidden part would come
    normalises: bool = False  # its gates or a state

    @property
    def ordinary(self) -> bool:
        """Whether a step needs nothing but a product, and numbers of one unit."""
        return self.product and not self.normalises

    @property
    def hidden_bias(self) -> bool:
        """Whether the hidden part has a bias."""
        return self.product and not self.normalises_gates


StateT = TypeVar("StateT")


class Call(Protocol[StateT]):
    """The typed call of a layer whose state is a ``StateT``; torch's modules do not type theirs."""

    @overload
    def __call__(
        self,
        input: Tensor,
        hx: StateT | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        reset_to: StateT | None = None,
        return_states: Literal[False] = False,
    ) -> tuple[Tensor, StateT]: ...
    @overload
    def __call__(
        self,
        input: Tensor,
        hx: StateT | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        reset_to: StateT | None = None,
        return_states: Literal[True],
    ) -> tuple[Tensor, StateT, StateT]: ...
    @overload
    def __call__(
        self, input: PackedSequence, hx: StateT | None = None
    ) -> tuple[PackedSequence, StateT]: ...
