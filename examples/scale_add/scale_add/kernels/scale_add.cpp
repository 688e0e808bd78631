// scale_add: checks, formula and derivative. The maths of the kernels is in scale_add.h.
#include "scale_add.h"

#include "core/elementwise/host.h"
#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "scale_add_ops.h"

namespace {

using at::Tensor;
using namespace lltm_jit;

void check(const Tensor& x, const Tensor& y) {
  const Argument x_arg{"scale_add", "x", x}, y_arg{"scale_add", "y", y};
  check_floating_point(x_arg);
  check_same_dtype(y_arg, x_arg);
  check_same_device(y_arg, x_arg);
  check_shape(y_arg, x.sym_sizes(), "x.shape");
}

// On the CPU and on the GPU; on meta tensors the shape alone.
Tensor kernel(const Tensor& x, const Tensor& y, double scale) {
  check(x, y);
  auto [z] = elementwise(ScaleAdd{.scale = scale}, {x, y});
  return z;
}

// 16-bit types are computed in float, and rounded once.
Tensor wide(const Tensor& x) {
  const auto type = x.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? x.to(at::kFloat) : x;
}

// The same in operations of torch, for other devices and for vmap.
Tensor formula(const Tensor& x, const Tensor& y, double scale) {
  check(x, y);
  const NoAutocast guard;
  return (scale * wide(x) + wide(y)).to(x.scalar_type());
}

Tensor autograd(const Tensor& x, const Tensor& y, double scale) {
  if (any_forward_grad(x, y)) return formula(x, y, scale);
  const Tensor z = below_autograd(ops::scale_add, x, y, scale);
  // In operations of torch, so that it can be differentiated again.
  const auto gradients = [scale](const BackwardPass& pass) -> std::vector<Tensor> {
    return {scale * pass.grads[0], pass.grads[0]};
  };
  if (any_requires_grad(x, y)) record({"ScaleAddBackward", gradients}, {x, y}, {z});
  return z;
}

}  // namespace

lltm_jit::Operator<Tensor(const Tensor&, const Tensor&, double)> ops::scale_add{
    .name = "scale_add::scale_add",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};
