// unit_rows: checks, formula and derivative, and the Python module. torch's heavy headers are here alone.
#include "unit_rows.h"

#include "core/host/autograd.h"
#include "core/host/checks.h"
#include "core/host/formula.h"
#include "core/host/module.h"
#include "core/launch/device.h"

namespace {

using at::Tensor;
using namespace lltm_jit;

void check(const Tensor& x) {
  check_floating_point({"unit_rows", "x", x});
  TORCH_CHECK(x.dim() > 0, "unit_rows(): expected x to have rows, but got a single number");
}

// On the CPU and on the GPU; on meta tensors the shape alone.
Tensor kernel(const Tensor& x, double eps) {
  check(x);
  const KernelGuard guard(x);
  const Tensor y = empty(x.sym_sizes(), x);
  if (x.is_meta() || x.numel() == 0) return y;
  const Tensor dense = x.contiguous();
  const int64_t columns = x.size(-1);
  const UnitRowsArgs args{.x = dense.const_data_ptr(),
                          .y = y.mutable_data_ptr(),
                          .rows = x.numel() / columns,
                          .columns = columns,
                          .eps = eps,
                          .type = floating_type(x.scalar_type())};
  LLTM_JIT_RUN(dense, args, unit_rows_cpu, launch_unit_rows);
  return y;
}

Tensor row_sum(const Tensor& x) { return x.sum(-1, /*keepdim=*/true); }
Tensor factor(const Tensor& x, double eps) { return (row_sum(x * x) + eps).rsqrt(); }

// 16-bit types are computed in float, and rounded once: in half a sum of squares soon exceeds 65504.
Tensor wide(const Tensor& x) {
  const auto type = x.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? x.to(at::kFloat) : x;
}

// The same in operations of torch, for other devices and for vmap.
Tensor formula(const Tensor& x, double eps) {
  check(x);
  const NoAutocast guard;
  return (factor(wide(x), eps) * wide(x)).to(x.scalar_type());
}

Tensor autograd(const Tensor& x, double eps);

}  // namespace

namespace ops {
lltm_jit::Operator<Tensor(const Tensor& x, double eps)> unit_rows{
    .name = "unit_rows::unit_rows",
    .kernel = kernel,
    .formula = formula,
    .autograd = autograd,
};
}  // namespace ops

namespace {

Tensor autograd(const Tensor& x, double eps) {
  if (any_forward_grad(x)) return formula(x, eps);
  const Tensor y = below_autograd(ops::unit_rows, x, eps);
  // In operations of torch, so that it can be differentiated again.
  const auto gradients = [eps](const BackwardPass& pass) -> std::vector<Tensor> {
    const NoAutocast guard;
    const Tensor grad = wide(pass.grads[0]), x = wide(pass.saved[0]);
    const Tensor scale = factor(x, eps), y = scale * x;
    return {(scale * (grad - y * row_sum(grad * y))).to(pass.saved[0].scalar_type())};
  };
  if (any_requires_grad(x)) record({"UnitRowsBackward", gradients}, {x}, {y}, /*saved=*/{x});
  return y;
}

}  // namespace

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
  lltm_jit::Module module(m, "unit_rows");
  module.add<ops::unit_rows>();
}
