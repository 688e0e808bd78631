"""The operator library ``lltm_jit`` of torch's dispatcher.

Schemas are defined here, once a process. The implementations (CPU, CUDA, meta, autograd, autocast,
vmap) stand in ``kernels/<op>/<op>.cpp`` and come and go with the compiled extension.
"""

from __future__ import annotations

import torch

_LIBRARY = torch.library.Library("lltm_jit", "DEF")


def define(*schemas: str) -> None:
    """Define operators by their schemas, such as ``"my_op(Tensor x, Tensor y) -> Tensor"``."""
    for schema in schemas:
        _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
