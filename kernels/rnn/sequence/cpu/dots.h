// Panels of bfloat16 weights, for processors with an instruction that multiplies pairs and adds both products in float.
// This is twice as fast as converting the weights, and takes half of the cache.
#pragma once

#include <cstring>

#include "core/products/processor.h"
#include "rnn/sequence/cpu/panels.h"
#include "rnn/sequence/cpu/tiles.h"

#if defined(CPU_CAPABILITY_AVX512) && (defined(__clang__) || __GNUC__ >= 10)
#define LLTM_JIT_BFLOAT16_DOTS 1
#include <immintrin.h>
#endif

namespace lltm_jit {

#ifdef LLTM_JIT_BFLOAT16_DOTS

template <int kRows, int kVectors>
__attribute__((target("avx512bf16"))) C10_NOINLINE void dot_pairs(const DotTile& tile) {
  constexpr int kLanes = 16;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = tile.initial == nullptr
                       ? _mm512_setzero_ps()
                       : _mm512_loadu_ps(tile.initial + r * tile.initial_stride + v * kLanes);
    }
  }
  const c10::BFloat16 *a = tile.a, *b = tile.b;
  const int64_t a_stride = tile.a_stride;
  for (int64_t k = 0; k < tile.pairs; ++k, a += 2, b += kVectors * 2 * kLanes) {
    __m512i columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      constexpr int kPairsAhead = 16;
      columns[v] = _mm512_loadu_si512(b + v * 2 * kLanes);
      __builtin_prefetch(b + (kPairsAhead * kVectors + v) * 2 * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int pair;
      std::memcpy(&pair, a + r * a_stride, sizeof(pair));
      const __m512i element = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)element, (__m512bh)columns[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(tile.c + r * tile.c_stride + v * kLanes, sums[r][v]);
    }
  }
}

// Takes kRows rows at a time, then half as many.
template <int kVectors, int kRows = 8>
void dot_rows(DotTile tile, int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    dot_pairs<kRows, kVectors>(tile);
    tile.a += kRows * tile.a_stride;
    tile.c += kRows * tile.c_stride;
    if (tile.initial != nullptr) tile.initial += kRows * tile.initial_stride;
  }
  if constexpr (kRows > 1) dot_rows<kVectors, kRows / 2>(tile, rows);
}

// Like Panels, but each vector has pairs of rows: [depth / 2, vectors, lanes, 2].
class DotPanels {
 public:
  using scalar_t = c10::BFloat16;
  using acc_t = float;
  using row_t = scalar_t;
  static constexpr bool kProduct = true;
  static constexpr int64_t kLanes = RegisterTile<acc_t>::kLanes;

  DotPanels(int64_t vectors, int64_t depth, int64_t /*block_depth*/ = 0)
      : depth_(depth), data_(aligned_zeros<scalar_t>(vectors * padded() * kLanes)) {}

  static bool supported() { return multiplies_in_hardware(ElementType::BFloat16); }

  static int64_t row_stride(int64_t depth) {
    return ceil_div(depth, 2 * kLanes) * 2 * kLanes + 2 * kLanes;
  }

