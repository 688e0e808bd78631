// Products over all steps with several heads, in 16 bits: the gradients of the heads' weights.
//
// Note [Products of heads]
// The factors are the gates' gradients [rows, gates, heads, units] and the states [rows, heads, units]. Each
// head's columns of one are multiplied only with its own columns of the other. A block has 64 columns of the
// states, which are several small heads or a part of a large one, and the same 64 of each gate, one warp per
// gate. So each number is read once, unless heads are larger. Only the blocks of 16 columns that belong to one
// head are multiplied. Blocks also divide the rows, and a kernel adds their sums, always in the same order.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

struct HeadProductArgs {
  const void *grads, *old;                 // rows are dense, at these strides
  int64_t rows, grads_stride, old_stride;  // in elements
  int gates, heads, units;
  ElementType type;  // of 16 bits
  int splits;        // number of blocks that share the rows: head_product_splits()
  void* results;     // [heads, gates, units, units], dense
  float* sums;       // [splits, heads, gates, units, units], written; null for one split
};

#ifdef LLTM_JIT_CUDA
// Whether the kernel supports these arguments: accesses need 16 bytes, and other ways are faster for large heads.
bool head_product_runs(const HeadProductArgs& args);
cudaError_t head_product_splits(const HeadProductArgs& args, int* splits);
cudaError_t launch_head_product(const HeadProductArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
