"""Train a small StyleGAN2 on handwritten digits, on kernels compiled on first use.

    python -m pip install '.[examples]'                what this needs beside the package
    python examples/stylegan2_train.py                 about two minutes on 2 CPU cores
    python examples/stylegan2_train.py --device cuda --channels 128 --batch-size 64 --steps 10000
    python examples/stylegan2_train.py --help

The images are the 1797 digits that scikit-learn ships, 8x8, upsampled to `--size`. The generator
maps a digit and random numbers to a style, which scales the weights of its convolutions; each
resolution adds its part to an image that is upsampled from the one below. The discriminator is
penalised for its gradient at real images (R1), so that training differentiates operators twice.

Every few hundred steps, and at the end, `--output` shows samples of the averaged generator: one
column per digit, below a real digit. It prints the training speed of the kernels beside that of the
operators' definitions in PyTorch, `impl="ref"`, which are made to be exact, not fast.

Source of the maths: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (2020).
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from stylegan2_networks import FILTER, Discriminator, Generator
from torch import Tensor
from torch.nn.functional import softplus
from tqdm import tqdm
from train_text import positive

from lltm_jit.ops.stylegan import implementation
from lltm_jit.ops.upfirdn2d import setup_filter, upsample2d

CLASSES = 10  # digits
SAMPLES = 8  # samples of each digit
R1_INTERVAL = 8  # steps; the penalty changes slowly, and costs as much as the rest


class Training:
    """A generator, its discriminator and its average, on real images (N, 1, size, size)."""

    def __init__(self, images: Tensor, digits: Tensor, args: argparse.Namespace):
        self.images, self.digits, self.args = images, digits, args
        device = images.device
        self.generator = Generator(args.size, args.channels, args.latent, CLASSES).to(device)
        self.discriminator = Discriminator(args.size, args.channels, CLASSES).to(device)
        self.average = copy.deepcopy(self.generator).requires_grad_(False)
        self.optimizers = [
            torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.0, 0.99))
            for model in (self.generator, self.discriminator)
        ]
        self.steps = 0

    def step(self) -> tuple[Tensor, Tensor]:
        """Improve both models once; returns the losses of the generator and the discriminator."""
        of_generator, of_discriminator = self.optimizers
        fakes, digits = self.draw()
        self.discriminator.requires_grad_(False)
        generator_loss = softplus(-self.discriminator(fakes, digits)).mean()
        update(of_generator, generator_loss)
        self.discriminator.requires_grad_(True)

        chosen = torch.randint(len(self.images), (self.args.batch_size,), device=digits.device)
        reals, real_digits = self.images[chosen], self.digits[chosen]
        fake_loss = softplus(self.discriminator(fakes.detach(), digits)).mean()
        loss = fake_loss + softplus(-self.discriminator(reals, real_digits)).mean()
        penalty = torch.zeros_like(loss)
        if self.steps % R1_INTERVAL == 0:
            penalty = self.args.gamma / 2 * R1_INTERVAL * self.steepness(reals, real_digits)
        update(of_discriminator, loss + penalty)

        share = 0.5 ** (self.args.batch_size / (1000 * self.args.average))
        for slow, quick in zip(self.average.parameters(), self.generator.parameters(), strict=True):
            slow.lerp_(quick.detach(), 1 - share)
        self.steps += 1
        return generator_loss.detach(), loss.detach()

    def draw(self) -> tuple[Tensor, Tensor]:
        """Images of the generator, and the digits they are to show."""
        digits = torch.randint(CLASSES, (self.args.batch_size,), device=self.images.device)
        z = torch.randn(self.args.batch_size, self.args.latent, device=digits.device)
        return self.generator(z, digits), digits

    def steepness(self, reals: Tensor, digits: Tensor) -> Tensor:
        """R1: the mean squared gradient of the discriminator at real images."""
        reals = reals.detach().requires_grad_()
        logits = self.discriminator(reals, digits)
        (gradient,) = torch.autograd.grad(logits.sum(), reals, create_graph=True)
        return gradient.square().sum((1, 2, 3)).mean()


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def train(training: Training, show: Callable[[], None]) -> None:
    """Train `--steps` steps with a progress bar; `show` is called every `--every` steps."""
    args = training.args
    with tqdm(total=args.steps, desc="training", unit="step") as bar:
        for step in range(1, args.steps + 1):
            losses = training.step()
            if step % 10 == 0:  # reading a loss waits for the GPU: not at every step
                generator, discriminator = (loss.item() for loss in losses)
                text = f"losses: generator {generator:.2f}, discriminator {discriminator:.2f}"
                bar.set_postfix_str(text, refresh=False)
            if step % args.every == 0 or step == args.steps:
                show()
            bar.update()


def images_per_second(training: Training, impl: str, steps: int) -> float:
    """Training speed with one of the implementations; `steps` are timed after one more."""
    with implementation(impl):
        training.step()[0].item()  # waits for the GPU
        began = time.perf_counter()
        for _ in range(steps):
            loss, _ = training.step()
        loss.item()
    return steps * training.args.batch_size / (time.perf_counter() - began)


# ---------------------------------------------------------------------------- images and flags --


def needed(module: str, package: str) -> ModuleType:
    """A module that only this example uses."""
    try:
        return import_module(module)
    except ImportError as error:
        raise SystemExit(f"{error}; this example needs `python -m pip install {package}`") from None


def real_images(size: int, device: str) -> tuple[Tensor, Tensor]:
    """The digits of scikit-learn: images (1797, 1, size, size) from -1 to 1, and what they show."""
    data = needed("sklearn.datasets", "scikit-learn").load_digits()
    images = torch.tensor(data.images, dtype=torch.float, device=device).unsqueeze(1) / 16
    blur = setup_filter(FILTER, device=device)
    while images.size(2) < size:
        images = upsample2d(images, blur)
    return 2 * images - 1, torch.tensor(data.target, device=device)


class Grid:
    """A picture of a real digit in each column, and samples below it; always of the same styles."""

    def __init__(self, training: Training, path: Path):
        self.training, self.path = training, path
        self.imsave = needed("matplotlib.image", "matplotlib").imsave
        device = training.images.device
        self.z = torch.randn(SAMPLES * CLASSES, training.args.latent, device=device)
        self.digits = torch.arange(CLASSES, device=device).repeat(SAMPLES)
        first = [(training.digits == digit).nonzero()[0].item() for digit in range(CLASSES)]
        self.reals = training.images[first]

    @torch.no_grad()
    def save(self) -> None:
        samples = self.training.average(self.z, self.digits)
        images = torch.cat([self.reals, samples]).squeeze(1).unflatten(0, (-1, CLASSES))
        picture = images.transpose(1, 2).flatten(2).flatten(0, 1)  # rows side by side, then stacked
        self.imsave(self.path, picture.cpu().numpy(), cmap="gray", vmin=-1, vmax=1)


def image_size(text: str) -> int:
    size = int(text)
    if size < 8 or size & (size - 1):
        raise argparse.ArgumentTypeError(f"expected a power of two from 8 on, but got {size}")
    return size


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=positive, default=1000, help="updates of each network (%(default)s)")
    add("--batch-size", type=positive, default=16, help="images a step (%(default)s)")
    add("--size", type=image_size, default=32, help="pixels of an image's side (%(default)s)")
    add("--channels", type=positive, default=32, help="half as many at full size (%(default)s)")
    add("--latent", type=positive, default=64, help="random numbers an image (%(default)s)")
    add("--gamma", type=float, default=0.5, help="weight of the R1 penalty (%(default)s)")
    add("--lr", type=float, default=2.5e-3, help="Adam's, for both networks (%(default)s)")
    add(
        "--average",
        type=float,
        default=2.0,
        metavar="K",
        help="thousands of images after which the average has forgotten half (%(default)s)",
    )
    add("--every", type=positive, default=250, help="steps between two grids (%(default)s)")
    add("--output", type=Path, default=Path("stylegan2.png"), help="the grid (%(default)s)")
    add("--timing-steps", type=positive, default=10, help="steps timed (%(default)s)")
    add("--seed", type=int, default=0)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def main() -> None:
    args = make_parser().parse_args()
    torch.manual_seed(args.seed)
    data = real_images(args.size, args.device)
    training = Training(*data, args)
    parameters = sum(parameter.numel() for parameter in training.generator.parameters())
    print(
        f"{len(data[0])} images, {args.size}x{args.size}; {parameters:,} parameters; {args.device}"
    )
    grid = Grid(training, args.output)
    train(training, grid.save)
    print(f"samples: {args.output}")

    fresh = Training(*data, args)
    kernels = images_per_second(fresh, "cuda", args.timing_steps)
    defined = images_per_second(fresh, "ref", args.timing_steps)
    print(
        f"training speed: kernels {kernels:,.0f} images/s, definitions {defined:,.0f} images/s "
        f"({kernels / defined:.2f}x)"
    )


if __name__ == "__main__":
    main()
