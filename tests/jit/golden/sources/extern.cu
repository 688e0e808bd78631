extern __device__ float elsewhere(float);
__global__ void k(float* x) { x[0] = elsewhere(x[0]); }
