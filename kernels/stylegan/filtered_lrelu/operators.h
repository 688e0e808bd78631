// The operators of filtered_lrelu, and what its files call of each other.
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

// The arguments of a forward call. `gain` is without up * up; see also kernels.h.
struct FlrInputs {
  const Tensor& x;
  const OptionalTensor &fu, &fd, &b;
  int64_t up, down;
  c10::SymIntArrayRef padding;  // [left, right, top, bottom]
  double gain, slope;
  std::optional<double> clamp;
  bool flip_filter;
};

// Those of a call that also gives the signs, in a map of these phases, [y, x]: sign_map.h.
struct FlrForwardInputs {
  FlrInputs call;
  at::IntArrayRef sign_phase;
};

// Those of a call that reads signs, which is linear in x: the derivative of a forward call or of another one
// of its kind. The map is of sign_size, [height, width], and sign_offset, [y, x], is where v begins in it.
struct FlrLinearInputs {
  const Tensor &x, &signs;
  const OptionalTensor &fu, &fd;
  int64_t up, down;
  c10::SymIntArrayRef padding, sign_size, sign_offset;
  at::IntArrayRef sign_phase;
  double gain, slope;
  bool flip_filter;
  bool with_sums;  // of y over all but the channels; else there are none, [0]
};

// -------------------------------------------------------------------------------- sizes, checks --

struct FlrSizes {
  c10::SymInt mid_h, mid_w, out_h, out_w;
};

// Both throw where an argument does not fit.
FlrSizes check_filtered_lrelu(const FlrInputs& in);
FlrSizes check_filtered_lrelu_linear(const FlrLinearInputs& in);

// A filter as the kernels take it: float, dense; undefined for none.
Tensor float_taps(const OptionalTensor& filter);

// The signs are an int32 tensor, [batch, channels, words].
using SymSignMap = SignMap<c10::SymInt>;
SymSignMap sign_map(c10::SymIntArrayRef size, at::IntArrayRef phase);

// The phases of the map that a call is to write: they depend on the call alone, so that signs which are written
// by one kernel can be read by any.
std::array<int64_t, 2> sign_phase(const FlrInputs& in);

// -------------------------------------------------------------------- kernels, and formulas --

Tensor filtered_lrelu_kernel(const FlrInputs& in);
std::tuple<Tensor, Tensor> filtered_lrelu_forward_kernel(const FlrForwardInputs& in);
std::tuple<Tensor, Tensor> filtered_lrelu_linear_kernel(const FlrLinearInputs& in);

Tensor filtered_lrelu_formula(const FlrInputs& in);
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
