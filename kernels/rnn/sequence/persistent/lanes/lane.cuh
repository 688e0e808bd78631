// Which numbers the lanes of a warp of Note [Persistent kernels] have.
//
// Note [Units in the order of the lanes]
// Rows and columns of the weights are permuted, so that nothing else needs a permutation. Number 16 k' + 4 c + {0, 1}
// of k is what the tensor cores take for 2 c + {0, 1} of their 16, and 4 c + {2, 3} for 2 c + 8 + {0, 1}. So the lane
// of column c has four neighbouring numbers of B in its two registers, in their order in memory. Likewise row r of A is
// unit 4 (r / 2) + r % 2 for r < 8, and two more for r + 8, so that the transposes of the sums are B's registers again.
// With four rows of the batch, the other four columns of B are the same rows again, and each lane takes half of its
// sums: lanes of columns 0 and 1 take those of the upper eight units. With two rows, which floats in one block may
// have, two neighbouring columns are the same row, and a lane's number is its pack.
#pragma once

#include "rnn/sequence/numbers/words.cuh"
#include "rnn/sequence/persistent/shape.h"

namespace lltm_jit {

// A lane's numbers: `elements` sums, and in memory a pack of as many neighbouring units of one row.
template <typename Shape>
struct Lane {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr bool kFewRows = kShape.rows < 8;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();

  static constexpr bool kAllFinish = kShape.splits == kShape.finishers();

  int lane, group, split, block;
  int unit;  // of the group's first
  int row;   // of the set's first; in the tile of rows that this warp finishes

  LLTM_JIT_DEVICE explicit Lane(int set) {
    const uint32_t thread = keep(threadIdx.x);
    const int warp = kShape.derives_beside() ? thread / 32 % kShape.warps() : thread / 32;
    lane = thread % 32;
    group = warp % kShape.groups;
    split = warp / kShape.groups;
    block = keep(blockIdx.x % kShape.blocks);
    unit = keep((block * kShape.groups + group) * SequenceShape::kUnits);
    row = keep(set * kShape.rows + split % kShape.row_tiles() * 8);
  }

  LLTM_JIT_DEVICE bool finishes() const { return kAllFinish || split < kShape.finishers(); }
  LLTM_JIT_DEVICE bool finishes(int phase) const {
    return kShape.phases == 1 ? finishes() : split / kShape.phase_tiles() == phase;
  }
  // The n-th of a phase's tiles of rows, for a warp that begins with the tile `first`.
  static LLTM_JIT_DEVICE int row_tile(int first, int n) {
    if constexpr (kShape.phase_tiles() % 3 > 0) return n ^ first;  // in fewer registers
    return n == 0 ? first : n == first ? 0 : n;
  }
  // The hidden unit of element e of the sums.
  LLTM_JIT_DEVICE int unit_of(int e) const {
    const int g = lane / 4, c = lane % 4, half = kFewRows ? c / 2 : e / 2;
    return unit + 4 * (g / 2) + g % 2 + 2 * half;
  }
  LLTM_JIT_DEVICE int row_of(int e) const {
    const int c = lane % 4;
    return row + (kFewRows ? c % 2 * kElements + e : 2 * c + e % 2);
  }
  // The first hidden unit of the pack.
  LLTM_JIT_DEVICE int pack_unit() const {
    if (kElements == 1) return unit_of(0);
    return unit + lane % 4 * 4 + (kFewRows ? lane / 16 * 2 : 0);
  }
  LLTM_JIT_DEVICE int pack_row() const {
    if (kElements == 1) return row_of(0);
    return row + (kFewRows ? lane / 4 % 4 : lane / 4);
  }
  // The place of the lane's four numbers of a tile of B; with four rows, its pack is half of them.
  LLTM_JIT_DEVICE int tile_offset() const {
    const int column = kElements == 1 ? lane / 8 : lane / 4;
    return (column % kShape.tile_rows() * 4 + lane % 4) * 4 * kShape.bytes;
  }
};

// A lane's pack of a row in the order of the sums, element by element; and back.
LLTM_JIT_DEVICE uint32_t transpose_halves(uint32_t pair) {
  uint32_t result;
  // Volatile, or the compiler moves it to where it is used, by some lanes alone.
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}
template <typename scalar_t, int kWords>
LLTM_JIT_DEVICE Words<kWords> transpose(const Words<kWords>& w) {
  Words<kWords> result;
  if constexpr (sizeof(scalar_t) == 2) {
    LLTM_JIT_UNROLLED(i, kWords) result.value[i] = transpose_halves(w.value[i]);
  } else if constexpr (kWords == 1) {
    result = w;
  } else {  // the upper halves of two floats, and the lower ones
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      const uint32_t lower = transpose_halves(__byte_perm(w.value[i], w.value[i + 1], 0x5410));
      const uint32_t upper = transpose_halves(__byte_perm(w.value[i], w.value[i + 1], 0x7632));
      result.value[i] = __byte_perm(lower, upper, 0x5410);
      result.value[i + 1] = __byte_perm(lower, upper, 0x7632);
    }
  }
  return result;
}

template <typename scalar_t, int kElements>
LLTM_JIT_DEVICE auto to_words(const float (&numbers)[kElements]) {
  Words<kElements* int(sizeof(scalar_t)) / 4> w;
  LLTM_JIT_UNROLLED(e, kElements) {
    if constexpr (sizeof(scalar_t) == 4) {
      w.value[e] = __float_as_uint(numbers[e]);
    } else if (e % 2 == 0) {
      w.value[e / 2] = pack2<scalar_t>(numbers[e], numbers[e + 1]);
    }
  }
  return w;
}
template <typename scalar_t, int kWords, int kElements>
LLTM_JIT_DEVICE void to_floats(const Words<kWords>& w, float (&numbers)[kElements]) {
  LLTM_JIT_UNROLLED(e, kElements) {
    if constexpr (sizeof(scalar_t) == 4) {
      numbers[e] = __uint_as_float(w.value[e]);
    } else if (e % 2 == 0) {
      unpack<scalar_t>(w.value[e / 2], numbers[e], numbers[e + 1]);
    }
  }
}

}  // namespace lltm_jit
