"""The tests of operators draw the same numbers in every run, so that a failure can be repeated."""

import torch


def pytest_runtest_setup() -> None:
    torch.manual_seed(0)
