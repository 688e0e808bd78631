// filtered_lrelu on CPU and CUDA, and its results' shapes on meta tensors: allocation, and the
// choice of a kernel.
#include "stylegan/filtered_lrelu/kernels.h"

#include <limits>

#include "core/host/checks.h"
#include "core/launch/device.h"
#include "stylegan/filtered_lrelu/operators.h"
#include "stylegan/filtered_lrelu/plan.h"

namespace lltm_jit {
namespace {

// The kernels' sizes are int. Samples and paddings stay far below the size at which sums of them,
// or sixteen rows, would overflow.
constexpr int64_t kMostSize = int64_t(1) << 27;

FirFilter fir_filter(const Tensor& taps, bool flip) {
  if (!taps.defined()) return {nullptr, 1, 0, flip};
  const bool separable = taps.dim() == 1;
  return {taps.const_data_ptr<float>(), static_cast<int>(taps.size(-1)),
          separable ? 0 : static_cast<int>(taps.size(0)), flip};
}

int as_int(const c10::SymInt& size) {
  const int64_t value = size.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(value >= -kMostSize && value <= kMostSize,
              "filtered_lrelu(): expected sizes and paddings of at most ", kMostSize, ", but got ",
              value);
  return static_cast<int>(value);
}

// A call's arguments, and the tensors that they point to.
struct Call {
  Tensor x, b, fu, fd, signs;
  Tensor sums;  // of the channels, if the kernel computes them
  FilteredLreluArgs args;

  template <typename Inputs>
  Call(const Inputs& in, const FlrSizes& sizes, const Tensor& y, const OptionalTensor& bias,
       std::optional<double> clamp)
      : x(in.x), fu(float_taps(in.fu)), fd(float_taps(in.fd)) {
    if (bias) b = bias->contiguous();
    args = {
        .x = x.const_data_ptr(),
        .x_strides = {x.stride(0), x.stride(1), x.stride(2), x.stride(3)},
        .bias = b.defined() ? b.const_data_ptr() : nullptr,
        .y = y.mutable_data_ptr(),
        .fu = fir_filter(fu, in.flip_filter),
        .fd = fir_filter(fd, in.flip_filter),
        .batch = x.size(0),
        .channels = x.size(1),
        .in_h = as_int(x.sym_size(2)),
        .in_w = as_int(x.sym_size(3)),
        .out_h = as_int(sizes.out_h),
        .out_w = as_int(sizes.out_w),
        .up = as_int(in.up),
        .down = as_int(in.down),
        .pad_x = as_int(in.padding[0]),
        .pad_y = as_int(in.padding[2]),
        .mid_h = as_int(sizes.mid_h),
        .mid_w = as_int(sizes.mid_w),
        .gain = in.gain * static_cast<double>(in.up * in.up),
        .slope = in.slope,
        .clamp = clamp.value_or(std::numeric_limits<double>::infinity()),
        .mode = Signs::None,
        .type = floating_type(x.scalar_type()),
    };
  }

