// Products of bfloat16 on a processor's matrix unit (AMX): eight times as many per cycle as with pairs.
#pragma once

#include "core/types/cpu.h"

#if defined(CPU_CAPABILITY_AVX512) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#define LLTM_JIT_BFLOAT16_TILES 1
#include <immintrin.h>

// ATen/cpu/Utils.h declares it, but its other headers take two seconds to compile.
namespace at::cpu {
TORCH_API bool init_amx();
}
#endif

namespace lltm_jit {

// C = A B, plus `initial` if it is not null, for up to three vectors of 16 columns. B has pairs of
// neighbouring rows: [pairs, vectors, 16, 2].
struct DotTile {
  const c10::BFloat16 *a, *b;
  int64_t a_stride, pairs;  // pairs of columns of A
  const float* initial;     // or null for zeros
  int64_t initial_stride;
  float* c;
  int64_t c_stride;
};

#ifdef LLTM_JIT_BFLOAT16_TILES

// The shapes of the tile registers: for rows of A and C, and for 16 pairs of rows of B.
struct alignas(64) TileShapes {
  uint8_t palette = 1, unused[15] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  explicit TileShapes(int64_t a_rows) {
    for (int i = 0; i < 8; ++i) {
      bytes[i] = 64;
      rows[i] = i < kB ? a_rows : 16;
    }
  }
  static constexpr int kB = 4;  // registers 0 to 2 are C's, 3 is A's, 4 to 6 are B's
};

// Whether the processor has the matrix unit, and the operating system lets this process use it.
inline bool has_matrix_unit() {
  static const bool has = at::cpu::init_amx();
  return has;
}

#define LLTM_JIT_TILES __attribute__((target("amx-tile,amx-bf16")))

// Needs shapes for the number of A's rows. `pairs` is a multiple of 16.
template <int kVectors>
LLTM_JIT_TILES void multiply_tile(const DotTile& tile) {
  constexpr int64_t kPairBytes = kVectors * 64;
  const int64_t initial_bytes = tile.initial_stride * 4, c_bytes = tile.c_stride * 4;
  if (tile.initial == nullptr) {
    _tile_zero(0);
    if (kVectors > 1) _tile_zero(1);
    if (kVectors > 2) _tile_zero(2);
  } else {
    _tile_loadd(0, tile.initial, initial_bytes);
    if (kVectors > 1) _tile_loadd(1, tile.initial + 16, initial_bytes);
    if (kVectors > 2) _tile_loadd(2, tile.initial + 32, initial_bytes);
  }
  const c10::BFloat16 *a = tile.a, *b = tile.b;
  for (int64_t pair = 0; pair < tile.pairs; pair += 16, a += 32, b += 16 * kVectors * 32) {
    _tile_loadd(3, a, tile.a_stride * 2);
    _tile_loadd(4, b, kPairBytes);
    _tile_dpbf16ps(0, 3, 4);
    if (kVectors > 1) {
      _tile_loadd(5, b + 32, kPairBytes);
      _tile_dpbf16ps(1, 3, 5);
    }
    if (kVectors > 2) {
      _tile_loadd(6, b + 64, kPairBytes);
      _tile_dpbf16ps(2, 3, 6);
    }
  }
  _tile_stored(0, tile.c, c_bytes);
  if (kVectors > 1) _tile_stored(1, tile.c + 16, c_bytes);
  if (kVectors > 2) _tile_stored(2, tile.c + 32, c_bytes);
}

// Calls multiply(tile of the first rows, their number) for 16 rows at a time, with shapes set for them.
template <typename Multiply>
LLTM_JIT_TILES void for_each_tile(int64_t rows, const Multiply& multiply) {
  constexpr int64_t kRows = 16;
  const int64_t whole = rows / kRows * kRows;
  const auto run = [&](int64_t begin, int64_t end, int64_t step) LLTM_JIT_TILES {
    if (begin == end) return;
    const TileShapes shapes(step);
    _tile_loadconfig(&shapes);
    for (int64_t row = begin; row < end; row += step) multiply(row);
    _tile_release();
  };
  run(0, whole, kRows);
  run(whole, rows, rows - whole);
}

#endif

}  // namespace lltm_jit
