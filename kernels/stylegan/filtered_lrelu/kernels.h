// filtered_lrelu: the contract of its kernels. For each plane (batch, channel) of x:
//   t = x + bias;  u = (t upsampled by `up`, padded) * fu;  v = act(gain u);  y = every down-th of v * fd
// where * is a valid convolution on both axes and act is the leaky ReLU followed by the clamp.
// Source of the maths: Karras et al., "Alias-Free Generative Adversarial Networks" (2021).
//
// Note [Signs]
// The derivative of act is 1, slope or 0 at each sample of v. A call that writes `signs` stores which
// of the three. A call that reads `signs` multiplies by the derivative instead of applying act, so it
// is linear in x: the backward pass is the same call with fu and fd, and up and down, exchanged. Its v
// lies on the same grid, shifted by sign_x and sign_y; the derivative is 0 outside the map.
#pragma once

#include <cstdint>

#include "core/launch/api.h"
#include "core/math/scalar.h"

namespace lltm_jit {

enum class Signs : int8_t { None, Write, Read };

// A FIR filter in float: either separable, [taps] for both axes, or row-major, [height, taps].
struct FirFilter {
  const float* taps;  // on the device of the tensors; null: one tap of 1 (width 1, height 0)
  int width;          // taps along the horizontal axis
  int height;         // 0: separable; the vertical axis has the same taps
  bool flip;          // correlation instead of convolution
};

struct FilteredLreluArgs {
  const void* x;         // [batch, channels, in_h, in_w] of `type`
  int64_t x_strides[4];  // in elements
  const void* bias;      // [channels] of `type`, dense; null for none
  void* y;               // [batch, channels, out_h, out_w] of `type`, contiguous
  uint32_t* signs;       // null, or written or read as `mode` says: see sign_map.h
  float* plane_sums;     // null, or [channels, batch, parts]: sums of y over parts of each plane
  FirFilter fu, fd;
  int64_t batch, channels;
  int in_h, in_w, out_h, out_w;
  int up, down;
  int pad_x, pad_y;                // before the first sample, in upsampled samples; negative crops
  int mid_h, mid_w;                // size of v
  int sign_h, sign_w;              // size of the map: that of v if the call writes it
  int sign_y, sign_x;              // v[i, j] belongs to the sign [i + sign_y, j + sign_x]
  int sign_phase_y, sign_phase_x;  // 0 to 15, where the map lies in its tiles: see sign_map.h
  double gain;                     // includes up * up
  double slope;
  double clamp;  // infinity for none; ignored if signs are read
  Signs mode;
  ElementType type;
};

// Runs on the CPU. A map that is to be written must be zero.
void filtered_lrelu_cpu(const FilteredLreluArgs& args);

}  // namespace lltm_jit
