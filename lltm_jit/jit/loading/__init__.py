"""Loads the module of a request, and keeps the module up to date."""
