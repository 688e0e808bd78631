"""Derivatives of every operator, of all orders and ways, against those of its reference."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from op_testing import (
    NoGradient,
    bits,
    differentiated_twice,
    results_and_gradients,
    subsets,
)
from test_every_operator import batches
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, jvp, linearize, vjp, vmap

FUNCTIONS = ["results", "expected"]


def loss_of(results: tuple[Tensor, ...]) -> Tensor:
    """Not linear in any result."""
    return sum(r.pow(3).sum() + r.sin().sum() for r in results)


def penalty_of(gradients: Sequence[Tensor]) -> Tensor:
    return sum(gradient.square().sum() for gradient in gradients)


def test_gradients_of_every_subset_of_inputs(case, path):
    """Of the first two orders, and of the third where all are wanted."""
    if path == "cuda":  # what is not written is then seen
        torch.full((1_000_000,), float("nan"), dtype=torch.double, device=path)
    drawn = case.inputs(path)
    for required in subsets(len(drawn)):
        found = []
        for name in FUNCTIONS:
            given = [t.detach().requires_grad_(r) for t, r in zip(drawn, required, strict=True)]
            leaves = [tensor for tensor in given if tensor.requires_grad]
            loss, orders = loss_of(getattr(case, name)(*given)), []
            for _ in range(3 if all(required) else 2):
                orders.append(torch.autograd.grad(loss, leaves, create_graph=True))
                loss = penalty_of(orders[-1])
            found.append(orders)
        torch.testing.assert_close(*found)


def test_first_derivatives(case, path):
    """By vjp, jvp, linearize, jacrev and jacfwd."""

    def derivatives(name: str) -> list[Tensor]:
        function = getattr(case, name)
        outputs, pull_back = vjp(function, *inputs)
        forward = jvp(function, inputs, along)[1]
        # The reference has no rules of ours, and takes long to be traced.
        linear = linearize(function, *inputs)[1](*along) if name == "results" else forward
        return [
            *outputs,
            *pull_back(tuple(output.cos() for output in outputs)),
            *forward,
            *linear,
            *(t for row in jacrev(function, every)(*inputs) for t in row),
            *(t for row in jacfwd(function, every)(*inputs) for t in row),
        ]

    inputs = tuple(case.inputs(path, requires_grad=False))
    along, every = tuple(torch.randn_like(t) for t in inputs), tuple(range(len(inputs)))
    torch.testing.assert_close(*map(derivatives, FUNCTIONS))


def test_derivatives_of_derivatives(case, device):
    """Levels of torch.func inside each other, with a loss that is not linear in the results."""
    inputs = case.inputs(device, requires_grad=False)
    for position in range(min(2, len(inputs))):

        def loss(name: str, position: int = position) -> Callable[[Tensor], Tensor]:
            function = getattr(case, name)
            before, after = inputs[:position], inputs[position + 1 :]
            return lambda tensor: loss_of(function(*before, tensor, *after))

        ours, theirs = (differentiated_twice(loss(name)) for name in FUNCTIONS)
        for actual, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(actual(inputs[position]), expected(inputs[position]))


def test_results_that_nobody_uses(case, device):
    """By the derivative's own node, and where another node gives it no gradient."""
    inputs = case.inputs(device)

    def derivatives(name: str, used: tuple[bool, ...], others: Callable) -> list[Tensor]:
        results = getattr(case, name)(*inputs)
        kept = tuple(r if u else others(r) for r, u in zip(results, used, strict=True))
        options = {"create_graph": True, "materialize_grads": True}
        first = torch.autograd.grad(loss_of(kept), inputs, **options)
        return [*first, *torch.autograd.grad(penalty_of(first), inputs)]

    for used in subsets(len(case.results(*inputs))):
        expected = derivatives("expected", used, Tensor.detach)
        for others in (Tensor.detach, NoGradient.apply):
            torch.testing.assert_close(derivatives("results", used, others), expected)


def test_views_of_one_tensor(case, device):
    """As several inputs: their gradients add up, of both orders."""
    shapes = [tensor.shape for tensor in case.inputs(device)]
    whole = torch.randn(max(s.numel() for s in shapes), dtype=torch.double, device=device)
    whole.requires_grad_()
    found = []
    for name in FUNCTIONS:
        views = [whole[: shape.numel()].view(shape) for shape in shapes]
        first = torch.autograd.grad(loss_of(getattr(case, name)(*views)), whole, create_graph=True)
        found.append([*first, *torch.autograd.grad(penalty_of(first), whole)])
    torch.testing.assert_close(*found)


def test_gradients_of_each_sample(case, device):
    """By vmap of grad: of each input, with the others shared and with others of its own."""
    inputs = case.inputs(device, requires_grad=False)
    gradients = grad(lambda *t: loss_of(case.results(*t)), tuple(range(len(inputs))))
    for args, in_dims, rows in batches(inputs):
        found = vmap(gradients, in_dims)(*args)
        for k, row in enumerate(rows):
            torch.testing.assert_close(tuple(each[k] for each in found), gradients(*row))


def test_no_graph_without_need(case, device):
    inputs = case.inputs(device)
    expected = case.results(*inputs)
    with torch.no_grad():
        plain = case.results(*inputs)
    with torch.inference_mode():
        inferred = case.results(*inputs)
    assert {result.requires_grad for result in expected} == {True}
    assert {result.requires_grad for result in (*plain, *inferred)} == {False}
    assert all(result.is_inference() for result in inferred)
    assert bits(plain) == bits(expected) == bits(inferred)


def test_gradients_add_up_while_the_graph_is_kept(case, device):
    inputs = case.inputs(device)
    loss = loss_of(case.results(*inputs))
    expected = list(torch.autograd.grad(loss, inputs, retain_graph=True))
    loss.backward(retain_graph=True)
    torch.testing.assert_close([tensor.grad for tensor in inputs], expected)
    loss.backward()
    torch.testing.assert_close([tensor.grad for tensor in inputs], [2 * e for e in expected])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_several_threads_get_the_bits_of_one(case, device):
    drawn = [case.inputs(device, torch.float, large=i == 1) for i in range(4)]
    if not case.exact_on_gpus and device == "cuda":
        return

    def run(inputs: list[Tensor]) -> list[bytes]:
        return bits(results_and_gradients(case.results, inputs))

    expected = [run(inputs) for inputs in drawn]
    with ThreadPoolExecutor(len(drawn)) as pool:
        assert list(pool.map(run, 5 * drawn)) == 5 * expected


def test_a_change_in_place_is_noticed_or_does_no_harm(case, device):
    """Of an input or a result: it is noticed where that is saved; other results may be changed."""
    inputs, saved = case.inputs(device), []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        tensors = [*inputs, *case.results(*inputs)]
    places = [tensor.data_ptr() for tensor in saved]
    for position, tensor in enumerate(tensors):
        inputs, result = case.inputs(device), position - len(inputs)
        found, others = ([*case.results(*inputs)] for _ in range(2))
        if tensor.data_ptr() in places:
            with torch.no_grad():
                [*inputs, *found][position].add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss_of(found).backward()
        elif result >= 0:
            found[result][:1].mul_(2)
            others[result] = torch.cat([2 * others[result][:1], others[result][1:]])
            gradients = [torch.autograd.grad(loss_of(each), inputs) for each in (found, others)]
            torch.testing.assert_close(*gradients)
