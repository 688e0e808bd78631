"""What holds for every operator on a GPU: graphs, streams, several devices."""

import pytest
import torch
from op_testing import captured_in_graph, needs_gpu, on_side_stream, results_and_gradients
from test_every_operator import EVERY
from torch import Tensor


@needs_gpu
@EVERY
def test_cuda_graph_and_side_stream(case):
    inputs = case.inputs("cuda", torch.float, large=True)
    near = case.near("cuda")

    def step() -> tuple[Tensor, ...]:
        return tuple(results_and_gradients(case.results, inputs))

    torch.testing.assert_close(captured_in_graph(step), step(), **near)
    plain = [tensor.detach() for tensor in inputs]
    for i in range(len(plain)):  # each may come late

        def late(*tensors: Tensor, i: int = i) -> tuple[Tensor, ...]:
            return case.results(*tensors[1 : i + 1], tensors[0], *tensors[i + 1 :])

        moved = [plain[i], *plain[:i], *plain[i + 1 :]]
        torch.testing.assert_close(on_side_stream(late, moved), case.results(*plain), **near)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@EVERY
def test_another_device_than_the_current_one(case):
    there = case.inputs("cuda:1", torch.float)
    actual = results_and_gradients(case.results, there)
    assert torch.cuda.current_device() == 0
    here = [tensor.detach().to("cuda:0").requires_grad_() for tensor in there]
    torch.testing.assert_close(
        actual, results_and_gradients(case.results, here), check_device=False
    )
