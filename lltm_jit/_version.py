"""The version of the package, for every module of it."""

__version__ = "0.1.0"
