"""Layers of sizes that people publish, and of random ones, with goals beside torch's."""

import random
from collections.abc import Iterator, Sequence

import torch

from .cases import Case

# Layer, how many, directions, features, hidden units, rows, steps: of papers and tutorials.
_BOTH = [
    ("LSTM", 2, 1, 650, 650, 20, 35),  # language models
    ("LSTM", 2, 2, 300, 200, 32, 64),  # a tagger
    ("LSTM", 2, 1, 512, 512, 1, 100),
    ("LSTM", 2, 1, 8, 64, 256, 168),  # time series
    ("LSTM", 1, 1, 256, 256, 64, 128),  # reinforcement learning
    ("GRU", 1, 1, 512, 512, 16, 64),
]
_SIZES = {
    "cuda": [
        *_BOTH,
        ("LSTM", 2, 1, 1500, 1500, 20, 35),  # language models
        ("LSTM", 1, 1, 1150, 1150, 80, 70),
        ("LSTM", 4, 2, 640, 640, 32, 400),  # speech
        ("LSTM", 2, 2, 512, 512, 64, 128),
        ("LSTM", 4, 1, 512, 512, 128, 50),
        ("GRU", 1, 1, 384, 384, 32, 256),  # a vocoder
        ("GRU", 3, 2, 800, 800, 32, 300),  # speech
        ("LSTM", 1, 1, 256, 256, 1024, 50),
        *(("LSTM", 1, 1, size, size, rows, 64) for size in (512, 640, 1024) for rows in (16, 64)),
        *(
            ("LSTM", 1, 2, size, size, rows, 512)
            for size, rows in ((256, 32), (640, 32), (1024, 16), (512, 64))
        ),
    ],
    "cpu": [
        *_BOTH,
        ("LSTM", 2, 1, 200, 200, 20, 35),  # language models
        ("LSTM", 2, 1, 512, 512, 1, 1),
        ("LSTM", 1, 1, 128, 128, 1, 100),
        ("GRU", 2, 2, 256, 256, 32, 64),
        ("LSTM", 2, 1, 65, 512, 50, 50),  # characters
    ],
}
# The goals beside torch's layer on an H200, forward and with the backward pass, for 16 bits and for
# floats as TF32: by directions, hidden units, rows and steps.
_GOALS = {
    (1, 650, 20, 35): ((0.5, 0.55), (0.65, 0.7)),
    (1, 1500, 20, 35): ((0.45, 0.5), (0.75, 0.8)),
    (1, 1150, 80, 70): ((0.55, 0.55), (0.75, 0.8)),
    (1, 512, 128, 50): ((0.6, 0.65), (0.6, 0.65)),
    (1, 256, 1024, 50): ((0.35, 0.4), (0.7, 0.75)),
    (1, 64, 256, 168): ((0.2, 0.22), (0.5, 0.55)),
    **{
        (1, size, rows, 64): ((1, 1), (0.5, 0.55)) for size in (512, 640, 1024) for rows in (16, 64)
    },
    (2, 200, 32, 64): ((0.15, 0.2), (0.25, 0.25)),
    (2, 640, 32, 400): ((0.4, 0.45), (0.5, 0.5)),
    (2, 512, 64, 128): ((0.3, 0.37), (0.45, 0.45)),
    (2, 800, 32, 300): ((0.45, 0.5), (0.6, 0.6)),
    # These are milliseconds on an H200, to which the input's product is added, over cuDNN's.
    (2, 256, 32, 512): ((0.1, 0.12), (0.2, 0.16)),
    (2, 640, 32, 512): ((0.35, 0.39), (0.5, 0.5)),
    (2, 1024, 16, 512): ((0.27, 0.32), (1, 1)),
    (2, 512, 64, 512): ((0.29, 0.33), (0.4, 0.42)),
}
_USUAL_GOAL, _EXACT_GOAL, _CPU_GOAL, _DRAWN_GOAL = 1.0, 0.7, 0.95, 1.05
_MOST = {"cuda": 2**27, "cpu": 2**21}  # units of all steps of a drawn layer, for memory and time

# An element type, with the precision of floats.
Numbers = tuple[torch.dtype, str]


def published_cases(device: torch.device, types: Sequence[Numbers]) -> Iterator[Case]:
    for dtype, precision in types:
        for layer, layers, directions, features, hidden, rows, steps in _SIZES[device.type]:
            yield Case(
                *(rows, hidden, steps, dtype, device, precision),
                *(layer, layers, directions, features),
                goals=_goals(device, dtype, precision, (directions, hidden, rows, steps)),
            )


def _goals(
    device: torch.device, dtype: torch.dtype, precision: str, size: tuple[int, int, int, int]
) -> tuple[float, float]:
    if device.type == "cpu":
        return (_CPU_GOAL, _CPU_GOAL)
    if dtype is torch.float and precision == "ieee":
        return (_EXACT_GOAL, _EXACT_GOAL)
    usual = (_USUAL_GOAL, _USUAL_GOAL)
    return _GOALS.get(size, (usual, usual))[dtype is torch.float]


def drawn_cases(
    device: torch.device, types: Sequence[Numbers], count: int, seed: int
) -> Iterator[Case]:
    """Random layers: the sizes of every other one are small as often as large."""
    chance = random.Random(seed)
    for i in range(count):

        def size(most: int, even: bool = i % 2 == 0) -> int:
            return chance.randint(1, most) if even else int((most + 1) ** chance.random())

        rows, hidden, steps = size(512), size(2112), size(256)
        layers, directions = chance.randint(1, 4), chance.randint(1, 2)
        most = _MOST[device.type] // (rows * hidden * layers * directions)
        dtype, precision = chance.choice(types)
        yield Case(
            *(rows, hidden, max(1, min(steps, most)), dtype, device, precision),
            *(chance.choice(("LSTM", "GRU")), layers, directions, hidden),
            goals=(_DRAWN_GOAL, _DRAWN_GOAL),
        )
