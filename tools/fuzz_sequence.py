"""Random configurations of the recurrent layers against torch's own in float64.

    python tools/fuzz_sequence.py [-c] [--minutes 10] [--seed 0]

Values and gradients of all layers (the reference is a loop where torch has none) in all dtypes:
packed, with lengths, and with resets to zeros or given states, whose reference runs each piece by
itself. A configuration that differs is printed with its seed; ``--seed N --count 1`` repeats it.
The last lines say what was run, and the worst error as a share of what the dtype allows.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / "ops" / folder) for folder in (".", "rnn"))]

from layer_testing import LAYERS, THEIRS, layer_reference  # noqa: E402

from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer  # noqa: E402

DTYPES = [torch.half, torch.bfloat16, torch.float, torch.double]
# There are few sizes on a GPU, because each one needs a compilation.
HIDDEN_CUDA = [1, 7, 32, 33, 64, 100, 128, 256, 320, 512, 776, 1024]


@dataclass
class Configuration:
    kind: str
    dtype: torch.dtype
    device: str
    form: str  # padded, packed, unbatched, lengths, reset, or both of the last
    steps: int
    batch_size: int
    input_size: int
    hidden_size: int
    proj_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    bidirectional: bool
    checkpoint: int
    state: bool
    reset_to: str  # zeros, one state, or a state of each step
    float_cells: bool  # the cells' states are float, where the rest is of 16 bits
    transposed: bool  # the input lies in memory in another order

    @classmethod
    def draw(cls, rng: random.Random, device: str) -> Configuration:
        def flag() -> bool:
            return rng.random() < 0.5

        steps = rng.choice([1, 2, rng.randint(3, 20), rng.randint(3, 40)])
        small = rng.random() < 0.9
        hidden = rng.randint(1, 40) if small else rng.randint(41, 300)
        form = rng.choice(["padded", "packed", "unbatched", "lengths", "reset", "both"])
        most = 12 if form in ("reset", "both") else 70  # the reference goes row by row
        kind = rng.choice([*LAYERS])
        hidden_size = hidden if device == "cpu" else rng.choice(HIDDEN_CUDA)
        projected = kind == "LSTM" and flag()
        return cls(
            kind=kind,
            dtype=rng.choice(DTYPES),
            device=device,
            form=form,
            steps=steps,
            batch_size=rng.choice([1, 2, rng.randint(1, 12), rng.randint(12, most)]),
            input_size=rng.randint(1, 30),
            hidden_size=hidden_size,
            proj_size=rng.randrange(hidden_size) if projected else 0,
            num_layers=rng.choice([1, 1, 2, 3]),
            bias=flag(),
            batch_first=flag(),
            bidirectional=flag(),
            checkpoint=rng.choice([0, 0, rng.randint(1, steps + 1)]),
            state=flag(),
            reset_to=rng.choice(["zeros", "one", "each"]),
            float_cells=flag(),
            transposed=flag(),
        )

    def __str__(self) -> str:
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


# -------------------------------------------------------------------------------- the reference --

States = list[Tensor]  # each [layers * directions, batch, hidden]


def whole(layer: nn.Module, x: Tensor, states: States) -> tuple[Tensor, States]:
    """Sequences of one length, without resets."""
    if isinstance(layer, RecurrentLayer):
        return layer_reference(layer, x, states)
    output, last = layer(x, tuple(states) if len(states) > 1 else states[0])
    return output, [last] if torch.is_tensor(last) else list(last)


def packed(
    layer: nn.Module, x: Tensor, states: States, lengths: list[int]
) -> tuple[Tensor, States]:
    """Sequences of different lengths, as torch's own layers take them."""
    output, last = whole(layer, pack_padded_sequence(x, lengths, enforce_sorted=False), states)
    return pad_packed_sequence(output, total_length=len(x))[0], last


