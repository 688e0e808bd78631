"""Rows of a batch that must not depend on each other."""

import math
from collections.abc import Callable, Sequence

import torch
from op_testing import bits
from torch import Tensor

# In a 16-bit type, where the last two are no different from infinity, they are what it has.
POISONS = {"NaN": math.nan, "infinity": math.inf, "large": 1e30, "quite large": 1e9}


def assert_rows_independent(
    run: Callable[..., Sequence[Tensor]], given: Sequence[Tensor], dims: int | Sequence[int] = 0
) -> None:
    """Check that what some rows contain changes no bit of the others' results.

    Some rows are set to NaN, to infinity and to large numbers: of one tensor, and of all.

    Args:
        run: gets the tensors, and gives its results. Each has its rows along the dimension along
            which a tensor of the same rank has them.
        given: the tensors.
        dims: the dimension of the rows in each tensor, or in all of them.
    """
    dims = [dims] * len(given) if isinstance(dims, int) else list(dims)
    of_rank = {tensor.dim(): dim for tensor, dim in zip(given, dims, strict=True)}
    rows = given[0].size(dims[0])
    assert rows > 1, "a single row has no others"
    right = run(*given)

    def kept(results: Sequence[Tensor], rows: Tensor) -> list[bytes]:
        return bits([r.index_select(of_rank[r.dim()], rows.to(r.device)) for r in results])

    for name, value in POISONS.items():
        for some in [*([i] for i in range(len(given))), range(len(given))]:
            order = torch.randperm(rows)
            hit, others = order.split([max(1, rows // 3), rows - max(1, rows // 3)])
            changed = list(given)
            for i in some:
                limit = torch.finfo(given[i].dtype).max
                number = value if not math.isfinite(value) else min(value, limit)
                changed[i] = given[i].index_fill(dims[i], hit.to(given[i].device), number)
            message = f"{name} in rows {sorted(hit.tolist())} of tensors {list(some)}"
            assert kept(run(*changed), others) == kept(right, others), message
