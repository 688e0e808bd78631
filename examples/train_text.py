"""Train a character-level LLTM language model on a real text, on kernels compiled on import.

    python examples/train_text.py                 about two minutes on 2 CPU cores
    python examples/train_text.py --steps 20      a quick look
    python examples/train_text.py --help

The model reads a character, and predicts the next: embedding, LLTM, linear layer. Training is
truncated back-propagation through time: the text is cut into `--batch-size` streams that are read
side by side, `--seq-len` characters a step; the next step starts from the state at this one's end.

It prints the validation loss in bits per character, beside that of a unigram model (the best result
with nothing but the frequency of each character), a passage sampled from the trained model,
and the training speed of the layer beside that of a loop of the tutorial's cell in plain PyTorch.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

import lltm_jit

DEFAULT_TEXT = Path(__file__).parent / "data" / "opticks.txt"
VALIDATION_SHARE = 0.1
SAMPLE_LENGTH = 400
TEMPERATURE = 0.7  # below 1: the sample prefers the more likely characters

State = tuple[Tensor, ...]


class CharacterModel(nn.Module):
    """Predicts the next character.

    It takes characters (seq_len, batch_size), int64, and the state, a pair of tensors
    (1, batch_size, hidden_size), or None. It returns the logits (seq_len, batch_size,
    vocabulary_size) and the new state.
    """

    def __init__(
        self,
        vocabulary_size: int,
        args: argparse.Namespace,
        layer: Callable[[int, int], nn.Module] = lltm_jit.LLTM,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, args.embedding_size)
        self.lltm = layer(args.embedding_size, args.hidden_size)
        self.head = nn.Linear(args.hidden_size, vocabulary_size)
        self.to(args.device)

    def forward(self, characters: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        output, state = self.lltm(self.embedding(characters), state)
        return self.head(output), state


class PlainLLTM(nn.Module):
    """For comparison: the tutorial's cell in plain PyTorch, in a loop over the characters."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.cell = lltm_jit.LLTMCell(input_size, hidden_size, impl="reference")

    def forward(self, input: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        now = None if state is None else (state[0][0], state[1][0])
        outputs = []
        for step in input:
            now = self.cell(step, now)
            outputs.append(now[0])
        h, c = now
        return torch.stack(outputs), (h[None], c[None])


def streams(data: Tensor, batch_size: int) -> Tensor:
    """Cut `data` (length,) into `batch_size` streams side by side: (stream_length, batch_size)."""
    stream_length = len(data) // batch_size
    if stream_length < 2:
        raise SystemExit(f"the text is too short: {len(data)} characters for {batch_size} streams")
    return data[: stream_length * batch_size].view(batch_size, stream_length).t().contiguous()


def windows(data: Tensor, seq_len: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (characters, next characters) of up to `seq_len` rows of `data`, from first to last."""
    for start in range(0, len(data) - 1, seq_len):
        stop = min(start + seq_len, len(data) - 1)
        yield data[start:stop], data[start + 1 : stop + 1]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    state: State | None,
) -> tuple[Tensor, State]:
    """One forward, backward and update; returns the loss, and the state without its graph."""
    characters, targets = batch
    logits, state = model(characters, state)
    loss = cross_entropy(logits, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    # The LLTM has no forget gate, so gradients reach back undamped; clipping keeps a rare large one
    # from undoing what was learnt.
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach(), tuple(tensor.detach() for tensor in state)


def train(model: nn.Module, data: Tensor, args: argparse.Namespace, silent: bool = False) -> None:
    """Train on streams (stream_length, batch_size); shows progress unless silent."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.steps, pct_start=0.1
    )
    step = 0
    with tqdm(total=args.steps, desc="training", unit="step", disable=silent) as bar:
        while step < args.steps:
            # Every pass over the text starts at its first character with an empty state.
            state = None
            for batch in windows(data, args.seq_len):
                loss, state = training_step(model, optimizer, batch, state)
                schedule.step()
                step += 1
                if step % 10 == 0:  # reading the loss waits for the GPU: not at every step
                    bar.set_postfix_str(f"{loss.item() / math.log(2):.3f} bits/char", refresh=False)
                bar.update()
                if step == args.steps:
                    break


@torch.no_grad()
def validation_bits(model: nn.Module, data: Tensor, seq_len: int) -> float:
    """Mean bits a character over `data` (stream_length, batch_size)."""
    state, nats, count = None, 0.0, 0
    for characters, targets in windows(data, seq_len):
        logits, state = model(characters, state)
        nats += cross_entropy(logits, targets).item() * targets.numel()
        count += targets.numel()
    return nats / count / math.log(2)


def unigram_bits(training: Tensor, validation: Tensor, vocabulary_size: int) -> float:
    """Bits a character of `validation` when each is coded by its frequency in `training`."""
    counts = torch.bincount(training.flatten(), minlength=vocabulary_size) + 1.0
    bits = -torch.log2(counts / counts.sum())
    return bits[validation.flatten()].mean().item()


@torch.no_grad()
def sample(model: CharacterModel, prompt: Tensor, length: int) -> list[int]:
    """Continue `prompt` (length, 1) by `length` characters, drawn one at a time."""
    logits, state = model(prompt)
    drawn = []
    for _ in range(length):
        probabilities = (logits[-1] / TEMPERATURE).softmax(-1)
        character = torch.multinomial(probabilities, 1)
        drawn.append(int(character))
        logits, state = model(character.view(1, 1), state)
    return drawn


def characters_per_second(model: CharacterModel, data: Tensor, args: argparse.Namespace) -> float:
    """Speed of the best of `--timing-steps` training steps of `model`."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    batch = next(windows(data, args.seq_len))
    best = math.inf
    training_step(model, optimizer, batch, None)
    for _ in range(args.timing_steps):
        start = time.perf_counter()
        loss, _ = training_step(model, optimizer, batch, None)
        loss.item()  # waits for the GPU
        best = min(best, time.perf_counter() - start)
    return batch[0].numel() / best


def read_text(path: Path, device: str) -> tuple[list[str], Tensor, Tensor]:
    """The characters of a text, and its two parts as indices into them: training, validation."""
    text = path.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    index = {character: i for i, character in enumerate(alphabet)}
    data = torch.tensor([index[character] for character in text], device=device)
    split = int(len(data) * (1 - VALIDATION_SHARE))
    return alphabet, data[:split], data[split:]


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, but got {number}")
    return number


def make_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT, help="a UTF-8 text file")
    parser.add_argument("--steps", type=positive, default=1500, help="training steps (%(default)s)")
    parser.add_argument("--batch-size", type=positive, default=32, help="streams (%(default)s)")
    parser.add_argument(
        "--seq-len", type=positive, default=64, help="characters a step (%(default)s)"
    )
    parser.add_argument("--embedding-size", type=positive, default=64)
    parser.add_argument("--hidden-size", type=positive, default=256)
    parser.add_argument("--lr", type=float, default=4e-3, help="the highest rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--timing-steps", type=positive, default=10, help="steps timed (%(default)s)"
    )
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    alphabet, *parts = read_text(args.text, args.device)
    training, validation = (streams(part, args.batch_size) for part in parts)

    model = CharacterModel(len(alphabet), args)
    length = sum(map(len, parts))
    print(f"{args.text.name}: {length:,} characters, {len(alphabet)} different; {args.device}")
    train(model, training, args)

    bits = validation_bits(model, validation, args.seq_len)
    unigram = unigram_bits(training, validation, len(alphabet))
    print(f"validation loss: {bits:.3f} bits/char; unigram model: {unigram:.3f} bits/char")

    prompt = "The Rays of Light "
    prompt = "".join(character for character in prompt if character in alphabet) or alphabet[0]
    encoded = [[alphabet.index(character)] for character in prompt]
    continuation = "".join(
        alphabet[i] for i in sample(model, torch.tensor(encoded, device=args.device), SAMPLE_LENGTH)
    )
    print(f"\n--- sampled ---\n{prompt}{continuation}\n---------------\n")

    fused = characters_per_second(CharacterModel(len(alphabet), args), training, args)
    plain = CharacterModel(len(alphabet), args, PlainLLTM)
    reference = characters_per_second(plain, training, args)
    print(
        f"training speed: fused {fused:,.0f} characters/s, "
        f"plain PyTorch {reference:,.0f} characters/s ({fused / reference:.2f}x)"
    )


if __name__ == "__main__":
    main()
