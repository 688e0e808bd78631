// The product of a step that runs by itself, with the weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "core/launch/device.h"
#include "core/products/library.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/steps/few_rows.h"

namespace lltm_jit {

// rows A, for the same A at each step: by Note [Few rows] (few_rows.h), or by the library. For use inside a KernelGuard.
class StepProduct {
 public:
  // a: the weights, [gates*gate_size, gate_size] with dense rows, or their transpose. tf32: whether the library may
  // round floats.
  StepProduct(const at::Tensor& a, int64_t count, bool tf32)
      : a_(a), transposed_(a.stride(1) == 1), tf32_(tf32) {
    int most_shared_bytes = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&most_shared_bytes,
                                          cudaDevAttrMaxSharedMemoryPerBlockOptin, a.get_device()));
    const int64_t stride = a.stride(transposed_ ? 0 : 1);
    few_ = a.scalar_type() == at::kFloat && count > 1 &&
           few_rows_pay(count, std::min(a.size(0), a.size(1)), tf32) && a.size(0) % 4 == 0 &&
           a.size(1) % 4 == 0 && stride % 4 == 0 &&
           reinterpret_cast<uintptr_t>(a.const_data_ptr()) % 16 == 0 &&
           few_rows_fit(a.size(0), transposed_, most_shared_bytes);
    if (few_) {
      workspace_ = a.new_empty({few_rows_workspace(a.size(1), transposed_)}, at::kByte);
      args_ = {.count = static_cast<int>(count),
               .weights = static_cast<const float*>(a.const_data_ptr()),
               .weights_stride = stride,
               .outputs = a.size(1),
               .depth = a.size(0),
               .transposed = transposed_,
               .workspace = static_cast<float*>(workspace_.mutable_data_ptr())};
    }
  }

  // rows: [count, depth], of dense rows; products: dense.
  void operator()(const at::Tensor& rows, at::Tensor& products, cudaStream_t stream) {
    const bool fit =
        rows.stride(0) % 4 == 0 && reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % 16 == 0;
    if (!few_ || !fit) {
      multiply_by_library(rows, a_, tf32_, products);
      return;
    }
    args_.rows = static_cast<const float*>(rows.const_data_ptr());
    args_.row_stride = rows.stride(0);
    args_.products = static_cast<float*>(products.mutable_data_ptr());
    C10_CUDA_CHECK(launch_few_rows(args_, stream));
  }

 private:
  at::Tensor a_, workspace_;
  bool transposed_, tf32_, few_;
  FewRowsArgs args_{};
};

// Whether the backward pass multiplies each gate's gradients and weights separately, in one batch whose results, in
// floats, the derivative adds up. One product of all gates has few results with many terms each, and leaves SMs idle.
// Within the limits, this was faster on an H100 in half; in bfloat16 it was not.
inline bool multiplies_gates_apart(const SequenceSizes& sizes) {
  const int64_t rows = sizes.batch_size, units = sizes.hidden_size, results = rows * units;
  if (sizes.gates < 3 || sizes.gate_size() % 8 != 0) return false;
  constexpr int64_t kFewestResults = int64_t(1) << 17, kMostResults = int64_t(1) << 19;
  return sizes.type == ElementType::Half && rows > 64 && units >= 512 &&
         results >= kFewestResults && results <= kMostResults;
}

}  // namespace lltm_jit
