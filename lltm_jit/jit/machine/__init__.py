"""What there is to build with: compilers, CUDA, GPUs."""
