// How the blocks of a cluster send one another the sums of Note [Many rows] (shape.h), a part at a time: forward to the
// block of a pair that finishes the tile, backward to each block those of its rows and units.
#pragma once

#include "rnn/sequence/many_rows/cluster.cuh"

namespace lltm_jit {

// Of a part: all but the last one have as many.
template <typename Block>
__device__ __forceinline__ constexpr int eights_of(int part) {
  return min(Block::kPart, Block::kEights - part * Block::kPart);
}

// --------------------------------------------------------------------------------------- forward --

constexpr int kFours = 128 * 16;  // bytes that a warpgroup sends at once

template <typename Block>
__device__ __forceinline__ void send_sums(const Block& block, int tile, int64_t step,
                                          const float (&sums)[Block::kN / 2], uint32_t target) {
  constexpr int kParts = Block::kParts, kPart = Block::kPart;
  const uint32_t barrier = address_in(block.barriers.sums[tile].address(), block.rank ^ 1);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (Block::kShape.reuses) {
      wait_in_cluster(block.barriers.free[tile], int(step * kParts + part) & 1);
    }
#pragma unroll
    for (int i = 0; i < eights_of<Block>(part); ++i) {
      send_four(target + i * kFours, sums + 4 * (part * kPart + i), barrier);
    }
  }
}

template <typename Block>
__device__ __forceinline__ void add_sums(const Block& block, int tile, int thread, int64_t step,
                                         float (&sums)[Block::kN / 2], uint32_t source) {
  constexpr int kParts = Block::kParts, kPart = Block::kPart;
  auto& there = block.barriers.sums[tile];
  const uint32_t free = address_in(block.barriers.free[tile].address(), block.rank ^ 1);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (Block::kShape.reuses) block.synchronize(tile);  // what lay here has been read
    if (thread == 0) {
      there.arrive_and_expect(eights_of<Block>(part) * kFours);
      if (Block::kShape.reuses) arrive_at(free);
    }
    wait_in_cluster(there, int(step * kParts + part) & 1);
#pragma unroll
    for (int i = 0; i < eights_of<Block>(part); ++i) {
      float* four = sums + 4 * (part * kPart + i);
      const float4 more = load_four(source + i * kFours);
      four[0] += more.x, four[1] += more.y, four[2] += more.z, four[3] += more.w;
    }
  }
}

// -------------------------------------------------------------------------------------- backward --

// A lane's four sums of an eight: [source][eight of a part] of 512 bytes.
template <typename Block>
__device__ __forceinline__ constexpr uint32_t place_of_sums(int source, int eight) {
  return (source * Block::kPart + eight) * 512;
}

// The sums that all blocks have of this one's elements come to it: calls add(n, four) for a lane's eight warp + 4 n, of
// which the block has own_eights.
template <typename Block, typename Add>
__device__ __forceinline__ void exchange_sums(const Block& block, int tile, int warp, int lane,
                                              int own_eights, int64_t count,
                                              const float (&sums)[Block::kN / 2], const Add& add) {
  constexpr auto kShape = Block::kShape;
  constexpr int kBlocks = kShape.blocks, kParts = Block::kParts, kPart = Block::kPart;
  constexpr int kEights = Block::kEights;
  const char* in_block =
      kShape.reuses ? block.ring(tile) : block.received + tile * kShape.sum_bytes(Block::kSummed);
  const uint32_t here = shared_address(in_block) + lane * 16;
  auto &there = block.barriers.sums[tile], &free = block.barriers.free[tile];
  const int thread = threadIdx.x % 128;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int parity = int(count * kParts + part) & 1;
    const int mine = min(kPart, own_eights - part * kPart);
    if (kShape.reuses) block.synchronize(tile);  // what lay here has been read
    if (thread == 0) there.arrive_and_expect(max(mine, 0) * kBlocks * 512);
    if (kShape.reuses) {
      if (thread < kBlocks) arrive_at(address_in(free.address(), thread));
      wait_in_cluster(free, parity);
    }
#pragma unroll
    for (int half = 0; half < kBlocks / 4; ++half) {
      const int to = half * 4 + warp;
      const uint32_t target = address_in(here, to) + place_of_sums<Block>(block.rank, 0);
      const uint32_t barrier = address_in(there.address(), to);
#pragma unroll
      for (int eight = 0; eight < eights_of<Block>(part); ++eight) {
        const int all = half * kEights + part * kPart + eight;
        if (all < Block::kN / 8) send_four(target + eight * 512, sums + 4 * all, barrier);
      }
    }
    wait_in_cluster(there, parity);
#pragma unroll
    for (int n = 0; n < ceil_div(kEights, 4); ++n) {
      const int eight = warp + 4 * n - part * kPart;
      if (eight < 0 || eight >= mine) continue;
      float4 all{};
#pragma unroll
      for (int source = 0; source < kBlocks; ++source) {
        const float4 more = load_four(here + place_of_sums<Block>(source, 0) + eight * 512);
        all.x += more.x, all.y += more.y, all.z += more.z, all.w += more.w;
      }
      add(n, all);
    }
  }
}

}  // namespace lltm_jit
