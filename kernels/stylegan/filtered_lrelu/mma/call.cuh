// The arguments of the kernel on tensor cores.
#pragma once

#include "core/launch/fast_divide.cuh"
#include "stylegan/filtered_lrelu/mma/plan.h"
#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {

constexpr int kMostWalks = 64;  // of a warp; with more walks there are more blocks

// A call in the kernel's form.
struct MmaCall {
  FilteredLreluArgs args;  // as the caller gave them
  FastDivisor channels{1}, segments{1}, blocks{1};
  int walks;  // planes * segments * blocks; the blocks vary fastest
  MmaPlan plan;
  SignMap<int> map;
  int map_shift;                // bits of a word's bytes before the first tile of a walk
  float gain;                   // the gain's magnitude, times the other factors of the results
  float up_sign;                // -1: v is computed with its sign reversed
  float slope, pass;            // factors of negative numbers and others, within 1: Note [Slopes]
  float clamp;                  // of v divided by the gain's magnitude
  int load_bytes, store_bytes;  // of one access, as addresses and sizes allow
};

}  // namespace lltm_jit
