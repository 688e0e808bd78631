// unit_rows: y = x / sqrt(sum(x * x) + eps), with the sum along the last dimension.
#pragma once

#include "core/launch/api.h"
#include "core/math/scalar.h"

struct UnitRowsArgs {
  const void* x;  // [rows, columns], contiguous, of `type`
  void* y;        // the same, written
  int64_t rows, columns;
  double eps;
  lltm_jit::ElementType type;
};

// There are rows and columns.
void unit_rows_cpu(const UnitRowsArgs& args);
#ifdef LLTM_JIT_CUDA
cudaError_t launch_unit_rows(const UnitRowsArgs& args, cudaStream_t stream);
#endif
