// Whether Note [Many rows] (shape.h) applies to a sequence, and the shape.
#pragma once

#include <algorithm>

#include "rnn/sequence/kernels.h"
#include "rnn/sequence/many_rows/shape.h"

namespace lltm_jit {

// For floats as TF32: the sizes at which these kernels were faster than others on an H100. For few rows, grids are
// faster if they hold the weights.
inline bool rounded_many_rows(const SequenceSizes& sizes, bool backward) {
  const int64_t rows = sizes.batch_size, units = sizes.hidden_size;
  const bool many_gates = sizes.gates >= 4;
  if (rows <= 16 || units > 2112) return false;
  if (rows <= 32) return units > 1300 && units <= 1584;
  if (rows <= 64) return units > (backward ? 900 : 1056);
  if (rows > 256) return !backward && many_gates && rows <= 512 && units >= 1000;
  if (rows > 128) return !backward && sizes.gates >= 3 && units >= (many_gates ? 560 : 640);
  return units >= (!many_gates ? 1000 : backward ? 640 : rows > 96 ? 560 : 720);
}

// The same for other types. Up to 704 units, a third of the chip can be a grid of 48 rows, and up to 1056 units, half
// of the chip a grid of 64 rows. So grids take 144 or 128 rows in one turn.
inline bool many_rows_are_quicker(const SequenceSizes& sizes, bool backward) {
  const int64_t rows = sizes.batch_size, units = sizes.hidden_size;
  if (sizes.type == ElementType::Float) return sizes.tf32 && rounded_many_rows(sizes, backward);
  if (sizes.type != ElementType::Half && sizes.type != ElementType::BFloat16) return false;
  if (backward) return rows > 64 && rows <= 128 && units > 1056 && units <= 1560;
  if (rows <= 64 || rows > 256 || units > 2112) return false;
  if (rows > 128) return units >= (sizes.gates >= 3 ? 560 : 1000);
  return units > 1056;
}

// The shape of a pass on a GPU that gives a block `shared_bytes` and runs `clusters` clusters at
// once; blocks is 0 if there is none.
inline ManyRowsShape many_rows_shape(const SequenceSizes& sizes, bool backward, int shared_bytes,
                                     int clusters) {
  if (clusters == 0) return {};
  const auto ceil = [](int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); };
  const int blocks = backward ? 8 : 2;
  const int units = ceil(ceil(sizes.hidden_size, clusters), 8) * 8;
  const bool scaled = sizes.type == ElementType::Float;
  // The most tiles that fit in registers.
  const int most_tiles = scaled && (backward || units > 24) ? 2 : 4;
  const int turns = ceil(sizes.batch_size, most_tiles * ManyRowsShape::kRows);
  ManyRowsShape shape{blocks, units, ceil(ceil(sizes.batch_size, turns), ManyRowsShape::kRows)};
  shape.scaled = scaled;
  const int64_t depth =
      backward ? sizes.gates * ((sizes.hidden_size + 7) / 8 * 8) : sizes.hidden_size;
  shape.chunks = ceil(ceil(depth, ManyRowsShape::kChunk), blocks);
  const int columns = shape.columns(sizes.gates);
  // Products support up to 144 columns, but the registers of a thread fewer.
  const int most = backward ? 104 : 128;
  if (columns < 16 || columns > most) return {};
  // The fewest streamed chunks of weights that leave room for enough stages.
  constexpr int kMostStages = 8;
  const int fewest_stages = shape.tiles == 2 ? 3 : 2;
  for (; shape.streamed < shape.chunks; ++shape.streamed) {
    for (const bool reuses : {false, true}) {
      shape.reuses = reuses, shape.stages = kMostStages;
      while (shape.stages >= fewest_stages &&
             shape.shared_bytes(sizes.gates, sizes.parameters) > shared_bytes) {
        --shape.stages;
      }
      if (shape.stages >= fewest_stages) return shape;
    }
  }
  return {};
}

}  // namespace lltm_jit
