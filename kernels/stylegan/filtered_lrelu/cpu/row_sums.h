// Weighted sums of rows, the building blocks of all filters on the CPU, and rows in parts.
#pragma once

#include <vector>

#include "core/types/vectorized.h"
#include "stylegan/filtered_lrelu/maths.h"

namespace lltm_jit {

template <typename acc_t>
constexpr int kLanes = at::vec::Vectorized<acc_t>::size();

template <typename acc_t>
int whole_vectors(int count) {
  return ceil_div(count, kLanes<acc_t>) * kLanes<acc_t>;
}

// Collects rows with weights, and computes target[i] = finish(sum of weights[k] * rows[k][i]) for
// `n` elements; the last vector is computed and stored whole.
template <typename acc_t>
struct WeightedSum {
  std::vector<const acc_t*> rows;
  std::vector<acc_t> weights;

  void clear() {
    rows.clear();
    weights.clear();
  }
  void add(const acc_t* row, acc_t weight) {
    rows.push_back(row);
    weights.push_back(weight);
  }

  template <int kVectors, typename Finish>
  void write_block(acc_t* target, int i, const Finish& finish) const {
    using Vec = at::vec::Vectorized<acc_t>;
    Vec sums[kVectors];
    for (auto& sum : sums) sum = Vec(acc_t(0));
    const size_t count = rows.size();
    for (size_t k = 0; k < count; ++k) {
      const Vec weight(weights[k]);
      const acc_t* row = rows[k] + i;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = at::vec::fmadd(Vec::loadu(row + v * Vec::size()), weight, sums[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) finish(sums[v]).store(target + i + v * Vec::size());
  }

  template <typename Finish>
  void write(acc_t* target, int n, const Finish& finish) const {
    constexpr int kVectors = 4;
    int i = 0;
    for (; i + (kVectors - 1) * kLanes<acc_t> < n; i += kVectors * kLanes<acc_t>) {
      write_block<kVectors>(target, i, finish);
    }
    if (i + kLanes<acc_t> < n) {
      write_block<2>(target, i, finish);
      i += 2 * kLanes<acc_t>;
    }
    if (i < n) write_block<1>(target, i, finish);
  }
  void write(acc_t* target, int n) const {
    write(target, n, [](const auto& sum) { return sum; });
  }
};

// A filter's taps in the order in which samples meet them: see Note [Phases].
template <typename acc_t>
struct Taps {
  int width, height;
  bool separable;
  std::vector<acc_t> taps;

  explicit Taps(const FirFilter& filter)
      : width(filter.width), height(height_of(filter)), separable(filter.height == 0) {
    for (int y = 0; y < (separable ? 1 : height); ++y) {
      const int row = separable ? 0 : tap_index(y, height, filter.flip);
      for (int x = 0; x < width; ++x) {
        const int place = row * width + tap_index(x, width, filter.flip);
        taps.push_back(filter.taps ? filter.taps[place] : 1);
      }
    }
  }
  acc_t operator[](int x) const { return taps[x]; }
  acc_t at(int y, int x) const { return taps[y * width + x]; }
};

// Copies source[part][i] to target[i * parts + part], or the reverse.
template <int kParts, bool kBack, typename acc_t>
void interleave_by(acc_t* parts, int pitch, int count, int parts_count, acc_t* row) {
  const int step = kParts ? kParts : parts_count;
  for (int i = 0; i < count; ++i) {
    for (int part = 0; part < step; ++part) {
      if constexpr (kBack) {
        parts[part * pitch + i] = row[i * step + part];
      } else {
        row[i * step + part] = parts[part * pitch + i];
      }
    }
  }
}
template <bool kBack, typename acc_t>
void interleave(acc_t* parts, int pitch, int count, int parts_count, acc_t* row) {
  if (parts_count == 2) return interleave_by<2, kBack>(parts, pitch, count, 2, row);
  if (parts_count == 4) return interleave_by<4, kBack>(parts, pitch, count, 4, row);
  interleave_by<0, kBack>(parts, pitch, count, parts_count, row);
}

}  // namespace lltm_jit
