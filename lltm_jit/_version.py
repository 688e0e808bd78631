"""The version of the package, for all of its modules."""

__version__ = "0.1.0"
