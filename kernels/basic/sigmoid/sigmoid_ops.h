// The operators of sigmoid.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/host/operator.h"

namespace lltm_jit::ops {

using at::Tensor;

extern Operator<Tensor(const Tensor& x)> sigmoid;
extern Operator<Tensor(const Tensor& grad, const Tensor& s)> sigmoid_backward;
extern Composite<Tensor(const Tensor& z)> d_sigmoid;

}  // namespace lltm_jit::ops
