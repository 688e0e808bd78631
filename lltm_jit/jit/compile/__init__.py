"""One build: a worker compiles, and what its tools read is recorded."""
