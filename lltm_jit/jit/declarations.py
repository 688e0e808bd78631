"""The kernels that C++ may request as variants, by name.

What each of them is, ``variants.py`` asks when it is requested: most programs request none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

kernels: dict[str, Callable[[], Any]] = {}  # each gives its Variant
