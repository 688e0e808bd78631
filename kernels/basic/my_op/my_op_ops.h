// The operators of my_op.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/host/operator.h"

namespace lltm_jit::ops {

using at::Tensor;

extern Operator<Tensor(const Tensor& x, const Tensor& y)> my_op;
extern Operator<std::tuple<Tensor, Tensor>(const Tensor& grad)> my_op_backward;

}  // namespace lltm_jit::ops
