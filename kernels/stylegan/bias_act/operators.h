// The operators of bias_act and fused_bias_act, and the functions that their files share.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "core/host/operator.h"
#include "stylegan/bias_act/kernels.h"

namespace lltm_jit {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Clamp = std::optional<double>;

// The activation, its parameters, and the dimension of b.
struct BiasActKind {
  int64_t dim, act;
  double alpha, gain;
  Clamp clamp;

  Act activation() const { return static_cast<Act>(act); }
};

struct BiasActInputs {
  const Tensor& x;
  const OptionalTensor& b;
  BiasActKind kind;
};

// See Note [What a derivative needs]. `saved` is y of a line (nothing for linear without a clamp)
// and x of a curve, for which `b` is the bias.
struct BiasActBackwardInputs {
  const Tensor& grad;
  const OptionalTensor &saved, &b;
  BiasActKind kind;
  std::array<bool, 2> output_mask;  // whether grad_x and grad_b are wanted
};

using BiasActGradients = std::tuple<Tensor, Tensor>;  // of x, b

// The signatures of the schemas, which have the structs' members as arguments.
using OfBiasAct = Tensor(const Tensor& x, const OptionalTensor& b, int64_t dim, int64_t act,
                         double alpha, double gain, Clamp clamp);
using OfBiasActBackward = BiasActGradients(const Tensor& grad, const OptionalTensor& saved,
                                           const OptionalTensor& b, int64_t dim, int64_t act,
                                           double alpha, double gain, Clamp clamp,
                                           std::array<bool, 2> output_mask);
using OfFusedBiasAct = Tensor(const Tensor& input, const OptionalTensor& bias,
                              const OptionalTensor& refer, int64_t act, int64_t grad, double alpha,
                              double scale);

namespace ops {
extern Operator<OfBiasAct> bias_act;
extern Operator<OfBiasActBackward> bias_act_backward;
extern Composite<OfFusedBiasAct> fused_bias_act;
}  // namespace ops

// Argument checks, with which the functions below begin.
void check_bias(const char* function, const char* input_name, const Tensor& input,
                const char* bias_name, const OptionalTensor& bias, int64_t dim);
void check_bias_act(const BiasActInputs& in);
void check_backward(const BiasActBackwardInputs& in);

// The clamp as a value of the tensors' type: results that round to it, or beyond it, were clamped.
Clamp rounded_clamp(const BiasActKind& kind, at::ScalarType dtype);
// The dimension of b, counted from 0.
int64_t bias_dim(const BiasActKind& kind, const Tensor& x);

// Runs on CPU, CUDA and meta tensors; defined in kernels.cpp.
Tensor bias_act_kernel(const BiasActInputs& in);
BiasActGradients backward_kernel(const BiasActBackwardInputs& in);

}  // namespace lltm_jit
