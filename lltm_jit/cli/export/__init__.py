"""Commands that give a build to other tools: to make, clangd and linkers."""
