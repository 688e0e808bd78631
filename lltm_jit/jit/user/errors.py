"""Exceptions of the build engine; all of them are :class:`LltmJitError`.

Those that can stop an ``import`` are also ``ImportError``, so that ``try: import ... except
ImportError`` treats a failed build like a missing package. They are also ``RuntimeError``, which is
what torch raises for a failed build.
"""

from __future__ import annotations

import traceback


class LltmJitError(RuntimeError):
    """The base class of all errors of the build engine."""

    _shown = False

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the text alone, and then the whole traceback for ``%tb``."""
        if self._shown:
            return "".join(traceback.format_exception(self)).splitlines()
        self._shown = True
        return str(self).splitlines()


class BuildError(LltmJitError, ImportError):
    """The sources do not compile, link or load; the text is the first error."""


class ToolchainError(LltmJitError, ImportError):
    """A tool that the build needs is missing on this machine, or a setting is invalid."""


class CacheError(LltmJitError, ImportError):
    """The directory for builds cannot be used: it is unwritable, full, or open to other users."""


class SourceMissing(LltmJitError, FileNotFoundError):
    """A source is not there; the text says which."""


class SourceEdited(Exception):
    """A file changed during the build, which then matches neither version; build again."""
