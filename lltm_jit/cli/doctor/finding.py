"""What a check of ``doctor`` returns: one finding, with one cure where something is wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What a check found: "ok", "warning" (it builds, but) or "problem" (it does not build)."""

    status: str
    text: str
    cure: str = ""
