"""examples/stylegan2_train.py trains, at a size that takes seconds."""

import re
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from op_testing import DEVICES

from lltm_jit.ops.stylegan import implementation

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--size", "16", "--channels", "8", "--latent", "8", "--batch-size", "4"]
SMALL += ["--timing-steps", "1"]


def images():
    """Four of each digit, which show nothing: they need no package."""
    return torch.rand(40, 1, 16, 16) * 2 - 1, torch.arange(40) % 10


@pytest.fixture
def example(monkeypatch):
    """The script as a module, which draws the same numbers in every run."""
    torch.manual_seed(0)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import stylegan2_train

    return stylegan2_train


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_it_trains_and_shows_samples(device, run, tmp_path):
    grid = tmp_path / "grid.png"
    flags = [*SMALL, "--steps", "12", "--device", device, "--output", grid]
    done = run("stylegan2_train.py", *flags)
    assert re.search(rf"1797 images, 16x16; [\d,]+ parameters; {device}", done.stdout)
    assert "12/12" in done.stderr
    losses = re.findall(r"generator (\d\.\d\d), discriminator (\d\.\d\d)", done.stderr)
    assert losses, done.stderr
    assert f"samples: {grid}" in done.stdout
    assert re.search(r"kernels [\d,]+ images/s, definitions [\d,]+ images/s", done.stdout)
    picture = imread(grid)
    assert picture.shape[:2] == (9 * 16, 10 * 16)
    real, sampled = picture[:16, :, 0], picture[16:, :, 0]
    assert real.max() > 0.9
    assert sampled.std() > 0.01


def test_both_implementations_train_alike(example):
    """Every parameter gets the same gradient, those of the R1 penalty among them."""
    args = example.make_parser().parse_args(SMALL)
    data = images()
    gradients = {}
    for impl in ("cuda", "ref"):
        torch.manual_seed(0)
        training = example.Training(*data, args)
        with implementation(impl):
            training.step()
        models = (training.generator, training.discriminator)
        gradients[impl] = [p.grad for model in models for p in model.parameters()]
    assert all(gradient is not None for gradient in gradients["cuda"])
    torch.testing.assert_close(gradients["cuda"], gradients["ref"], rtol=1e-3, atol=1e-4)


def test_the_penalty_is_differentiated(example):
    args = example.make_parser().parse_args(SMALL)
    training = example.Training(*images(), args)
    reals, digits = training.images[:4], training.digits[:4]
    penalty = training.steepness(reals, digits)
    assert penalty.item() > 0
    parameters = dict(training.discriminator.named_parameters())
    gradients = torch.autograd.grad(penalty, list(parameters.values()), allow_unused=True)
    reached = {name for name, g in zip(parameters, gradients, strict=True) if g is not None}
    assert {name for name in parameters if name.endswith("weight")} <= reached
    with torch.no_grad():  # a step against the gradient makes it smaller
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameters[name] -= 1e-3 * gradient / (1 + gradient.norm())
    assert training.steepness(reals, digits) < penalty


@pytest.mark.parametrize("missing", ["sklearn", "matplotlib"])
def test_what_is_missing_is_named(missing, example, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    if missing != "sklearn":
        monkeypatch.setattr(example, "real_images", lambda size, device: images())
    monkeypatch.setattr(
        sys, "argv", ["stylegan2_train.py", *SMALL, "--output", str(tmp_path / "g")]
    )
    package = {"sklearn": "scikit-learn"}.get(missing, missing)
    with pytest.raises(SystemExit, match=f"this example needs `python -m pip install {package}`"):
        example.main()


@pytest.mark.parametrize("size", ["4", "24"])
def test_a_size_that_no_generator_has(size, example, capsys):
    with pytest.raises(SystemExit):
        example.make_parser().parse_args(["--size", size])
    message = f"argument --size: expected a power of two from 8 on, but got {size}"
    assert message in capsys.readouterr().err
