// The sizes from which products on the CPU are divided, or go another way. Tests take sizes around each of
// them. No torch header.
#pragma once

#include <cstdint>

namespace lltm_jit {

// The bounds of core/products/panels.h and rnn/cell_step/cpu/blocked_product.h.
struct PanelBounds {
  // Depth of a block, and rows of A in it at most.
  static constexpr int64_t kBlockDepth = 192, kBlockRows = 64;
  // Fewer rows than this read B where it lies: too few to pay for the copy.
  static constexpr int64_t kFewestRowsToCopyFor = 17;
  // Columns of a product of one row, whose sums stay in the first-level cache.
  static constexpr int64_t kOneRowColumns = 256;
};

// The bounds of core/products/packed.h.
struct PackedBounds {
  // A block of A stays in the first-level cache, or nearly; what is kept of B in the second.
  static constexpr int64_t kBlockRows = 96, kBlockDepth = 256, kKeptBytes = 3 << 18;
  // From this depth on C lies in the cache.
  static constexpr int64_t kDeep = 2048;
  static constexpr int64_t kFewestRows = 64;  // that a thread is woken for
};

// Of the blocks whose sums are added up: equal, or nearly.
inline int64_t packed_block_depth(int64_t depth) {
  const int64_t blocks = (depth + PackedBounds::kBlockDepth - 1) / PackedBounds::kBlockDepth;
  return (depth + blocks - 1) / blocks;
}

}  // namespace lltm_jit
