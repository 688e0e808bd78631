// bias_act on CPU, CUDA and meta tensors: allocation, dense copies, and the launch.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>

#include "core/host/checks.h"
#include "core/launch/device.h"
#include "stylegan/bias_act/operators.h"

namespace lltm_jit {
namespace {

int64_t sum_parts_numel(const BiasActArgs& args, [[maybe_unused]] bool on_cuda) {
#ifdef LLTM_JIT_CUDA
  if (on_cuda) return sum_parts_numel_cuda(args);
#endif
  return sum_parts_numel_cpu(args);
}

// Runs a pass on checked tensors of one shape. Returns, if they are wanted, a tensor in the memory format of
// the first, and its sums for each index of `dim`.
std::tuple<Tensor, Tensor> run_pass(Pass pass, const BiasAct& op, const Tensor& x,
                                    const OptionalTensor& saved, const OptionalTensor& b,
                                    int64_t dim, std::array<bool, 2> wanted) {
  const KernelGuard guard(x);
  const auto format = x.suggest_memory_format();
  const auto& [wants_tensor, wants_sums] = wanted;
  // The CPU's sums read what it wrote.
  const bool writes = wants_tensor || !x.is_cuda();
  Tensor y = writes ? empty(x.sym_sizes(), x, format) : Tensor();
  Tensor sums = wants_sums ? empty({x.sym_size(dim)}, x) : Tensor();
  if (x.is_meta() || x.numel() == 0) {
    if (wants_sums && !x.is_meta()) sums.zero_();
    return {std::move(y), std::move(sums)};
  }
  const Tensor first = x.contiguous(format);
  const Tensor second = saved ? saved->contiguous(format) : Tensor();
  const OptionalTensor values = dense(b);
  BiasActArgs args{
      .pass = pass,
      .type = floating_type(x.scalar_type()),
      .op = op,
      .inputs = {first.const_data_ptr(), (saved ? second : first).const_data_ptr()},
      .output = data_or_null(y),
      .b = data_or_null(values),
      .sums = data_or_null(sums),
      .numel = x.numel(),
      .outer = 1,
      .channels = 1,
      .inner = x.numel(),
  };
  if (b || wants_sums) {
    args.channels = first.size(dim);
    args.inner =
        args.channels > 1 ? first.stride(dim) : 1;  // the stride of a single channel says nothing
    args.outer = args.numel / (args.channels * args.inner);
  }
  Tensor parts;
  if (wants_sums) {
    const auto accumulated = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    parts = empty({sum_parts_numel(args, x.is_cuda())}, x, accumulated);
    args.parts = parts.mutable_data_ptr();
  }
  LLTM_JIT_RUN(x, args, bias_act_cpu, launch_bias_act);
  return {std::move(y), std::move(sums)};
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The largest float that rounds to less than `clamp`, a positive number of a 16-bit type.
template <typename Short>
double most_below(double clamp) {
  const Short limit(static_cast<float>(clamp));
  const Short next(static_cast<decltype(Short::x)>(limit.x - 1), Short::from_bits());
  // Rounding treats infinity as the number after the largest.
  const double after = std::isinf(clamp) ? 2 * std::ldexp(1.0, std::ilogb(float(next))) : clamp;
  const auto halfway = static_cast<float>((double(float(next)) + after) / 2);
  const bool to_limit = limit.x % 2 == 0;  // a tie rounds to the even number
  return to_limit ? std::nextafter(halfway, 0.0f) : halfway;
}

// See Note [The clamp's mask].
double most_unclamped(double clamp, at::ScalarType dtype) {
  if (clamp == 0) return -1;
  switch (dtype) {
    case at::kHalf:
      return most_below<c10::Half>(clamp);
    case at::kBFloat16:
      return most_below<c10::BFloat16>(clamp);
    case at::kFloat:
      return std::nextafter(static_cast<float>(clamp), 0.0f);
    default:
      return std::nextafter(clamp, 0.0);
  }
}

BiasAct numbers(const BiasActKind& kind, const Tensor& x) {
  const auto dtype = x.scalar_type();
  const Clamp clamp = rounded_clamp(kind, dtype);
  return {kind.activation(), kind.alpha, kind.gain, clamp.value_or(kInfinity),
          clamp ? most_unclamped(*clamp, dtype) : kInfinity};
}

}  // namespace

Tensor bias_act_kernel(const BiasActInputs& in) {
  check_bias_act(in);
  const int64_t dim = in.b ? bias_dim(in.kind, in.x) : 0;
  return std::get<0>(run_pass(Pass::Forward, numbers(in.kind, in.x), in.x, std::nullopt, in.b, dim,
                              {true, false}));
}

BiasActGradients backward_kernel(const BiasActBackwardInputs& in) {
  check_backward(in);
  const int64_t dim = in.b || in.output_mask[1] ? bias_dim(in.kind, in.grad) : 0;
  auto [grad_x, grad_b] = run_pass(Pass::Backward, numbers(in.kind, in.grad), in.grad, in.saved,
                                   in.b, dim, in.output_mask);
  return {in.output_mask[0] ? grad_x : Tensor(), grad_b};
}

}  // namespace lltm_jit
