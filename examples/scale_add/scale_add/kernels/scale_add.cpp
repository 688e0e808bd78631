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

void check(const Tensor& x, const Tensor& y, const Tensor& scale) {
  const Argument x_arg{"scale_add", "x", x};
  check_floating_point(x_arg);
  for (const Argument& arg :
       {Argument{"scale_add", "y", y}, Argument{"scale_add", "scale", scale}}) {
    check_same_dtype(arg, x_arg);
    check_same_device(arg, x_arg);
    check_shape(arg, x.sym_sizes(), "x.shape");
  }
}

// On the CPU and on the GPU; on meta tensors the shape alone.
Tensor kernel(const Tensor& x, const Tensor& y, const Tensor& scale) {
  check(x, y, scale);
  auto [z] = elementwise<ScaleAdd>({x, y, scale});
  return z;
}

// The same in operations of torch, for other devices and for vmap.
Tensor formula(const Tensor& x, const Tensor& y, const Tensor& scale) {
  check(x, y, scale);
  return scale * x + y;
}

// In operations of torch, so that it can be differentiated again.
std::vector<Tensor> gradients(const BackwardPass& pass) {
  const Tensor &grad = pass.grads[0], &x = pass.saved[0], &scale = pass.saved[1];
  return {grad * scale, grad, grad * x};
}

Tensor autograd(const Tensor& x, const Tensor& y, const Tensor& scale) {
  if (any_forward_grad(x, y, scale)) return formula(x, y, scale);
  const Tensor z = below_autograd(ops::scale_add, x, y, scale);
  if (any_requires_grad(x, y, scale)) {
    record({"ScaleAddBackward", gradients}, {x, y, scale}, {z}, {x, scale});
  }
  return z;
}

}  // namespace

lltm_jit::Operator<Tensor(const Tensor&, const Tensor&, const Tensor&)> ops::scale_add{
    .name = "scale_add::scale_add",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};
