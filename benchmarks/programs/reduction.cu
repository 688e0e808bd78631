// The sum of all numbers: each block sums a part, and torch sums the parts.
#include <cuda.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <vector>

constexpr float EDIT = 1;

#define CHECK_INPUT(x) \
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat32, #x " must be float32")

__global__ void sum_kernel(const float* __restrict__ x, float* __restrict__ sums, int size) {
  extern __shared__ float shared[];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
    sum += x[i];
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = EDIT * shared[0];
}

torch::Tensor run(torch::Tensor x, torch::Tensor) {
  CHECK_INPUT(x);
  const int blocks = 128, threads = 256;
  auto options = torch::TensorOptions().dtype(torch::kFloat32).device(x.device());
  auto sums = torch::empty({blocks}, options);
  sum_kernel<<<blocks, threads, threads * sizeof(float)>>>(x.data_ptr<float>(),
                                                           sums.data_ptr<float>(), x.numel());
  return torch::sum(sums);
}
