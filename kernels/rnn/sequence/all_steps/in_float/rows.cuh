// The left factor of a product of floats, which warps split as they read it: Note [Products of all
// steps in float] (kernels.h).
#pragma once

#include "core/memory/boxes.cuh"
#include "rnn/sequence/all_steps/in_float/parts.cuh"

namespace lltm_jit {

// The places of a lane's two rows of A in shared memory. They arrive there in boxes with 128 bytes
// of each row of memory.
template <bool kDepthInside>
class Rows {
  static constexpr int kBoxRows = kDepthInside ? kTile : kStage, kRowBytes = 128;
  static constexpr int kBoxBytes = kBoxRows * kRowBytes,
                       kBoxColumns = kRowBytes / int(sizeof(float));

 public:
  static constexpr int kBoxes = (kDepthInside ? kStage : kTile) / kBoxColumns;

  // row: the first of the two rows, in the tile.
  LLTM_JIT_DEVICE explicit Rows(int row) {
    const int c = threadIdx.x % 4;
    LLTM_JIT_UNROLLED(i, 2) {
      const int r = kDepthInside ? row + i : 2 * c + i;  // row of memory, in the box
      const int column = kDepthInside ? 2 * c : row % kBoxColumns;
      const int box = kDepthInside ? 0 : row / kBoxColumns;
      addresses_[i] =
          box * kBoxBytes + r * kRowBytes + ((column / 4) ^ (r % 8)) * 16 + column % 4 * 4;
    }
  }

  static LLTM_JIT_DEVICE void bring(float* target, const CUtensorMap& map, int64_t row, int64_t k,
                                    CopyBarrier& barrier) {
    LLTM_JIT_UNROLLED(box, kBoxes) {
      const int64_t first = kDepthInside ? row : k,
                    column = (kDepthInside ? k : row) + box * kBoxColumns;
      copy_box(target + box * kBoxBytes / int(sizeof(float)), map, int(first), int(column),
               barrier);
    }
  }

  // Loads from each row the numbers 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 of the step for lane c of four.
  LLTM_JIT_DEVICE void load(uint32_t tile, int step, uint32_t (&numbers)[2][kWidth]) const {
    LLTM_JIT_UNROLLED2(i, 2, half, 2) {
      if constexpr (kDepthInside) {
        const int in_box = (step % 2 * 4 + half * 2) * 16;
        const auto pair = load_shared<2>(tile + step / 2 * kBoxBytes + (addresses_[i] ^ in_box));
        numbers[i][2 * half] = pair.value[0];
        numbers[i][2 * half + 1] = pair.value[1];
      } else {
        const auto pair =
            load_shared<2>(tile + addresses_[i] + (step * kStep + half * 8) * kRowBytes);
        numbers[0][2 * half + i] = pair.value[0];
        numbers[1][2 * half + i] = pair.value[1];
      }
    }
  }

 private:
  uint32_t addresses_[2];
};

// A step of A in the layout of the instructions' operands.
struct StepParts {
  uint32_t high[4], low[4];

  LLTM_JIT_DEVICE void split(const uint32_t (&numbers)[2][kWidth], const float (&scales)[2]) {
    LLTM_JIT_UNROLLED(i, 4) {
      const int row = i % 2, at = i / 2 * 2;
      const HalfParts pair(numbers[row][at], numbers[row][at + 1], scales[row]);
      high[i] = pair.high;
      low[i] = pair.low;
    }
  }
};

}  // namespace lltm_jit
