// Contract of the kernels for cells without a product.
//
// Note [Cells without a product]
// A lane has one or two units of a row, and goes through the steps alone. The memory limits its speed, so many steps
// must be on their way at once. If the cell is linear in its states, the warps of a block have consecutive parts of
// each tile of steps. Each warp composes the map of its part, factors * states + sums, and the maps of the parts before
// give the states at the beginning of its part. If there are few rows, several blocks also share the sequence in
// pieces, and an earlier launch computes the maps of all pieces. Other cells have one warp in a block.
#pragma once

#include "rnn/sequence/kernels.h"

namespace lltm_jit {

constexpr int kWalkUnits = 2;  // of a lane, where all arrays are aligned for it

struct WalkShape {
  // Of a block's tile: steps for each warp, on their way while the tile before is computed.
  int warps, steps;

  LLTM_JIT_HOST_DEVICE constexpr int tile() const { return warps * steps; }
  LLTM_JIT_HOST_DEVICE constexpr int threads() const { return 32 * warps; }
};

// loads: arrays that a step reads.
LLTM_JIT_HOST_DEVICE constexpr WalkShape walk_shape(bool linear, int states, int loads, int bytes) {
  constexpr int kSharedBytes = 48 * 1024, kInFlight = 48;
  int warps = linear ? 8 : 1, steps = 16;
  const int map = 2 * states * (states + 1) * 32 * kWalkUnits * bytes;  // two copies
  while (warps > 1 && warps * map > kSharedBytes) warps /= 2;
  while (steps > 1 && steps * loads > kInFlight) steps /= 2;
  return {warps, steps};
}

// Which of the arrays a pass reads at each step.
LLTM_JIT_HOST_DEVICE constexpr WalkShape walk_shape(const SequenceForwardArgs*, bool linear,
                                                    int gates, int states, int bytes) {
  return walk_shape(linear, states, gates, bytes);
}
LLTM_JIT_HOST_DEVICE constexpr WalkShape walk_shape(const SequenceBackwardArgs*, bool linear,
                                                    int gates, int states, int bytes) {
  return walk_shape(linear, states, gates + states + 1, bytes);
}

// Steps are counted in the order of the walk: backward, the first step is the sequence's last.
template <typename Sequence>
struct WalkArgs {
  Sequence sequence;
  int64_t pieces = 1, piece_steps;  // of each piece but the last one
  // Of all pieces, for each unit: [pieces, states, states+1, batch, hidden] of state_type, the sums behind the factors;
  // and whether a reset cuts a row's states off, [pieces, batch]. Not read if there is one piece.
  void* maps = nullptr;
  uint8_t* cuts = nullptr;
  bool only_maps = false;  // whether to write them, and nothing else
};

}  // namespace lltm_jit
