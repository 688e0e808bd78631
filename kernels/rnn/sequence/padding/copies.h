// Copies between arrays whose rows have different sizes, several in one launch.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

// A copy that writes the whole target; elements that the source lacks become zero.
struct RowCopy {
  const void* source;  // or null for zeros
  const void* addend;  // added to the source, with its layout; or null
  void* target;
  int64_t parts, rows, columns;                                         // of the target
  int64_t source_rows, source_columns;                                  // of each part
  int64_t source_part_stride, source_row_stride, source_column_stride;  // in elements
  int64_t part_stride, row_stride;                                      // of the target
};

// Several copies, at most as many as a layer needs in both directions.
struct RowCopies {
  static constexpr int kMost = 9;

  RowCopy copies[kMost];
  int count;
  ElementType type;  // Half, BFloat16 or Float
};

#ifdef LLTM_JIT_CUDA
cudaError_t launch_row_copies(const RowCopies& copies, cudaStream_t stream);
#endif

}  // namespace lltm_jit
