// The floats in which cells of whole sequences compute, and the inputs of their steps.
#pragma once

#include <type_traits>

#include "core/math/activations.h"
#include "core/math/extremes.cuh"
#include "core/math/float_of.cuh"
#include "rnn/sequence/cell.h"

namespace lltm_jit {

// max() and min() for cells.
template <typename Functions>
LLTM_JIT_DEVICE FloatOf<Functions> max(const FloatOf<Functions>& x, const FloatOf<Functions>& y) {
  return FloatOf<Functions>(larger_or_nan(x.value, y.value));
}
template <typename Functions>
LLTM_JIT_DEVICE FloatOf<Functions> min(const FloatOf<Functions>& x, const FloatOf<Functions>& y) {
  return FloatOf<Functions>(smaller_or_nan(x.value, y.value));
}

// One of two numbers, of which both are computed, so that there is no branch.
LLTM_JIT_DEVICE float either(bool first, float a, float b) {
  asm volatile("" : "+f"(a), "+f"(b));
  return first ? a : b;
}

// ------------------------------------------------------------------------------ cells of 16 bits --

// Functions with few instructions, as accurate as rounding to 11 bits needs.
struct GateFunctions;
using GateFloat = FloatOf<GateFunctions>;

template <>
struct Math<GateFloat> : FloatMath<GateFunctions> {
  // Below this, a series keeps more digits than a difference of exponentials.
  static constexpr float kSmall = 0x1p-6f;
  static constexpr float kLog2E = 1.4426950408889634f;

  static LLTM_JIT_DEVICE GateFloat quotient(GateFloat a, GateFloat b) {
    return GateFloat(a.value * approximate_inverse(b.value));
  }
  static LLTM_JIT_DEVICE GateFloat exp(GateFloat x) {
    return GateFloat(approximate_power_of_2(kLog2E * x.value));
  }
  static LLTM_JIT_DEVICE GateFloat expm1(GateFloat x) {
    const float series = fmaf(0.5f * x.value, x.value, x.value);
    const float difference = approximate_power_of_2(kLog2E * x.value) - 1;
    return GateFloat(fabsf(x.value) < kSmall ? series : difference);
  }
  static LLTM_JIT_DEVICE GateFloat log1p(GateFloat x) {
    const float series = fmaf(-0.5f * x.value, x.value, x.value);
    return GateFloat(either(fabsf(x.value) < kSmall, series, __logf(1 + x.value)));
  }
  static LLTM_JIT_DEVICE GateFloat tanh(GateFloat x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x.value));
    return GateFloat(result);
  }
};

// The error is below 4e-6 on an H200, where tanh.approx is accurate to at least 16 bits: the leak
// of a closed gate would not show in 16 bits after thousands of steps.
LLTM_JIT_DEVICE GateFloat sigmoid(GateFloat x) {
  const GateFloat half(0.5f);
  return GateFloat(fmaf(0.5f, Math<GateFloat>::tanh(half * x).value, 0.5f));
}

LLTM_JIT_DEVICE GateFloat softplus(const GateFloat& x) {
  using M = Math<GateFloat>;
  return max(x, GateFloat(0)) + M::log1p(M::exp(-M::abs(x)));
}

// -------------------------------------------------------------------------------- cells of float --

// Accurate to a few units in the last place, without the branches of the language's functions,
// because a step waits for its slowest lane.
struct FullGateFunctions;
using FullGateFloat = FloatOf<FullGateFunctions>;

template <>
struct Math<FullGateFloat> : FloatMath<FullGateFunctions> {
  using T = FullGateFloat;

  static LLTM_JIT_DEVICE T exp(T x) {
    // x log2(e) with twice the bits: the power of the rounded part, corrected to first order for the rest.
    constexpr float kLog2E = 1.4426950408889634f, kRest = 1.9259629911266175e-8f;
    const float power = kLog2E * x.value;
    const float rest = fmaf(x.value, kRest, fmaf(x.value, kLog2E, -power));
    const float result = approximate_power_of_2(power);
    const float corrected = fmaf(result, 0.6931471805599453f * rest, result);
    return T(fabsf(power) < 126 ? corrected : result);  // infinities have no remainder
  }
  static LLTM_JIT_DEVICE T expm1(T x) {
    const float t = x.value;  // coefficients for the least relative error below 1/2
    float series = fmaf(t, 1.99931381e-4f, 1.39973913e-3f);
    series = fmaf(t, series, 8.33307211e-3f);
    series = fmaf(t, series, 4.16653177e-2f);
    series = fmaf(t, series, 1.66666680e-1f);
    series = fmaf(t, series, 5.00000042e-1f);
    return T(either(fabsf(t) < 0.5f, fmaf(t * t, series, t), exp(x).value - 1));
  }
  static LLTM_JIT_DEVICE T log1p(T x) { return T(::log1pf(x.value)); }
  static LLTM_JIT_DEVICE T tanh(T x) {
    const float t = fabsf(x.value), square = t * t;  // coefficients for the same below 0.6
    float series = fmaf(square, -5.90587e-3f, 2.080538e-2f);
    series = fmaf(square, series, -5.378668e-2f);
    series = fmaf(square, series, 1.3331958e-1f);
    series = fmaf(square, series, -3.3333299e-1f);
    series = fmaf(t * square, series, t);
    const float by_exp = fmaf(-2, approximate_inverse(1 + exp(T(2 * t)).value), 1);
    return T(copysignf(either(t < 0.6f, series, by_exp), x.value));
  }
};

LLTM_JIT_DEVICE FullGateFloat sigmoid(FullGateFloat x) {
  return FullGateFloat(approximate_inverse(1 + Math<FullGateFloat>::exp(-x).value));
}

// Its functions return x itself: for properties that depend on nothing but a cell's code.
struct NoFunctions;
using NoFloat = FloatOf<NoFunctions>;

template <>
struct Math<NoFloat> : FloatMath<NoFunctions> {
  static LLTM_JIT_DEVICE NoFloat exp(NoFloat x) { return x; }
  static LLTM_JIT_DEVICE NoFloat expm1(NoFloat x) { return x; }
  static LLTM_JIT_DEVICE NoFloat log1p(NoFloat x) { return x; }
  static LLTM_JIT_DEVICE NoFloat tanh(NoFloat x) { return x; }
};

// The type in which a cell computes, by element type.
template <typename scalar_t>
using GateNumber =
    std::conditional_t<sizeof(scalar_t) == 2, GateFloat,
                       std::conditional_t<sizeof(scalar_t) == 4, FullGateFloat, scalar_t>>;

// The inputs of a step for a lane's elements, besides the old states: the gates' sums (or their
// hidden and input parts), and the parameters of the lane's units.
template <typename Cell, typename T, int kGates, int kElements, int kRoom, int kUnits>
LLTM_JIT_DEVICE CellStep<Cell, T> step_of_element(int e, const float (&sums)[kGates][kElements],
                                                  const float (&inputs)[kGates][kElements],
                                                  const float (&parameters)[kRoom][kUnits]) {
  CellStep<Cell, T> in;
  LLTM_JIT_UNROLLED(g, kGates) {
    in.sum(g) = T(sums[g][e]);
    if constexpr (!CellTraits<Cell>::kAddsGates) in.x[g] = T(inputs[g][e]);
  }
  LLTM_JIT_UNROLLED(i, CellTraits<Cell>::kParameters) {
    in.p[i] = T(parameters[i][kUnits == 2 ? e / 2 : 0]);
  }
  return in;
}

}  // namespace lltm_jit