def by_pieces(
    layer: nn.Module, x: Tensor, states: States, lengths: list[int], reset: Tensor, to: States
) -> tuple[Tensor, States]:
    """Each row by itself, cut where it is reset to states of each step, or to one."""
    directions, features = 1 + layer.bidirectional, layer.proj_size or layer.hidden_size
    outputs, ends = [], []
    for row, length in enumerate(lengths):
        own = [state[:, row : row + 1] for state in states]
        cuts = [0, *(t for t in range(1, length) if reset[t, row]), length]
        parts: list[Tensor] = []
        last = [list(state) for state in own]
        for a, b in itertools.pairwise(cuts) if length else ():
            start = [list(state) for state in own]
            for k in range(len(start[0])):
                backwards = k % directions == 1
                if (b < length) if backwards else (a > 0 or bool(reset[0, row])):
                    for state, given in zip(start, to, strict=True):
                        mark = (b if backwards else a) if len(given) > 1 else 0
                        state[k] = given[mark][k, row : row + 1]
            part, end = whole(layer, x[a:b, row : row + 1], [torch.stack(s) for s in start])
            parts.append(part)
            for k in range(len(start[0])):
                if (a == 0) if k % directions == 1 else (b == length):
                    for state, found in zip(last, end, strict=True):
                        state[k] = found[k]
        behind = x.new_zeros(len(x) - length, 1, directions * features)
        outputs.append(torch.cat([*parts, behind]))
        ends.append([torch.stack(state) for state in last])
    return torch.cat(outputs, 1), [torch.cat(state, 1) for state in zip(*ends, strict=True)]


# -------------------------------------------------------------------------------- one comparison --


