// The operator scale_add.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/host/operator.h"

namespace ops {

using at::Tensor;

extern lltm_jit::Operator<Tensor(const Tensor& x, const Tensor& y, double scale)> scale_add;

}  // namespace ops
