// The exchange of sums between the blocks of a cluster, Note [Many rows] (shape.h), one part at a time: forward
// the sums for the units of the pair's other block, backward the sums for each block's rows and units.
#pragma once

#include "rnn/sequence/many_rows/cluster.cuh"

namespace lltm_jit {

// The eights of a part: all parts except the last have equally many.
template <typename Block>
LLTM_JIT_DEVICE constexpr int eights_of(int part) {
  return min(Block::kPart, Block::kEights - part * Block::kPart);
}

// --------------------------------------------------------------------------------------- forward --

constexpr int kFours = 128 * 16;  // bytes that a warpgroup sends at once

// Whether a block of a pair finishes an eight. These eights come first.
template <typename Block>
LLTM_JIT_DEVICE constexpr bool finishes(int rank, int eight) {
  return rank == 0 || eight < Block::kShape.units / 8 - Block::kShape.own_eights();
}

// Exchanges the sums [gates][eights] of all units, and adds up this block's own. Calls meanwhile() while they are sent.
template <typename Block, typename Meanwhile>
LLTM_JIT_DEVICE void exchange_halves(const Block& block, int tile, int64_t count,
                                     float (&sums)[Block::kN / 2], const Meanwhile& meanwhile) {
  constexpr int kAll = Block::kShape.units / 8, kOwn = Block::kShape.own_eights();
  constexpr int kParts = Block::kParts, kPart = Block::kPart;
  const int other = block.rank ^ 1, thread = threadIdx.x % 128;
  const uint32_t here = shared_address(block.sums_of(tile)) + thread * 16;
  const uint32_t target = address_in(here, other);
  auto &there = block.barriers.sums[tile], &free = block.barriers.free[tile];
  const uint32_t barrier = address_in(there.address(), other);
  LLTM_JIT_UNROLLED(part, kParts) {
    const int parity = int(count * kParts + part) & 1;
    if (Block::kShape.reuses) block.synchronize(tile);  // the previous content has been read
    if (thread == 0) {
      int eights = 0;
      LLTM_JIT_UNROLLED(n, eights_of<Block>(part)) {
        eights += finishes<Block>(block.rank, (part * kPart + n) % kOwn);
      }
      there.arrive_and_expect(eights * kFours);
      if (Block::kShape.reuses) arrive_at(address_in(free.address(), other));
    }
    if (Block::kShape.reuses) wait_in_cluster(free, parity);
    LLTM_JIT_UNROLLED(n, eights_of<Block>(part)) {
      const int gate = (part * kPart + n) / kOwn, eight = (part * kPart + n) % kOwn;
      const int at = kOwn + eight < kAll ? kOwn + eight : eight;
      if (finishes<Block>(other, eight)) {
        send_four(target + n * kFours, sums + 4 * (gate * kAll + at), barrier);
      }
    }
    if (part + 1 == kParts) meanwhile();
    wait_in_cluster(there, parity);
    LLTM_JIT_UNROLLED(n, eights_of<Block>(part)) {
      const int gate = (part * kPart + n) / kOwn, eight = (part * kPart + n) % kOwn;
      float* four = sums + 4 * (gate * kAll + eight);
      const float4 more = load_four(here + n * kFours);
      four[0] += more.x, four[1] += more.y, four[2] += more.z, four[3] += more.w;
    }
  }
}

// -------------------------------------------------------------------------------------- backward --

// The place of a lane's four sums of an eight: [source][eight of a part] of 512 bytes.
template <typename Block>
LLTM_JIT_DEVICE constexpr uint32_t place_of_sums(int source, int eight) {
  return (source * Block::kPart + eight) * 512;
}

// Receives all blocks' sums for this block's elements, of own_eights eights, and calls add(n, four)
// for a lane's eight warp + 4 n.
template <typename Block, typename Add>
LLTM_JIT_DEVICE void exchange_sums(const Block& block, int tile, int warp, int lane, int own_eights,
                                   int64_t count, const float (&sums)[Block::kN / 2],
                                   const Add& add) {
  constexpr auto kShape = Block::kShape;
  constexpr int kBlocks = kShape.blocks, kParts = Block::kParts, kPart = Block::kPart;
  constexpr int kEights = Block::kEights;
  const uint32_t here = shared_address(block.sums_of(tile)) + lane * 16;
  auto &there = block.barriers.sums[tile], &free = block.barriers.free[tile];
  const int thread = threadIdx.x % 128;
  LLTM_JIT_UNROLLED(part, kParts) {
    const int parity = int(count * kParts + part) & 1;
    const int mine = min(kPart, own_eights - part * kPart);
    if (kShape.reuses) block.synchronize(tile);  // the previous content has been read
    if (thread == 0) there.arrive_and_expect(max(mine, 0) * kBlocks * 512);
    if (kShape.reuses) {
      if (thread < kBlocks) arrive_at(address_in(free.address(), thread));
      wait_in_cluster(free, parity);
    }
    LLTM_JIT_UNROLLED(half, kBlocks / 4) {
      const int to = half * 4 + warp;
      const uint32_t target = address_in(here, to) + place_of_sums<Block>(block.rank, 0);
      const uint32_t barrier = address_in(there.address(), to);
      LLTM_JIT_UNROLLED(eight, eights_of<Block>(part)) {
        const int all = half * kEights + part * kPart + eight;
        if (all < Block::kN / 8) send_four(target + eight * 512, sums + 4 * all, barrier);
      }
    }
    wait_in_cluster(there, parity);
    LLTM_JIT_UNROLLED(n, ceil_div(kEights, 4)) {
      const int eight = warp + 4 * n - part * kPart;
      if (eight < 0 || eight >= mine) continue;
      float4 all{};
      LLTM_JIT_UNROLLED(source, kBlocks) {
        const float4 more = load_four(here + place_of_sums<Block>(source, 0) + eight * 512);
        all.x += more.x, all.y += more.y, all.z += more.z, all.w += more.w;
      }
      add(n, all);
    }
  }
}

}  // namespace lltm_jit
