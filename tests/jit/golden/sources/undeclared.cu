__global__ void k(float* x, int hidden_size) {
  const int n = hidden_sise * 2;
	x[0] = undefined_call(n);
}