  void with_signs(const Tensor& signs_, Signs mode, c10::SymIntArrayRef size,
                  c10::SymIntArrayRef offset, at::IntArrayRef phase) {
    signs = signs_;
    args.signs = static_cast<uint32_t*>(signs.data_ptr());
    args.mode = mode;
    args.sign_h = as_int(size[0]);
    args.sign_w = as_int(size[1]);
    args.sign_y = as_int(offset[0]);
    args.sign_x = as_int(offset[1]);
    args.sign_phase_y = static_cast<int>(phase[0]);
    args.sign_phase_x = static_cast<int>(phase[1]);
  }
};

#ifdef LLTM_JIT_CUDA
// False if no compiler is found for the kernel, or if it needs more shared memory than this chip
// gives a block.
bool run_on_tensor_cores(Call& call, const FlrPlan& plan, bool with_sums) {
  const void* kernel = flr_variant(call.args, plan.variant);
  if (kernel == nullptr) return false;
  FilteredLreluArgs args = call.args;
  Tensor of_parts;
  if (with_sums && plan.parts > 0) {
    of_parts = empty({args.channels, args.batch * plan.parts}, call.x, at::kFloat);
    args.plane_sums = of_parts.mutable_data_ptr<float>();
  }
  const cudaError_t error =
      launch_walks(kernel, plan.variant, args, c10::cuda::getCurrentCUDAStream());
  if (error == cudaErrorNotSupported) return false;
  C10_CUDA_CHECK(error);
  if (of_parts.defined()) call.sums = of_parts.sum(1).to(call.x.scalar_type());
  return true;
}

bool run_on_gpu(Call& call, bool with_sums) {
  FlrGpu gpu;
  C10_CUDA_CHECK(flr_describe_gpu(&gpu));
  FlrPlan plan = flr_plan(call.args, gpu);
  if (plan.kernel == FlrKernel::TensorCores) {
    if (run_on_tensor_cores(call, plan, with_sums)) return true;
    gpu.architecture = 0;
    plan = flr_plan(call.args, gpu);
  }
  if (plan.kernel == FlrKernel::Formula) return false;
  if (call.args.mode == Signs::Write) call.signs.zero_();
  C10_CUDA_CHECK(launch_filtered_lrelu({call.args, plan.tile}, c10::cuda::getCurrentCUDAStream()));
  return true;
}
#endif

// Runs the call, or returns false if only the formula supports it.
bool run(Call& call, bool with_sums = false) {
#ifdef LLTM_JIT_CUDA
  if (call.x.is_cuda()) return run_on_gpu(call, with_sums);
#endif
  if (call.args.mode == Signs::Write) call.signs.zero_();
  filtered_lrelu_cpu(call.args);
  return true;
}

Tensor new_result(const Tensor& x, const FlrSizes& sizes) {
  return empty({x.sym_size(0), x.sym_size(1), sizes.out_h, sizes.out_w}, x);
}
bool nothing_to_do(const Tensor& y) { return y.is_meta() || y.numel() == 0; }

}  // namespace

std::tuple<Tensor, Tensor> filtered_lrelu_forward_kernel(const FlrForwardInputs& forward) {
  const auto& [in, phase] = forward;
  const FlrSizes sizes = check_filtered_lrelu(in);
  const KernelGuard guard(in.x);
  const Tensor y = new_result(in.x, sizes);
  const c10::SymInt size[] = {sizes.mid_h, sizes.mid_w}, origin[] = {0, 0};
  Tensor signs;
  if (phase) {
    const auto words = sign_map(size, *phase).words_per_plane();
    signs = empty({in.x.sym_size(0), in.x.sym_size(1), words}, in.x, at::kInt);
  }
  if (nothing_to_do(y)) return {y, signs};
  Call call(in, sizes, y, in.b, in.clamp);
  if (phase) call.with_signs(signs, Signs::Write, size, origin, *phase);
  return run(call) ? std::tuple(y, signs) : filtered_lrelu_forward_formula(forward);
}

std::tuple<Tensor, Tensor> filtered_lrelu_linear_kernel(const FlrLinearInputs& in) {
  const FlrSizes sizes = check_filtered_lrelu_linear(in);
  const KernelGuard guard(in.x);
  const Tensor y = new_result(in.x, sizes);
  Tensor sums;
  if (!nothing_to_do(y)) {
    Call call(in, sizes, y, std::nullopt, std::nullopt);
    call.with_signs(in.signs.contiguous(), Signs::Read, in.sign_size, in.sign_offset,
                    in.sign_phase);
    if (!run(call, in.with_sums)) return filtered_lrelu_linear_formula(in);
    sums = call.sums;
  }
  if (!in.with_sums) return {y, empty({0}, in.x)};
  return {y, sums.defined() ? sums : y.sum({0, 2, 3})};
}

}  // namespace lltm_jit
