// upfirdn2d: inserts zeros between samples, pads or crops, applies a FIR filter, and keeps every down-th result.
//
// On each axis, one after the other, with h the filter in the order of a correlation:
//   y[o] = sum over t of h[t] x[(o down - pad + t) / up]
// where the sum is over the t for which the quotient is an integer in [0, in).
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

struct UpfirdnAxis {
  int64_t in, out;   // sizes
  int64_t up, down;  // positive
  int64_t pad;       // before the upsampled signal; negative crops it
  int64_t taps;      // at least 1
};

struct Upfirdn2dArgs {
  const void* x;  // [batch, channels, vertical.in, horizontal.in], dense, of `type`
  const void* f;  // [vertical.taps, horizontal.taps], or [taps] of both axes if `separable`;
                  // dense, of filter_type; null if each axis has one tap of 1
  void* y;        // [batch, channels, vertical.out, horizontal.out], dense as x, of `type`
  int64_t batch, channels;
  UpfirdnAxis horizontal, vertical;
  double gain;         // multiplies the result
  bool separable;      // f is applied on each axis
  bool flip;           // h[t] = f[t], else f[taps - 1 - t], on each axis
  bool channels_last;  // the channels of x and y are last
  ElementType type, filter_type;
};

// The index in f of tap t of h, on one axis.
LLTM_JIT_HOST_DEVICE int64_t tap_of_filter(int64_t t, int64_t taps, bool flip) {
  return flip ? t : taps - 1 - t;
}

void upfirdn2d_cpu(const Upfirdn2dArgs& args);

#ifdef LLTM_JIT_CUDA
// Enqueues on `stream`; y must not be empty.
cudaError_t launch_upfirdn2d(const Upfirdn2dArgs& args, cudaStream_t stream);
#endif

}  // namespace lltm_jit
