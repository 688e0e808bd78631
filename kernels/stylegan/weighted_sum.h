// Weighted sums of rows, the building blocks of all filters on the CPU.
#pragma once

#include <algorithm>
#include <vector>

#include "core/types/vectorized.h"

namespace lltm_jit {

template <typename T>
constexpr int kLanes = at::vec::Vectorized<T>::size();

template <typename T>
int whole_vectors(int count) {
  return ceil_div(count, kLanes<T>) * kLanes<T>;
}

// Collects rows with weights. Rows must be readable to the end of the vector that holds their last element.
template <typename T>
class WeightedSum {
  using Vec = at::vec::Vectorized<T>;

 public:
  struct Term {
    const T* row;
    T weight;
  };
  std::vector<Term> terms;

  // target[i] = finish(sum over terms of weight row[i]), for i in [0, n).
  template <typename out_t, typename Finish>
  void write(out_t* target, int64_t n, const Finish& finish) const {
    write_from<8>(target, n, 0, finish);
  }
  template <typename out_t>
  void write(out_t* target, int64_t n) const {
    write(target, n, [](const Vec& sum) { return sum; });
  }

 private:
  // Writes kVectors vectors at a time, which hides the latency of a sum, and then half as many.
  template <int kVectors, typename out_t, typename Finish>
  void write_from(out_t* target, int64_t n, int64_t i, const Finish& finish) const {
    constexpr int kLast = (kVectors - 1) * Vec::size();
    for (; i + kLast < n; i += kVectors * Vec::size()) {
      Vec sums[kVectors];
      for (auto& sum : sums) sum = Vec(T(0));
      for (const auto& [row, weight] : terms) {
        const Vec w(weight);
        LLTM_JIT_UNROLLED(v, kVectors) {
          sums[v] = at::vec::fmadd(w, Vec::loadu(row + i + v * Vec::size()), sums[v]);
        }
      }
      LLTM_JIT_UNROLLED(v, kVectors - 1) {
        store(target + i + v * Vec::size(), finish(sums[v]), Vec::size());
      }
      store(target + i + kLast, finish(sums[kVectors - 1]),
            std::min<int64_t>(Vec::size(), n - i - kLast));
    }
    if constexpr (kVectors > 1) write_from<kVectors / 2>(target, n, i, finish);
  }
};

}  // namespace lltm_jit
