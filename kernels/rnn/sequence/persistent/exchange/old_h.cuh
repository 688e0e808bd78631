// The initial h of a sequence, which the first step multiplies.
#pragma once

#include "rnn/sequence/numbers/halves.cuh"
#include "rnn/sequence/persistent/lanes/place.cuh"

namespace lltm_jit {

// A lane's pack of a given h, [batch, units]; zeros if there is none.
template <typename scalar_t, typename Shape>
LLTM_JIT_DEVICE auto words_of_h(const LanePlace<Shape>& place, const LanePack<Shape>& pack,
                                const void* h) {
  constexpr int kWords = Shape::kShape.words();
  Words<kWords> words{};
  if (h && pack.exists()) {
    const auto* from = static_cast<const scalar_t*>(h) +
                       int64_t(place.lane.pack_row()) * place.units() +
                       place.recurrence.first_unit() + place.lane.pack_unit();
    if constexpr (Shape::kPadded) {
      words = load_first<scalar_t, kWords>(from, pack.left());
    } else {
      words = load_words<kWords>(from);
    }
  }
  return words;
}

// Of the initial h.
template <typename scalar_t, typename Shape, typename Controls>
LLTM_JIT_DEVICE auto old_h_words(const LanePlace<Shape>& place, const LanePack<Shape>& pack,
                                 const SequenceForwardArgs& args, const Controls& controls) {
  const void* h = args.old_h;
  if (controls.pack_resets()) h = of_reset<scalar_t>(place, args.reset_h, 0);
  return words_of_h<scalar_t>(place, pack, h);
}

// Copies the whole initial h to the block's own operand.
template <typename scalar_t, SequenceControls kControls, typename Shape, typename Exchange>
LLTM_JIT_DEVICE void copy_old_h(const LanePlace<Shape>& place, const SequenceForwardArgs& args,
                                const Exchange& exchange) {
  constexpr SequenceShape kShape = Shape::kShape;
  constexpr int kBytes = kShape.bytes;
  constexpr int kChunk = 4;  // units
  constexpr int kChunks = kShape.tiles() * SequenceShape::kUnits / kChunk;
  const int first_row = place.recurrence.rows() * kShape.rows;
  for (int i = threadIdx.x; i < kChunks * kShape.rows; i += kShape.threads()) {
    const int unit = i % kChunks * kChunk, in_cluster = i / kChunks, row = first_row + in_cluster;
    if (row >= place.rows || unit >= place.hidden) continue;
    const uint8_t control = kControls ? place.recurrence.control(args, 0)[row] : 0;
    const auto* h = static_cast<const scalar_t*>(args.old_h);
    if ((control & (kResets | kHolds)) == kResets) {
      if (kControls != kGivenResets || !args.reset_h.data) continue;
      h = of_reset<scalar_t>(place, args.reset_h, 0);
    }
    const auto* from = h + int64_t(row) * place.units() + place.recurrence.first_unit() + unit;
    // A tile of B has the rows one after the other, 16 units each.
    constexpr int kTileRows = kShape.tile_rows();
    const int tile = unit / SequenceShape::kUnits * kShape.phase_tiles() + in_cluster / kTileRows;
    const int at = (tile * kTileRows + in_cluster % kTileRows) * SequenceShape::kUnits +
                   unit % SequenceShape::kUnits;
    Words<kBytes> chunk;
    if constexpr (Shape::kPadded) {
      chunk = load_first<scalar_t, kBytes>(from, place.hidden - unit);
    } else {
      chunk = load_weights<kBytes>(from, true);
    }
    if constexpr (kShape.sends_tf32()) chunk = rounded_to_tf32(chunk);
    store_shared(exchange.operands(-1) + at * kBytes, chunk);
  }
}

}  // namespace lltm_jit