class Case:
    """Tensors of a configuration, and the ways of running it."""

    def __init__(self, config: Configuration) -> None:
        self.config = c = config
        sizes = (c.input_size, c.hidden_size, c.num_layers)
        options = {"bias": c.bias, "bidirectional": c.bidirectional, "device": c.device}
        if c.proj_size:
            options["proj_size"] = c.proj_size
        self.ours = LAYERS[c.kind](
            *sizes, **options, batch_first=c.batch_first, checkpoint=c.checkpoint, dtype=c.dtype
        )
        self.theirs = {**LAYERS, **THEIRS}[c.kind](*sizes, **options, dtype=torch.double)
        self.theirs.load_state_dict(self.ours.state_dict())
        self.batch_size = 1 if c.form == "unbatched" else c.batch_size
        self.x = self.random(c.steps, self.batch_size, c.input_size)
        layers = c.num_layers * (1 + c.bidirectional)
        features = [c.proj_size or c.hidden_size, *[c.hidden_size] * (self.ours.cell.states - 1)]
        self.states = [self.random(layers, self.batch_size, size) for size in features]
        if not c.state:
            self.states = [torch.zeros_like(state) for state in self.states]
        count = c.steps if c.reset_to == "each" else 1
        self.to = [self.random(count, layers, self.batch_size, size) for size in features]
        if c.reset_to == "zeros":
            self.to = [torch.zeros_like(state) for state in self.to]
        least = 1 if c.form == "packed" else 0
        cut = c.form in ("packed", "lengths", "both")
        ends = torch.randint(least, c.steps + 1, (self.batch_size,)) if cut else None
        self.lengths = [c.steps] * self.batch_size if ends is None else ends.tolist()
        reset = torch.rand(c.steps, self.batch_size) < random.Random(c.steps).choice([0.05, 0.3])
        self.reset = reset if c.form in ("reset", "both") else torch.zeros_like(reset)

    def random(self, *shape: int) -> Tensor:
        """Random numbers that the dtype can hold, as float64."""
        values = torch.randn(shape, dtype=torch.double)
        return values.to(self.config.dtype).double().to(self.config.device)

    def reference(self, dtype: torch.dtype) -> list[Tensor]:
        layer = self.theirs.to(dtype)
        leaves = self.leaves(dtype)
        x, *states = leaves
        states, to = states[: len(self.states)], states[len(self.states) :]
        if self.config.form in ("padded", "unbatched"):
            output, last = whole(layer, x, states)
        elif self.config.kind in THEIRS and min(self.lengths) and not self.reset.any():
            output, last = packed(layer, x, states, self.lengths)
        else:
            output, last = by_pieces(layer, x, states, self.lengths, self.reset, to)
        return self.with_gradients(layer, [output, *last], leaves)

    def leaves(self, dtype: torch.dtype) -> list[Tensor]:
        """The tensors that layers are given: the input, the states, and the states to reset to."""
        return [t.to(dtype).requires_grad_() for t in (self.x, *self.states, *self.to)]

    def run(self) -> list[Tensor]:
        c, count = self.config, len(self.states)
        leaves = self.leaves(c.dtype)
        if c.float_cells and c.dtype.itemsize == 2 and count > 1:
            for i in (2, 2 + count):  # a state and what it is reset to have one dtype
                leaves[i] = leaves[i].detach().float().requires_grad_()
        x, *states = leaves
        states, to = states[:count], states[count:]
        if c.transposed:
            x = x.transpose(0, 2).contiguous().transpose(0, 2)
        reset = self.reset.to(c.device)
        if c.form == "unbatched":
            x, reset, states = x[:, 0], reset[:, 0], [state[:, 0] for state in states]
        elif c.batch_first:
            x, reset = x.transpose(0, 1), reset.t()
        state = (tuple(states) if len(states) > 1 else states[0]) if c.state else None
        if c.form == "packed":
            x = pack_padded_sequence(x, self.lengths, c.batch_first, enforce_sorted=False)
            output, last = self.ours(x, state)
            output = pad_packed_sequence(output, c.batch_first, total_length=c.steps)[0]
        else:
            named = {"lengths": self.lengths} if c.form in ("lengths", "both") else {}
            if c.form in ("reset", "both"):
                named["reset"] = reset
                if c.reset_to != "zeros":
                    to = [t if c.reset_to == "each" else t.squeeze(0) for t in to]
                    named["reset_to"] = tuple(to) if count > 1 else to[0]
            output, last = self.ours(x, state, **named)
        last = [last] if torch.is_tensor(last) else list(last)
        if c.form == "unbatched":
            output, last = output.unsqueeze(1), [tensor.unsqueeze(1) for tensor in last]
        elif c.batch_first:
            output = output.transpose(0, 1)
        return self.with_gradients(self.ours, [output, *last], leaves)

    def with_gradients(
        self, layer: nn.Module, results: list[Tensor], leaves: list[Tensor]
    ) -> list[Tensor]:
        """Gradients of a sum of the results with the same weights each time; none without grad."""
        if not torch.is_grad_enabled():
            return [tensor.double() for tensor in results]
        weights = [
            torch.linspace(-1, 1, r.numel(), dtype=torch.double).view(r.shape).to(r)
            for r in results
        ]
        count, config = len(self.states), self.config
        wanted = [*(leaves[: 1 + count] if config.state else leaves[:1]), *layer.parameters()]
        if config.form in ("reset", "both") and config.reset_to != "zeros":
            wanted += leaves[1 + count :]
        loss = sum((r * w).sum(dtype=torch.double) for r, w in zip(results, weights, strict=True))
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        return [tensor.detach().double() for tensor in (*results, *gradients)]

    def share(self) -> float:
        """The worst error as a share of what is allowed."""
        c, eps = self.config, torch.finfo(self.config.dtype).eps
        # The roundings of sums; the reference in the same dtype adds its own error to the limit.
        sums = 16 + c.steps + c.batch_size if c.dtype != torch.double else 1000
        actual, exact = self.run(), self.reference(torch.double)
        usual = exact if c.dtype == torch.double else self.reference(c.dtype)
        with torch.no_grad():  # nothing is saved then
            plain = self.run()
        worst, right = 0.0, list(zip(exact, usual, strict=True))
        for a, (e, u) in zip(plain + actual, right[: len(plain)] + right, strict=True):
            if a.shape != e.shape:
                raise AssertionError(f"shape {list(a.shape)} for {list(e.shape)}")
            if not e.numel():
                continue
            scale = max(1.0, e.square().mean().sqrt().item())
            allowed = 2 * (u - e).abs().max().item() + sums * eps * scale
            error = (a - e).abs().max().item()
            worst = max(worst, error / allowed if error == error else float("inf"))
        return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-c", "--cuda", action="store_true")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=None, help="the most configurations")
    args = parser.parse_args()
    device = "cuda" if args.cuda else "cpu"
    end, seen, worst, failed = time.monotonic() + 60 * args.minutes, Counter(), {}, []
    for seed in itertools.count(args.seed):
        if time.monotonic() > end or seed - args.seed == args.count:
            break
        torch.manual_seed(seed)
        config = Configuration.draw(random.Random(seed), device)
        try:
            share = Case(config).share()
            problem = f"{share:.3g} of the error allowed" if share > 1 else None
        except (RuntimeError, AssertionError, ValueError, TypeError) as error:
            share, problem = 0.0, f"{type(error).__name__}: {error}"
        if problem:
            failed.append(seed)
            print(f"seed {seed}: {problem}\n    {config}", flush=True)
        worst[config.dtype] = max(worst.get(config.dtype, 0.0), share)
        for value in (config.kind, str(config.dtype), config.form, "all"):
            seen[value] += 1
    print(f"{seen.pop('all', 0)} configurations on {device}, {len(failed)} differ: {failed}")
    print(", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    print("worst error of what is allowed: ", end="")
    print(", ".join(f"{dtype} {share:.2f}" for dtype, share in worst.items()))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
