// What the kernels of Note [Many rows] (shape.h) have in common: a product of what a step exchanges with weights in
// shared memory.
#pragma once

#include "core/launch/launch.cuh"
#include "core/memory/bulk_copy.cuh"
#include "rnn/sequence/many_rows/shape.h"
#include "rnn/sequence/many_rows/wide_product.cuh"

namespace lltm_jit {

__device__ __forceinline__ uint32_t address_in(uint32_t address, int block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
__device__ __forceinline__ void arrive_at(uint32_t barrier_in_cluster) {
  asm volatile(
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_in_cluster)
      : "memory");
}
__device__ __forceinline__ void wait_in_cluster(const CopyBarrier& barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n"
      "}" ::"r"(barrier.address()),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void synchronize_blocks() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
__device__ __forceinline__ void send_four(uint32_t target, const float* four, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(target),
      "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ float4 load_four(uint32_t source) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(source));
  return four;
}

// Where the code has no wgmma the kernel takes one thread, by which the host knows.
template <typename Variant>
constexpr int many_rows_threads = LLTM_JIT_HAS_WGMMA ? Variant::kShape.threads() : 1;

// Runs the kernel's two parts once weights are there: one thread of a tile brings what its warpgroup multiplies.
template <typename Variant, typename Bring, typename BringWeights, typename Run>
__device__ __forceinline__ void run_cluster(const Bring& bring, const BringWeights& bring_weights,
                                            const Run& run) {
  constexpr int kTiles = Variant::kShape.tiles;
  constexpr bool kMoves = kTiles == 4;  // registers, of which there are few
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  synchronize_blocks();
  if (threadIdx.x >= 128 * kTiles) {
    if constexpr (kMoves) give_registers<24>();
    const int tile = threadIdx.x / 32 % 4;
    if (threadIdx.x % 32 == 0 && tile < kTiles) bring(tile);
    if (Variant::kShape.streamed > 0 && threadIdx.x % 128 == 127) bring_weights();
    __syncwarp();
  } else {
    if constexpr (kMoves) take_registers<112>();
    run(int(threadIdx.x / 128));
  }
  synchronize_blocks();
}

template <typename scalar_t, typename Variant, int kGates>
struct ClusterBlock {
  static constexpr ManyRowsShape kShape = Variant::kShape;
  static constexpr int kTiles = kShape.tiles, kStages = kShape.stages, kChunks = kShape.chunks;
  static constexpr int kSummed = kGates;
  static constexpr int kN = kShape.columns(kGates), kTileBytes = ManyRowsShape::kTileBytes;
  static constexpr int kChunkBytes = kShape.chunk_bytes(kGates);
  static constexpr int kStreamed = kShape.streamed, kWeightStages = ManyRowsShape::kWeightStages;
  static constexpr int64_t kRowBytes = kShape.row_bytes();
  // Sums come in parts, if there is less room than for all.
  static constexpr int kEights = kShape.received_eights(kGates);
  static constexpr int kParts =
      kShape.reuses ? ceil_div(kShape.sum_bytes(kGates), kStages* kTileBytes) : 1;
  static constexpr int kPart = ceil_div(kEights, kParts);

  struct Barriers {
    CopyBarrier full[kTiles][kStages], empty[kTiles][kStages], sums[kTiles], free[kTiles];
    CopyBarrier weights_full[kWeightStages], weights_empty[kWeightStages];
  };

  char *weights, *stages, *received;
  Barriers& barriers;
  float* constants;
  char *workspace, *streamed;
  int rank, first_unit, tile_rows;
  unsigned arrivals;  // of a step, at a tile's counter

  __device__ __forceinline__ ClusterBlock(char* dynamic, void* memory, int64_t batch_size)
      : weights(dynamic + (-shared_address(dynamic) & (ManyRowsShape::kAlignment - 1))),
        stages(weights + kShape.weight_bytes(kGates)),
        received(stages + kTiles * kStages * kTileBytes),
        barriers(*reinterpret_cast<Barriers*>(
            received + (kShape.reuses ? 0 : kShape.finished_tiles() * kShape.sum_bytes(kGates)))),
        constants(reinterpret_cast<float*>(reinterpret_cast<char*>(&barriers) +
                                           ManyRowsShape::kBarrierBytes)),
        workspace(static_cast<char*>(memory)),
        streamed(workspace + ManyRowsShape(kShape).exchange_bytes(batch_size) +
                 int64_t(blockIdx.x) * kStreamed * kChunkBytes),
        rank(blockIdx.x % kShape.blocks),
        first_unit(int(blockIdx.x / kShape.blocks) * kShape.units),
        tile_rows(ManyRowsShape(kShape).tile_rows(batch_size)),
        arrivals(kShape.backward() ? gridDim.x : gridDim.x / kShape.blocks) {
    static_assert(sizeof(Barriers) <= ManyRowsShape::kBarrierBytes);
    if (threadIdx.x != 0) return;
    for (int tile = 0; tile < kTiles; ++tile) {
      for (auto& each : barriers.full[tile]) each.init(1);
      for (auto& each : barriers.empty[tile]) each.init(4);
      barriers.sums[tile].init(1);
      barriers.free[tile].init(kShape.backward() ? kShape.blocks : 1);
    }
    for (auto& each : barriers.weights_full) each.init(1);
    for (auto& each : barriers.weights_empty) each.init(4 * kTiles);
    publish_barriers();
  }

  __device__ __forceinline__ unsigned* counter(int tile) const {
    return reinterpret_cast<unsigned*>(workspace + tile * ManyRowsShape::kCounterBytes);
  }
  // What the rows of a tile have in a step, [chunks][rows] of 128 bytes, in the order that products take.
  __device__ __forceinline__ char* exchanged(int tile, int64_t step) const {
    return workspace + kTiles * ManyRowsShape::kCounterBytes +
           (tile * 2 + (step & 1)) * kRowBytes * tile_rows;
  }
  __device__ __forceinline__ char* exchanged(int tile, int64_t step, int row, int64_t k) const {
    const int piece = int(k % 64) / 8;
    return exchanged(tile, step) + (k / 64 * tile_rows + row) * 128 + (piece ^ (row & 7)) * 16 +
           k % 8 * 2;
  }
  __device__ __forceinline__ char* ring(int tile) const {
    return stages + tile * kStages * kTileBytes;
  }
  __device__ __forceinline__ char* weight(int n, int in_block) const {
    const int chunk = in_block / 64, piece = in_block % 64 / 8, before = streamed_before(chunk);
    char* target = is_streamed(chunk) ? streamed + before * kChunkBytes
                                      : weights + (chunk - before) * kChunkBytes;
    return target + n * 128 + (piece ^ (n & 7)) * 16 + in_block % 8 * 2;
  }
  static __device__ __forceinline__ int streamed_before(int chunk) {
    return chunk * kStreamed / kChunks;
  }
  static __device__ __forceinline__ bool is_streamed(int chunk) {
    return streamed_before(chunk + 1) > streamed_before(chunk);
  }
  __device__ __forceinline__ char* weight_stage(int slot) const {
    return weights + (kShape.resident() + slot) * kChunkBytes;
  }

  // One thread's work, too: the streamed weights of so many steps.
  __device__ __forceinline__ void bring_weights(int64_t steps) const {
    int slot = 0, round = 0;
    for (int64_t step = 0; step < steps; ++step) {
      for (int chunk = 0; chunk < kStreamed; ++chunk) {
        if (round > 0) barriers.weights_empty[slot].wait((round - 1) & 1);
        auto& full = barriers.weights_full[slot];
        full.arrive_and_expect(kChunkBytes);
        copy_bulk(shared_address(weight_stage(slot)), streamed + chunk * kChunkBytes, kChunkBytes,
                  full);
        if (++slot == kWeightStages) slot = 0, ++round;
      }
    }
  }

  // One thread's work: a tile's chunks, of steps from the first one on, that `arrived` times arrivals have written.
  __device__ __forceinline__ void bring(int tile, int64_t first, int64_t count, int arrived) const {
    int slot = 0, round = 0;
    const int bytes = tile_rows * 128;
    for (int64_t step = first; step < first + count; ++step) {
      const unsigned target = unsigned(step + arrived) * arrivals;
      unsigned there;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(there)
                     : "l"(counter(tile))
                     : "memory");
      } while (int(there - target) < 0);
      asm volatile("fence.proxy.async;" ::: "memory");
      const char* source = exchanged(tile, step) + int64_t(rank) * kChunks * bytes;
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (round > 0) barriers.empty[tile][slot].wait((round - 1) & 1);
        auto& full = barriers.full[tile][slot];
        full.arrive_and_expect(bytes);
        copy_bulk(shared_address(ring(tile)) + slot * kTileBytes, source, bytes, full);
        source += bytes;
        if (++slot == kStages) slot = 0, ++round;
      }
    }
  }

  // Of the tile's warpgroup.
  __device__ __forceinline__ void synchronize(int tile) const {
    asm volatile("bar.sync %0, 128;" ::"r"(tile + 1) : "memory");
  }
  // Once all threads have written their part of a step.
  __device__ __forceinline__ void arrive(int tile) const {
    asm volatile("fence.proxy.async;" ::: "memory");
    synchronize(tile);
    if (threadIdx.x % 128 == 0) {
      asm volatile(
          "fence.acq_rel.gpu;\nred.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter(tile))
          : "memory");
    }
  }

  struct Slot {
    int index = 0, round = 0;
    int of_weights = 0, round_of_weights = 0;
  };
  __device__ __forceinline__ void multiply(int tile, Slot& slot, float (&sums)[kN / 2]) const {
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) sums[i] = 0;
    const bool tells = threadIdx.x % 32 == 0;
    const uint64_t all_weights = matrix_descriptor(weights);
    int before = 0, weights_before = -1;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      barriers.full[tile][slot.index].wait(slot.round & 1);
      const uint64_t a = matrix_descriptor(ring(tile) + slot.index * kTileBytes);
      uint64_t b = all_weights + (chunk - streamed_before(chunk)) * (kChunkBytes >> 4);
      const bool from_memory = kStreamed > 0 && is_streamed(chunk);
      if (from_memory) {
        barriers.weights_full[slot.of_weights].wait(slot.round_of_weights & 1);
        b = matrix_descriptor(weight_stage(slot.of_weights));
      }
      fence_products();
#pragma unroll
      for (int k = 0; k < ManyRowsShape::kChunk / 16; ++k) {
        multiply_wide<scalar_t, kN>(sums, a + 2 * k, b + 2 * k);
      }
      commit_products();
      wait_for_products<1>();
      if (chunk > 0 && tells) barriers.empty[tile][before].arrive();
      if (kStreamed > 0 && tells && weights_before >= 0) {
        barriers.weights_empty[weights_before].arrive();
      }
      weights_before = -1;
      if (from_memory) {
        weights_before = slot.of_weights;
        if (++slot.of_weights == kWeightStages) slot.of_weights = 0, ++slot.round_of_weights;
      }
      before = slot.index;
      if (++slot.index == kStages) slot.index = 0, ++slot.round;
    }
    wait_for_products<0>();
    if (tells) barriers.empty[tile][before].arrive();
    if (kStreamed > 0 && tells && weights_before >= 0) {
      barriers.weights_empty[weights_before].arrive();
    }
  }
};

}  // namespace lltm_jit
