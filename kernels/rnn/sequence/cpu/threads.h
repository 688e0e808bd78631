// The steps of a sequence on the CPU: how threads share the work.
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
#include "rnn/sequence/cpu/rows.h"
#include "rnn/sequence/cpu/steps.h"

namespace lltm_jit {

// One thread's work in each step: rows [row, row_end), and blocks of `lanes` units.
struct SequenceShare {
  int64_t index, row, row_end, block, block_end;
  int64_t unit, units;  // of the blocks
};

struct SequenceDivision {
  int64_t row_groups, unit_groups;  // units: per group of rows
  int64_t rows, units, lanes;       // in all, and of a block
  int64_t grain = 0;                // how many shares are worth waking a thread, if they never meet

  int64_t shares() const { return row_groups * unit_groups; }
  SequenceShare share(int64_t index) const {
    const int64_t r = index / unit_groups, u = index % unit_groups, blocks = ceil_div(units, lanes);
    const int64_t block = blocks * u / unit_groups, end = blocks * (u + 1) / unit_groups;
    const int64_t unit = block * lanes, unit_end = std::min(end * lanes, units);
    return {index, rows * r / row_groups, rows * (r + 1) / row_groups, block, end,
            unit,  unit_end - unit};
  }
};

// Divides the work, given the multiply-adds of a step, and the bytes of weights that a core should
// keep in its own cache, if any.
inline SequenceDivision divide_sequence(const SequenceSizes& sizes, int64_t lanes, int64_t products,
                                        int64_t cached = 0) {
  // Waking a thread takes a few microseconds; meeting at every step takes about one.
  constexpr int64_t kWorthWaking = 1 << 19, kWorthMeeting = 1 << 16;
  constexpr int64_t kTileRows = SequenceCpuBounds::kTileRows, kCache = 1 << 20;
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t parts = std::max<int64_t>(1, ceil_div(cached, kCache));
  const int64_t row_groups =
      std::min({std::max<int64_t>(1, threads / parts), ceil_div(sizes.batch_size, kTileRows),
                std::max<int64_t>(1, sizes.steps * products / kWorthWaking)});
  const int64_t unit_groups =
      std::min({threads / row_groups, ceil_div(sizes.hidden_size, lanes),
                std::max<int64_t>(1, products / row_groups / kWorthMeeting)});
  return {row_groups, unit_groups, sizes.batch_size, sizes.hidden_size, lanes};
}

// The same for a cell without a product, whose units never wait for each other: a share has some units of a row.
inline SequenceDivision divide_without_product(const SequenceSizes& sizes, int64_t lanes) {
  constexpr int64_t kMostUnits = 1024, kWorthWaking = 1 << 14;  // units of a step
  const int64_t rows = sizes.batch_size, units = sizes.hidden_size;
  const int64_t equal = ceil_div(rows * units, at::get_num_threads() * lanes) * lanes;
  const int64_t of_share = std::clamp(equal, lanes, kMostUnits);
  const int64_t grain = std::max<int64_t>(1, kWorthWaking / (sizes.steps * of_share));
  return {rows, ceil_div(units, of_share), rows, units, lanes, grain};
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

inline void pause_spinning() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Calls step(i, share) for each share and for i from 0 up to `steps`. Step i of all shares of a group of rows ends
// before any of them begins step i + 1. This works with any number of threads: even one may do all the work.
inline C10_NOINLINE void run_steps(const SequenceDivision& division, int64_t steps,
                                   c10::function_ref<void(int64_t, const SequenceShare&)> step) {
  struct alignas(64) Group {
    std::atomic<int64_t> arrived{0};
  };
  std::vector<Group> groups(division.row_groups);
  const auto run = [&](int64_t begin, int64_t end) {
    constexpr int kSpins = 256;  // a few microseconds, before the thread yields
    for (int64_t i = 0; i < steps; ++i) {
      for (int64_t s = begin; s < end; ++s) {
        step(i, division.share(s));
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

// Calls sequence.begin(share), step(i, share) likewise, and end(share), for shares that have all rows and units.
template <typename Sequence>
void run_shares(const SequenceDivision& division, int64_t steps, Sequence& sequence) {
  if (division.grain == 0) {
    const SequenceShare all{.row_end = division.rows, .units = division.units};
    sequence.begin(all);
    run_steps(division, steps, [&](int64_t i, const SequenceShare& s) { sequence.step(i, s); });
    sequence.end(all);
    return;
  }
  for_each_task(division.shares(), division.grain, [&](int64_t index) {
    const SequenceShare share = division.share(index);
    sequence.begin(share);
    for (int64_t i = 0; i < steps; ++i) sequence.step(i, share);
    sequence.end(share);
  });
}

}  // namespace lltm_jit
