"""From a request to a loaded module, and what keeps that module up to date."""
