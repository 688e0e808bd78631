// Products of all steps of heads in 16 bits: the gradients of their weights.
//
// Note [Products of heads]
// From the gates' gradients [rows, gates, heads, units] and the states [rows, heads, units], each head's columns
// are multiplied only with its own. A block has 64 columns of the states, which are several small heads or a part
// of one, and the same 64 of each gate, one warp per gate. So each number is read once, unless heads are larger.
// Only the blocks of 16 columns that belong to one head are multiplied. Blocks also divide the rows, and a kernel
// adds their sums, always in the same order.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

struct HeadProductArgs {
  const void *grads, *old;                 // rows are these strides apart, and dense
  int64_t rows, grads_stride, old_stride;  // in elements
  int gates, heads, units;
  ElementType type;  // of 16 bits
  int splits;        // how many blocks share the rows: head_product_splits()
  void* results;     // [heads, gates, units, units], dense
  float* sums;       // [splits, heads, gates, units, units], written; null for one split
};

#ifdef LLTM_JIT_CUDA
// Whether the kernel takes these: it needs accesses of 16 bytes, and large heads are faster in other ways.
bool head_product_runs(const HeadProductArgs& args);
cudaError_t head_product_splits(const HeadProductArgs& args, int* splits);
cudaError_t launch_head_product(const HeadProductArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
