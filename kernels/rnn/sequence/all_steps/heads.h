// Products of all steps of heads in 16 bits: the gradients of their weights.
//
// Note [Products of heads]
// Of gates' gradients [rows, gates, heads, units] and states [rows, heads, units] each head's columns are multiplied
// with its own alone. A block has 64 columns of the states, which are several small heads or a part of one, and the
// same 64 of each gate, a warp for each; so each number is read once, unless heads are larger. What is multiplied are
// the blocks of 16 columns that belong to one head. Blocks divide the rows as well, and a kernel adds what they have,
// always in the same order.
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
// Whether the kernel takes these: accesses of 16 bytes, and heads that are not so large that others are quicker.
bool head_product_runs(const HeadProductArgs& args);
cudaError_t head_product_splits(const HeadProductArgs& args, int* splits);
cudaError_t launch_head_product(const HeadProductArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
