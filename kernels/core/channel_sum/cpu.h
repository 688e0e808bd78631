// Sums of a dense tensor [outer, channels, inner] over all dimensions but the channels, on the CPU: a
// bias's gradient.
//
// Note [Sums in a fixed order]
// A channel's outer * inner items are divided into parts whose number depends on the sizes alone.
// Each part is summed in a fixed order, and then the parts' sums are added from the first to the
// last. So neither the number nor the timing of the threads changes a bit.
#pragma once

#include <algorithm>

#include "core/launch/parallel.h"
#include "core/types/vectorized.h"

namespace lltm_jit {

struct ChannelSumArgs {
  const void* x;  // [outer, channels, inner], dense
  void* sums;     // [channels], written
  void* parts;    // [channel_sum_parts(), channels] of the arithmetic type, written
  int64_t outer, channels, inner;
};

// The number of parts: enough for every core of a large chip. Where inner is 1, a task sums many
// channels at once, so its parts are shorter.
inline int64_t channel_sum_parts(const ChannelSumArgs& args) {
  constexpr int64_t kMostParts = 256;
  const int64_t parts = args.outer * args.inner / (args.inner == 1 ? 128 : 4096);
  return std::clamp(parts, int64_t(1), kMostParts);
}

// A block has this many terms, and a block of blocks has this many blocks: rounding errors grow
// with the longest chain of additions.
constexpr int64_t kSumBlock = 16;

// Calls add(sum, first, last) for each block of [0, count), and adds up the blocks' sums.
template <typename Vec, typename Add>
inline Vec sum_blocks(int64_t count, const Add& add) {
  Vec sum(0);
  for (int64_t first = 0; first < count; first += kSumBlock * kSumBlock) {
    const int64_t last = std::min(count, first + kSumBlock * kSumBlock);
    Vec blocks(0);
    for (int64_t begin = first; begin < last; begin += kSumBlock) {
      Vec block(0);
      add(block, begin, std::min(last, begin + kSumBlock));
      blocks = blocks + block;
    }
    sum = sum + blocks;
  }
  return sum;
}

// The sums of `columns` columns over rows that are `stride` elements apart.
template <typename scalar_t, typename out_t>
void sum_rows(const scalar_t* rows, int64_t stride, int64_t count, int64_t columns, out_t* sums) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  for (int64_t i = 0; i < columns; i += Vec::size()) {
    const int64_t n = std::min<int64_t>(Vec::size(), columns - i);
    const Vec sum = sum_blocks<Vec>(count, [&](Vec& block, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) block = block + load(rows + row * stride + i, n);
    });
    store(sums + i, sum, n);
  }
}

// The sum of neighbouring elements.
template <typename scalar_t>
opmath_t<scalar_t> sum_run(const scalar_t* run, int64_t count) {
  using Vec = at::vec::Vectorized<opmath_t<scalar_t>>;
  const int64_t vectors = ceil_div(count, static_cast<int64_t>(Vec::size()));
  const Vec sum = sum_blocks<Vec>(vectors, [&](Vec& block, int64_t begin, int64_t end) {
    for (int64_t i = begin * Vec::size(); i < std::min(count, end * Vec::size());
         i += Vec::size()) {
      block = block + load(run + i, std::min<int64_t>(Vec::size(), count - i));
    }
  });
  return at::vec::vec_reduce_all<opmath_t<scalar_t>>(
      [](const Vec& a, const Vec& b) { return a + b; }, sum);
}

// Sums one channel's items [begin, end), which lie in runs of `inner`.
template <typename scalar_t>
opmath_t<scalar_t> sum_items(const ChannelSumArgs& args, int64_t channel, int64_t begin,
                             int64_t end) {
  opmath_t<scalar_t> sum = 0;
  for (int64_t item = begin; item < end;) {
    const int64_t outer = item / args.inner, place = item % args.inner;
    const int64_t count = std::min(end - item, args.inner - place);
    const int64_t run = (outer * args.channels + channel) * args.inner + place;
    sum += sum_run(static_cast<const scalar_t*>(args.x) + run, count);
    item += count;
  }
  return sum;
}

// The elements of x and of the sums have the type scalar_t.
template <typename scalar_t>
void channel_sum_as(const ChannelSumArgs& args) {
  constexpr int64_t kChannels = 64;  // per task
  const int64_t items = args.outer * args.inner, blocks = ceil_div(args.channels, kChannels);
  const int64_t count = channel_sum_parts(args);
  auto* parts = static_cast<opmath_t<scalar_t>*>(args.parts);
  const auto task = [&](int64_t index) {
    const int64_t part = index / blocks, first = index % blocks * kChannels;
    const int64_t last = std::min(args.channels, first + kChannels);
    const int64_t begin = items * part / count, end = items * (part + 1) / count;
    auto* sums = parts + part * args.channels;
    if (args.inner == 1) {
      const auto* rows = static_cast<const scalar_t*>(args.x) + begin * args.channels + first;
      sum_rows(rows, args.channels, end - begin, last - first, sums + first);
      return;
    }
    for (int64_t channel = first; channel < last; ++channel) {
      sums[channel] = sum_items<scalar_t>(args, channel, begin, end);
    }
  };
  constexpr int64_t kGrainElements = 32768;
  const int64_t tasks = count * blocks, elements = std::max<int64_t>(1, items * args.channels);
  for_each_task(tasks, std::max<int64_t>(1, tasks * kGrainElements / elements), task);
  sum_rows(parts, args.channels, count, args.channels, static_cast<scalar_t*>(args.sums));
}

}  // namespace lltm_jit
