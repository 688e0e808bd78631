// limit * tanh(x / limit), and its derivative, elementwise. There is nothing of torch here.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// What an element is computed in.
template <typename T>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};

template <typename T>
__global__ void soft_clip(const T* x, T* y, long n, double limit) {
  using F = typename Compute<T>::type;
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = T(F(limit) * tanh(F(x[i]) / F(limit)));
}

// The derivative is 1 - tanh(x / limit)^2.
template <typename T>
__global__ void soft_clip_backward(const T* gradient, const T* x, T* result, long n, double limit) {
  using F = typename Compute<T>::type;
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const F t = tanh(F(x[i]) / F(limit));
  result[i] = T(F(gradient[i]) * (1 - t * t));
}
