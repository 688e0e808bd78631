// What the kernel on tensor cores is given.
#pragma once

#include "core/launch/fast_divide.cuh"
#include "stylegan/filtered_lrelu/mma/plan.h"
#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {

constexpr int kMostWalks = 64;  // of a warp; then there are more blocks

// A call as the kernel gets it.
struct MmaCall {
  FilteredLreluArgs args;  // as it was asked for
  const void* x;
  const void* bias;
  void* y;
  uint32_t* signs;
  float* plane_sums;
  FirFilter fu, fd;
  int64_t x_batch, x_channel, x_row, x_column;  // strides
  FastDivisor channels{1}, segments{1}, blocks{1};
  int walks;  // planes * segments * blocks, blocks next to each other
  int in_h, in_w, out_h, out_w;
  MmaPlan plan;
  SignMap<int> map;
  int map_shift;                // bits of a word's bytes before the first tile of a walk
  float gain;                   // its magnitude, and what else the results are multiplied by
  float up_sign;                // -1: v is computed with the other sign
  float slope, pass;            // of numbers below zero and others, from -1 to 1: Note [Slopes]
  float clamp;                  // of v over the magnitude of gain
  int load_bytes, store_bytes;  // of one access, which addresses and sizes allow
};

}  // namespace lltm_jit
