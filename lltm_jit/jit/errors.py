"""Exceptions of the build engine; all of them are :class:`LltmJitError`.

Those that can stop an ``import`` are also ``ImportError``, so that ``try: import ... except
ImportError`` treats a failed build like a package that is not there. torch raises ``RuntimeError``
for a failed build, and so does the engine.
"""

from __future__ import annotations


class LltmJitError(RuntimeError):
    """Base class of every error that the engine raises on purpose."""


class BuildError(LltmJitError, ImportError):
    """The compiler, the linker or the loader refused the sources."""


class ToolchainError(LltmJitError, ImportError):
    """Something needed for a build is missing on this machine, or a setting cannot be used."""


class CacheError(LltmJitError, ImportError):
    """The directory for builds cannot be used: unwritable, full, or open to other users."""


class SourceEdited(Exception):
    """A file changed while it was compiled, so that the build is of neither content; try again."""
