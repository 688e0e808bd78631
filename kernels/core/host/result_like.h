// Gives a formula's results the layout of the kernel's.
#pragma once

#include <ATen/core/Tensor.h>

namespace lltm_jit {

// Copies `result` to the memory format of `input`, and never returns a view of `input`: changing
// one in place must not change the other. It permutes, because vmap refuses other memory formats.
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
