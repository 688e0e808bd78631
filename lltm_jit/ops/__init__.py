"""The operators, a package for each family: schema, function and ``torch.nn.Module``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lltm_jit.ops.drop_in import install, uninstall

__all__ = ["install", "uninstall"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from lltm_jit.ops import drop_in  # few programs need it

        return getattr(drop_in, name)
