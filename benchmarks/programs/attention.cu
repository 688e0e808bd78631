// Attention of one head, a row of queries to a block, with the running maximum of its scores.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

constexpr float EDIT = 1;

template <int SIZE>
__global__ void attention_kernel(const float* q, const float* k, const float* v, float* out,
                                 int rows, float scale) {
  __shared__ float query[SIZE], partial[SIZE];
  int row = blockIdx.x, at = threadIdx.x;
  query[at] = q[row * SIZE + at] * scale;
  float most = -INFINITY, sum = 0, result = 0;
  for (int other = 0; other < rows; ++other) {
    partial[at] = query[at] * k[other * SIZE + at];
    __syncthreads();
    for (int half = SIZE / 2; half > 0; half /= 2) {
      if (at < half) partial[at] += partial[at + half];
      __syncthreads();
    }
    float score = partial[0], now = fmaxf(most, score), before = expf(most - now),
          weight = expf(score - now);
    result = result * before + weight * v[other * SIZE + at];
    sum = sum * before + weight;
    most = now;
    __syncthreads();
  }
  out[row * SIZE + at] = EDIT * result / sum;
}

torch::Tensor run(torch::Tensor q, torch::Tensor k) {
  const at::cuda::OptionalCUDAGuard guard(device_of(q));
  TORCH_CHECK(q.size(1) == 64, "expected 64 features, but got ", q.size(1));
  auto out = torch::zeros_like(q);
  auto stream = at::cuda::getCurrentCUDAStream();
  attention_kernel<64><<<q.size(0), 64, 0, stream>>>(q.data_ptr<float>(), k.data_ptr<float>(),
                                                     k.data_ptr<float>(), out.data_ptr<float>(),
                                                     k.size(0), 1.0f / sqrtf(64));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
