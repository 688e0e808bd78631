__global__ void k(float* x) {
  __shared__ float s[20000];
  s[threadIdx.x] = x[0];
  __syncthreads();
  x[0] = s[threadIdx.x ^ 1];
}
