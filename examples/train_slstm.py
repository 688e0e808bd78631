"""Train a small xLSTM of sLSTM blocks on the text of train_text.py.

    python examples/train_slstm.py                about two minutes on 2 CPU cores
    python examples/train_slstm.py --help

A block adds to its input the output of an SLSTM layer with heads, and then the output of a gated
layer. It prints the validation loss in bits per character, and that of a unigram model.
Source of the architecture: M. Beck et al., "xLSTM: Extended Long Short-Term Memory" (2024).
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from train_text import (
    make_parser,
    positive,
    read_text,
    streams,
    train,
    unigram_bits,
    validation_bits,
)

import lltm_jit

State = tuple[Tensor, ...]


class Block(nn.Module):
    """Takes and returns features (seq_len, batch_size, size), and the layer's state."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.slstm = lltm_jit.SLSTM(size, size, num_heads=heads)
        self.of_heads = nn.GroupNorm(heads, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(2 * size, size)
        with torch.no_grad():  # at first all units keep their state for long, some longer
            self.slstm.bias_ih_l0[size : 2 * size] = torch.linspace(3, 6, size)

    def forward(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        h, state = self.slstm(self.before(x), state)
        x = x + self.of_heads(h.flatten(0, 1)).view_as(x)
        gate, value = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(nn.functional.gelu(gate) * value), state


class XLSTM(nn.Module):
    """Predicts the next character, as train_text.CharacterModel; states are (blocks, ...)."""

    def __init__(self, vocabulary_size: int, args: argparse.Namespace):
        super().__init__()
        size = args.hidden_size
        self.embedding = nn.Embedding(vocabulary_size, size)
        self.blocks = nn.ModuleList(Block(size, args.heads) for _ in range(args.blocks))
        self.head = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, vocabulary_size))
        self.to(args.device)

    def forward(self, characters: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        x, ends = self.embedding(characters), []
        for i, block in enumerate(self.blocks):
            old = None if state is None else tuple(each[i : i + 1] for each in state)
            x, end = block(x, old)
            ends.append(end)
        return self.head(x), tuple(map(torch.cat, zip(*ends, strict=True)))


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(steps=600, hidden_size=128)  # the embedding has the same size
    parser.add_argument("--blocks", type=positive, default=2)
    parser.add_argument("--heads", type=positive, default=4, help="heads of a block (%(default)s)")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    alphabet, *parts = read_text(args.text, args.device)
    training, validation = (streams(part, args.batch_size) for part in parts)
    model = XLSTM(len(alphabet), args)
    train(model, training, args)
    bits = validation_bits(model, validation, args.seq_len)
    unigram = unigram_bits(training, validation, len(alphabet))
    print(f"validation loss: {bits:.3f} bits/char; unigram model: {unigram:.3f} bits/char")


if __name__ == "__main__":
    main()
