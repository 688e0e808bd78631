// The sums of each SIZE numbers. SIZE and ELEMENT are constants of a variant.
#include "sums_of.h"

__global__ void sums_kernel(const ELEMENT* x, ELEMENT* y, long count) {
  const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = sum_of(x + i * SIZE);
}

extern "C" int sums(const ELEMENT* x, ELEMENT* y, long count, cudaStream_t stream) {
  sums_kernel<<<(count + 127) / 128, 128, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}
