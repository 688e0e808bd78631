"""The ratios that this project aims for, to the times of torch's layers and of our LLTM."""

from .cases import LOOP, PHASES, Case, theirs

# The goals by (batch, hidden): LLTM's time over that of torch's layer, forward, and forward +
# backward, with 256 steps and as many features as hidden units, on an H200 and 2 CPU threads.
_CUDA_TYPES = ("float16", "bfloat16", "float32")
_CUDA_GOALS = {  # for each of these types
    (16, 128): ((0.21, 0.26), (0.09, 0.11), (0.3, 0.4)),
    (16, 256): ((0.36, 0.23), (0.1, 0.1), (0.25, 0.2)),
    (16, 512): ((0.42, 0.33), (0.12, 0.13), (0.25, 0.2)),
    (16, 768): ((0.52, 0.42), (0.17, 0.18), (0.35, 0.3)),
    (64, 512): ((0.16, 0.16), (0.16, 0.18), (0.3, 0.25)),
    (128, 512): ((0.25, 0.2), (0.27, 0.28), (0.45, 0.35)),
    (16, 1024): ((0.7, 0.6), (0.22, 0.3), (0.45, 0.4)),
    (64, 1024): ((0.35, 0.35), (0.35, 0.4), (0.5, 0.45)),
    (16, 2048): ((0.5, 0.5), (0.5, 0.5), (0.5, 0.5)),
}
_GOALS = {
    **{
        ("cuda", dtype): {size: goals[i] for size, goals in _CUDA_GOALS.items()}
        for i, dtype in enumerate(_CUDA_TYPES)
    },
    ("cpu", "float32"): {(16, 128): (0.70, 0.65), (16, 256): (0.70, 0.65), (16, 512): (0.75, 0.65)},
    ("cpu", "bfloat16"): {(16, 128): (0.7, 0.7), (16, 256): (0.7, 0.7), (16, 512): (0.7, 0.7)},
}
_CPU_GOAL_OF_LSTM = 0.9  # beside torch's
_GOALS_OF_LLTM = {"LSTM": 1.4, "GRU": 1.3}  # on a GPU: the most, in multiples of the LLTM's time
SIZES = {device: [*_GOALS[device, "float32"]] for device in ("cpu", "cuda")}


def goals(case: Case, layer: str, phase: str) -> dict[str, float | None]:
    """The layers that a layer is compared with, and the goals for the ratios of times, if any."""
    if case.goals:
        return {theirs(layer): case.goals[PHASES.index(phase)]}
    device = case.device.type
    of_size = _GOALS.get((device, case.type), {}).get((case.batch_size, case.hidden_size))
    goal = None
    if of_size and (layer, device) == ("LSTM", "cpu"):
        goal = _CPU_GOAL_OF_LSTM
    elif of_size and layer == "LLTM":
        goal = of_size[PHASES.index(phase)]
    found = {theirs(layer): goal}
    if layer == "LLTM":
        return {**found, LOOP: None}
    return {**found, "LLTM": _GOALS_OF_LLTM.get(layer) if device == "cuda" else None}
