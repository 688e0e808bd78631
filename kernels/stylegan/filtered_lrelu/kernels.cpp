// filtered_lrelu on CPU and CUDA, and its results' shapes on meta tensors: allocation, and the
// choice of a kernel.
#include "stylegan/filtered_lrelu/kernels.h"

#include <limits>

#include "core/host/checks.h"
#include "core/launch/device.h"
#include "stylegan/filtered_lrelu/mma/host/variant.h"
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
  Tensor x, b, fu, fd, y, signs;
  Tensor sums;  // of the channels, if the kernel computes them
  FilteredLreluArgs args{};

  template <typename Inputs>
  Call(const Inputs& in, const FlrSizes& sizes, const OptionalTensor& bias)
      : x(in.x), fu(float_taps(in.fu)), fd(float_taps(in.fd)) {
    if (bias) b = bias->contiguous();
    y = empty({x.sym_size(0), x.sym_size(1), sizes.out_h, sizes.out_w}, x);
    args.x = x.const_data_ptr();
    for (int i = 0; i < 4; ++i) args.x_strides[i] = x.stride(i);
    args.bias = b.defined() ? b.const_data_ptr() : nullptr;
    args.y = y.mutable_data_ptr();
    args.fu = fir_filter(fu, in.flip_filter);
    args.fd = fir_filter(fd, in.flip_filter);
    args.batch = x.size(0);
    args.channels = x.size(1);
    args.in_h = as_int(x.sym_size(2));
    args.in_w = as_int(x.sym_size(3));
    args.out_h = as_int(sizes.out_h);
    args.out_w = as_int(sizes.out_w);
    args.up = as_int(in.up);
    args.down = as_int(in.down);
    args.pad_x = as_int(in.padding[0]);
    args.pad_y = as_int(in.padding[2]);
    args.mid_h = as_int(sizes.mid_h);
    args.mid_w = as_int(sizes.mid_w);
    args.gain = in.gain * static_cast<double>(in.up * in.up);
    args.slope = in.slope;
    args.clamp = std::numeric_limits<double>::infinity();
    args.mode = Signs::None;
    args.type = floating_type(x.scalar_type());
  }

  void with_signs(const Tensor& signs_, Signs mode, int h, int w, int y, int x,
                  at::IntArrayRef phase) {
    signs = signs_;
    args.signs = static_cast<uint32_t*>(signs.data_ptr());
    args.mode = mode;
    args.sign_h = h;
    args.sign_w = w;
    args.sign_y = y;
    args.sign_x = x;
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

bool nothing_to_do(const Tensor& x, const FlrSizes& sizes) {
  return x.is_meta() || x.size(0) == 0 || x.size(1) == 0 || sizes.out_h == 0 || sizes.out_w == 0;
}

Tensor empty_result(const Tensor& x, const FlrSizes& sizes) {
  return empty({x.sym_size(0), x.sym_size(1), sizes.out_h, sizes.out_w}, x);
}

Tensor new_signs(const Tensor& x, const FlrSizes& sizes, at::IntArrayRef phase) {
  const auto words = sign_map({sizes.mid_h, sizes.mid_w}, phase).words_per_plane();
  return empty({x.sym_size(0), x.sym_size(1), words}, x, at::kInt);
}

}  // namespace

Tensor filtered_lrelu_kernel(const FlrInputs& in) {
  const FlrSizes sizes = check_filtered_lrelu(in);
  const KernelGuard guard(in.x);
  if (nothing_to_do(in.x, sizes)) return empty_result(in.x, sizes);
  Call call(in, sizes, in.b);
  if (in.clamp) call.args.clamp = *in.clamp;
  return run(call) ? call.y : filtered_lrelu_formula(in);
}

std::tuple<Tensor, Tensor> filtered_lrelu_forward_kernel(const FlrForwardInputs& forward) {
  const FlrInputs& in = forward.call;
  const FlrSizes sizes = check_filtered_lrelu(in);
  const KernelGuard guard(in.x);
  const Tensor signs = new_signs(in.x, sizes, forward.sign_phase);
  if (nothing_to_do(in.x, sizes)) return {empty_result(in.x, sizes), signs};
  Call call(in, sizes, in.b);
  if (in.clamp) call.args.clamp = *in.clamp;
  call.with_signs(signs, Signs::Write, call.args.mid_h, call.args.mid_w, 0, 0, forward.sign_phase);
  if (!run(call)) return filtered_lrelu_forward_formula(forward);
  return {call.y, signs};
}

std::tuple<Tensor, Tensor> filtered_lrelu_linear_kernel(const FlrLinearInputs& in) {
  const FlrSizes sizes = check_filtered_lrelu_linear(in);
  const KernelGuard guard(in.x);
  if (nothing_to_do(in.x, sizes)) {
    const Tensor y = empty_result(in.x, sizes);
    return {y, in.with_sums ? y.sum({0, 2, 3}) : empty({0}, in.x)};
  }
  Call call(in, sizes, std::nullopt);
  call.with_signs(in.signs.contiguous(), Signs::Read, as_int(in.sign_size[0]),
                  as_int(in.sign_size[1]), as_int(in.sign_offset[0]), as_int(in.sign_offset[1]),
                  in.sign_phase);
  if (!run(call, in.with_sums)) return filtered_lrelu_linear_formula(in);
  if (!in.with_sums) return {call.y, empty({0}, in.x)};
  return {call.y, call.sums.defined() ? call.sums : call.y.sum({0, 2, 3})};
}

}  // namespace lltm_jit