  template <typename RowsOf>
  void pack_rows(int64_t begin, int64_t end, int64_t stride, const RowsOf& rows_of) {
    for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
      scalar_t* panel = data_.get() + first * padded() * kLanes;
      for (int64_t v = 0; v < vectors; ++v) {
        int64_t count;
        const scalar_t* rows = rows_of(first + v, count);
        for (int64_t k = 0; k < depth_; k += 2 * kLanes) {
          const int64_t n = std::min(2 * kLanes, depth_ - k);
          at::vec::Vectorized<float> block[kLanes];  // of pairs, which only move
          for (int64_t i = 0; i < kLanes; ++i) {
            block[i] =
                i < count ? load_pairs(rows + i * stride + k, n) : at::vec::Vectorized<float>(0.0f);
          }
          transpose(block);
          for (int64_t i = 0; 2 * i < n; ++i) {
            block[i].store(panel + ((k / 2 + i) * vectors + v) * 2 * kLanes);
          }
        }
      }
    });
  }

  void pack_columns(int64_t begin, int64_t end, const scalar_t* matrix, int64_t stride,
                    int64_t column_count) {
    for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
      scalar_t* panel = data_.get() + first * padded() * kLanes;
      for (int64_t k = 0; k < depth_; ++k) {
        for (int64_t v = 0; v < vectors; ++v) {
          const int64_t column = (first + v) * kLanes;
          const int64_t n = std::min(kLanes, column_count - column);
          scalar_t* target = panel + (k / 2 * vectors + v) * 2 * kLanes + k % 2;
          for (int64_t i = 0; i < n; ++i) target[2 * i] = matrix[k * stride + column + i];
        }
      }
    });
  }

  C10_NOINLINE void multiply(const row_t* a, int64_t a_stride, int64_t rows, int64_t begin,
                             int64_t end, const acc_t* initial, acc_t* c, int64_t c_stride) const {
#ifdef LLTM_JIT_BFLOAT16_TILES
    if (has_matrix_unit()) {
      for_each_tile(rows, [&](int64_t row) {
        for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
          const int64_t column = (first - begin) * kLanes;
          DotTile tile{};
          tile.a = a + row * a_stride;
          tile.a_stride = a_stride;
          tile.b = data_.get() + first * padded() * kLanes;
          tile.pairs = padded() / 2;
          tile.initial = initial != nullptr ? initial + column : nullptr;
          tile.c = c + row * c_stride + column;
          tile.c_stride = c_stride;
          vectors == 3   ? multiply_tile<3>(tile)
          : vectors == 2 ? multiply_tile<2>(tile)
                         : multiply_tile<1>(tile);
        });
      });
      return;
    }
#endif
    for_each_panel<acc_t>(begin, end, [&](int64_t first, int64_t vectors) {
      const int64_t column = (first - begin) * kLanes;
      DotTile tile{};
      tile.a_stride = a_stride;
      tile.initial = initial != nullptr ? initial + column : nullptr;
      tile.c = c + column;
      tile.c_stride = c_stride;
      for (int64_t k = 0; k < depth_; k += kDepth) {
        tile.a = a + k;
        tile.b = data_.get() + (first * padded() + k * vectors) * kLanes;
        tile.pairs = ceil_div(std::min(kDepth, depth_ - k), 2);
        vectors == 3   ? dot_rows<3>(tile, rows)
        : vectors == 2 ? dot_rows<2>(tile, rows)
                       : dot_rows<1>(tile, rows);
        tile.initial = tile.c;
        tile.initial_stride = c_stride;
      }
    });
  }

 private:
  static constexpr int64_t kDepth = SequenceCpuBounds::kPairsDepth;

  const int64_t depth_;
  const AlignedArray<scalar_t> data_;

  // Loads up to 2 * kLanes elements, followed by zeros.
  static at::vec::Vectorized<float> load_pairs(const scalar_t* source, int64_t count) {
    if (count == 2 * kLanes) return at::vec::Vectorized<float>::loadu(source);
    scalar_t elements[2 * kLanes] = {};
    std::copy_n(source, count, elements);
    return at::vec::Vectorized<float>::loadu(elements);
  }

  // The matrix unit takes this many rows at a time.
  int64_t padded() const { return ceil_div(depth_, 2 * kLanes) * 2 * kLanes; }
};

#endif

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls function(scalar_t{}, TypeTag<Weights>{}) with the fastest panels for the type on this processor.
template <typename Function>
void dispatch_weights(ElementType type, const Function& function) {
#ifdef LLTM_JIT_BFLOAT16_DOTS
  if (type == ElementType::BFloat16 && DotPanels::supported()) {
    return function(c10::BFloat16{}, TypeTag<DotPanels>{});
  }
#endif
  dispatch_floating(
      type, [&](auto scalar) { function(scalar, TypeTag<Panels<opmath_t<decltype(scalar)>>>{}); });
}

}  // namespace lltm_jit
