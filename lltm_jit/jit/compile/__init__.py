"""One build: ninja or NVRTC compiles, and every file that the tools read is recorded."""
