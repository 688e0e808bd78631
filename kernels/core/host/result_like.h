// A formula's results as its kernel makes them.
#pragma once

#include <ATen/core/Tensor.h>

namespace lltm_jit {

// `result`, dense in the memory format of `input`, and no view of it: what a caller does to the one in
// place must not change the other. By permutations, for vmap refuses other formats.
inline at::Tensor result_like(const at::Tensor& input, const at::Tensor& result) {
  if (result.is_same(input)) return result_like(input, result.clone());
  switch (input.suggest_memory_format()) {
    case at::MemoryFormat::ChannelsLast:
      return result.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
    case at::MemoryFormat::ChannelsLast3d:
      return result.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
    default:
      return result.contiguous();
  }
}

}  // namespace lltm_jit
