// y = gelu(x) * scale + bias
#include <cuda_runtime.h>
#include <torch/extension.h>

constexpr float EDIT = 1;

__global__ void gelu_kernel(const float* x, const float* bias, float* y, float scale, int columns,
                            int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) {
    float v = x[i];
    float gelu = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    y[i] = EDIT * gelu * scale + bias[i % columns];
  }
}

torch::Tensor run(torch::Tensor x, torch::Tensor bias) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  auto y = torch::empty_like(x);
  int size = x.numel();
  gelu_kernel<<<(size + 255) / 256, 256>>>(x.data_ptr<float>(), bias.data_ptr<float>(),
                                           y.data_ptr<float>(), 0.5f, x.size(-1), size);
  return y;
}
