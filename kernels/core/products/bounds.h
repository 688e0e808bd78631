// Sizes at which products on the CPU are divided, or computed another way. Tests take sizes on both
// sides of each. No torch header.
#pragma once

#include <cstdint>

namespace lltm_jit {

// The bounds of core/products/panels.h and rnn/cell_step/cpu/blocked_product.h.
struct PanelBounds {
  // The depth of a block, and the most rows of A in it.
  static constexpr int64_t kBlockDepth = 192, kBlockRows = 64;
  // Products of fewer rows read B in place: so few rows do not pay for the copy.
  static constexpr int64_t kFewestRowsToCopyFor = 17;
  // Columns of a one-row product at a time, so that their sums stay in the first-level cache.
  static constexpr int64_t kOneRowColumns = 256;
};

// The bounds of core/products/matrices.cpp.
struct PackedBounds {
  // A block of A (nearly) stays in the first-level cache, and the kept part of B in the second.
  static constexpr int64_t kBlockRows = 96, kBlockDepth = 256, kKeptBytes = 3 << 18;
  // From this depth on, C stays in the cache.
  static constexpr int64_t kDeep = 2048;
  static constexpr int64_t kFewestRows = 64;  // worth waking a thread for
};

// The depth of the blocks whose sums are added up; all blocks are equal, or nearly.
inline int64_t packed_block_depth(int64_t depth) {
  const int64_t blocks = (depth + PackedBounds::kBlockDepth - 1) / PackedBounds::kBlockDepth;
  return (depth + blocks - 1) / blocks;
}

}  // namespace lltm_jit
