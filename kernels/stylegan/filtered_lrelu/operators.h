// The operators of filtered_lrelu, and the functions that its files share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <tuple>

#include "core/host/operator.h"
#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// ------------------------------------------------------------------------------------ arguments --

// The arguments of a forward call. `gain` does not include up * up; see also kernels.h.
struct FlrInputs {
  const Tensor& x;
  const OptionalTensor &fu, &fd, &b;
  int64_t up, down;
  c10::SymIntArrayRef padding;  // [left, right, top, bottom]
  double gain, slope;
  std::optional<double> clamp;
  bool flip_filter;
};

// The arguments of a call that also returns the signs, in a map with these phases, [y, x]: sign_map.h.
// Without phases it returns no signs.
struct FlrForwardInputs {
  FlrInputs call;
  std::optional<at::IntArrayRef> sign_phase = std::nullopt;
};

// The arguments of a call that reads signs and is linear in x: the derivative of a forward call, or of
// another linear call. The map has sign_size, [height, width]; v begins in it at sign_offset, [y, x].
struct FlrLinearInputs {
  const Tensor &x, &signs;
  const OptionalTensor &fu, &fd;
  int64_t up, down;
  c10::SymIntArrayRef padding, sign_size, sign_offset;
  at::IntArrayRef sign_phase;
  double gain, slope;
  bool flip_filter;
  bool with_sums;  // returns the sums of y over all but the channels, else [0]
};

// -------------------------------------------------------------------------------- sizes, checks --

struct FlrSizes {
  c10::SymInt mid_h, mid_w, out_h, out_w;
};

// Both throw if an argument does not fit.
FlrSizes check_filtered_lrelu(const FlrInputs& in);
FlrSizes check_filtered_lrelu_linear(const FlrLinearInputs& in);

// A filter in the kernels' form: float and dense; undefined for none.
Tensor float_taps(const OptionalTensor& filter);

// The signs are an int32 tensor, [batch, channels, words].
using SymSignMap = SignMap<c10::SymInt>;
SymSignMap sign_map(c10::SymIntArrayRef size, at::IntArrayRef phase);

// The phases of the map that a call is to write. They depend on the call alone, so that any kernel
// can read signs that another one wrote.
std::array<int64_t, 2> sign_phase(const FlrInputs& in);

// -------------------------------------------------------------------- kernels, and formulas --

std::tuple<Tensor, Tensor> filtered_lrelu_forward_kernel(const FlrForwardInputs& in);
std::tuple<Tensor, Tensor> filtered_lrelu_linear_kernel(const FlrLinearInputs& in);

std::tuple<Tensor, Tensor> filtered_lrelu_forward_formula(const FlrForwardInputs& in);
std::tuple<Tensor, Tensor> filtered_lrelu_linear_formula(const FlrLinearInputs& in);

// ------------------------------------------------------------------------------------ operators --

using OfFlr = Tensor(const Tensor& x, const OptionalTensor& fu, const OptionalTensor& fd,
                     const OptionalTensor& b, int64_t up, int64_t down, c10::SymIntArrayRef padding,
                     double gain, double slope, std::optional<double> clamp, bool flip_filter);

using OfFlrForward = std::tuple<Tensor, Tensor>(const Tensor& x, const OptionalTensor& fu,
                                                const OptionalTensor& fd, const OptionalTensor& b,
                                                int64_t up, int64_t down,
                                                c10::SymIntArrayRef padding, double gain,
                                                double slope, std::optional<double> clamp,
                                                bool flip_filter, at::IntArrayRef sign_phase);

using OfFlrLinear = std::tuple<Tensor, Tensor>(
    const Tensor& x, const Tensor& signs, const OptionalTensor& fu, const OptionalTensor& fd,
    int64_t up, int64_t down, c10::SymIntArrayRef padding, c10::SymIntArrayRef sign_size,
    c10::SymIntArrayRef sign_offset, at::IntArrayRef sign_phase, double gain, double slope,
    bool flip_filter, bool with_sums);

namespace ops {

extern Operator<OfFlr> filtered_lrelu;
extern Operator<OfFlrForward> filtered_lrelu_forward;  // y, signs
extern Operator<OfFlrLinear> filtered_lrelu_linear;    // y, sums

}  // namespace ops
}  // namespace lltm_jit
