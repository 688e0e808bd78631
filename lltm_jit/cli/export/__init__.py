"""Commands that export a build to other tools: make, clangd and linkers."""
