// The steps of a sequence on the CPU: how they find their rows, and how threads share the work.
//
// Note [Rows or units]
// The rows of a batch do not depend on each other, so a thread with rows of its own runs through the whole
// sequence without waiting. If there are too few rows for that, several threads share some rows. Each has a
// part of the hidden units and needs all threads' outputs at the next step, so they meet once per step. In
// the forward pass, threads also share rows if the weights do not fit a core's own cache: each thread then
// reads only a part of the weights. In the backward pass this would not pay, because the threads would
// exchange the gradients of all gates. The arithmetic of an element does not depend on the division.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "core/launch/parallel.h"
#include "core/types/vectorized.h"
#include "rnn/sequence/cpu/steps.h"

namespace lltm_jit {

// One thread's work in each step: rows [row, row_end), and blocks of units [block, block_end).
struct SequenceShare {
  int64_t row, row_end, block, block_end;
};

struct SequenceDivision {
  int64_t row_groups, unit_groups;  // units: per group of rows
  int64_t rows, blocks;             // in all

  int64_t shares() const { return row_groups * unit_groups; }
  SequenceShare share(int64_t index) const {
    const int64_t r = index / unit_groups, u = index % unit_groups;
    return {rows * r / row_groups, rows * (r + 1) / row_groups, blocks * u / unit_groups,
            blocks * (u + 1) / unit_groups};
  }
};

// Divides the work, given the multiply-adds of a step, and the bytes of weights that a core should
// keep in its own cache, if any.
inline SequenceDivision divide_sequence(int64_t steps, int64_t rows, int64_t blocks,
                                        int64_t products, int64_t cached = 0) {
  // Waking a thread takes a few microseconds; meeting at every step takes about one.
  constexpr int64_t kWorthWaking = 1 << 19, kWorthMeeting = 1 << 16;
  constexpr int64_t kTileRows = SequenceCpuBounds::kTileRows, kCache = 1 << 20;
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t parts = std::max<int64_t>(1, ceil_div(cached, kCache));
  const int64_t row_groups =
      std::min({std::max<int64_t>(1, threads / parts), ceil_div(rows, kTileRows),
                std::max<int64_t>(1, steps * products / kWorthWaking)});
  const int64_t unit_groups = std::min(
      {threads / row_groups, blocks, std::max<int64_t>(1, products / row_groups / kWorthMeeting)});
  return {row_groups, unit_groups, rows, blocks};
}

// Calls function(begin, end) for a share's blocks of units, `group` blocks at a time.
template <typename Function>
void for_each_group(const SequenceShare& share, int64_t group, const Function& function) {
  for (int64_t block = share.block; block < share.block_end; block += group) {
    function(block, std::min(share.block_end, block + group));
  }
}

// The same for all blocks, on several threads: pack(begin, end) packs block_weights weights per block.
inline C10_NOINLINE void pack_groups(const SequenceDivision& division, int64_t group,
                                     int64_t block_weights,
                                     c10::function_ref<void(int64_t, int64_t)> pack) {
  constexpr int64_t kWorthWaking = 1 << 16;
  std::vector<std::pair<int64_t, int64_t>> groups;
  // Shares with the same units have the same weights.
  for (int64_t u = 0; u < division.unit_groups; ++u) {
    for_each_group(division.share(u), group,
                   [&](int64_t begin, int64_t end) { groups.emplace_back(begin, end); });
  }
  at::parallel_for(0, groups.size(), ceil_div(kWorthWaking, group * block_weights),
                   [&](int64_t first, int64_t last) {
                     for (int64_t i = first; i < last; ++i) pack(groups[i].first, groups[i].second);
                   });
}

// The effect of a step on a row. A row that is held is not reset.
template <typename Args>
uint8_t control_of(const Args& args, int64_t step, int64_t row) {
  if (args.control == nullptr) return 0;
  const uint8_t control = args.control[step * args.control_step_stride + row];
  return control & kHolds ? kHolds : control;
}

inline void pause_spinning() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Row `row` of step `step`; null if the array is null.
template <typename T>
const T* row_of(const SequenceArray& array, int64_t step, int64_t row) {
  if (array.data == nullptr) return nullptr;
  return static_cast<const T*>(array.data) + step * array.step_stride + row * array.row_stride;
}
template <typename T>
T* row_of(const MutableSequenceArray& array, int64_t step, int64_t row) {
  return const_cast<T*>(
      row_of<T>(SequenceArray{array.data, array.step_stride, array.row_stride}, step, row));
}

// Copies a row to one of another type; zeros if it is null. Like add_row() it is compiled once for each pair of types:
// g++ would unroll and vectorise the conversions in every loop.
template <typename From, typename To>
C10_NOINLINE void copy_row(const From* row, int64_t count, To* target) {
  constexpr int64_t kLanes = at::vec::Vectorized<opmath_t<To>>::size();
  if (row == nullptr) return void(std::fill_n(target, count, To(0)));
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = std::min(kLanes, count - i);
    store(target + i, load(row + i, n), n);
  }
}
template <typename acc_t>
C10_NOINLINE void add_row(const acc_t* row, int64_t count, acc_t* target) {
  for (int64_t i = 0; i < count; ++i) target[i] += row[i];
}

// Calls step(i, s) for each share s and for i from 0 up to `steps`. Step i of all shares of a group of rows ends
// before any of them begins step i + 1. This works with any number of threads: even one may do all the work.
inline C10_NOINLINE void run_steps(const SequenceDivision& division, int64_t steps,
                                   c10::function_ref<void(int64_t, int64_t)> step) {
  struct alignas(64) Group {
    std::atomic<int64_t> arrived{0};
  };
  std::vector<Group> groups(division.row_groups);
  const auto run = [&](int64_t begin, int64_t end) {
    constexpr int kSpins = 256;  // a few microseconds, before the thread yields
    for (int64_t i = 0; i < steps; ++i) {
      for (int64_t s = begin; s < end; ++s) {
        step(i, s);
        groups[s / division.unit_groups].arrived.fetch_add(1, std::memory_order_release);
      }
      for (int64_t s = begin; s < end; ++s) {
        const auto& arrived = groups[s / division.unit_groups].arrived;
        for (int spins = 0;
             arrived.load(std::memory_order_acquire) < (i + 1) * division.unit_groups; ++spins) {
          if (spins < kSpins) {
            pause_spinning();
          } else {
            std::this_thread::yield();
          }
        }
      }
    }
  };
  at::parallel_for(0, division.shares(), 1, run);
}

}  // namespace lltm_jit
