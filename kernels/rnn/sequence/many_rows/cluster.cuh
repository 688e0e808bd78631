// What the kernels of Note [Many rows] (shape.h) share: the blocks of a cluster, the layout of their memory, and the
// exchange of data.
#pragma once

#include "core/launch/block.cuh"
#include "core/products/wgmma.cuh"
#include "rnn/sequence/many_rows/scaled_rows.cuh"
#include "rnn/sequence/many_rows/shape.h"

namespace lltm_jit {

LLTM_JIT_DEVICE void arrive_at(uint32_t barrier_in_cluster) {
  asm volatile(
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_in_cluster)
      : "memory");
}
LLTM_JIT_DEVICE void wait_in_cluster(const CopyBarrier& barrier, int parity) {
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
LLTM_JIT_DEVICE void send_four(uint32_t target, const float* four, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(target),
      "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]), "r"(barrier)
      : "memory");
}

LLTM_JIT_DEVICE float4 load_four(uint32_t source) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(source));
  return four;
}

// Code without wgmma allows one thread, which tells the host.
template <typename Variant>
constexpr int many_rows_threads = LLTM_JIT_HAS_WGMMA ? Variant::kShape.threads() : 1;

// Runs the kernel's two parts once weights are loaded: one thread per tile fetches what its warpgroup multiplies.
template <typename Variant, typename Bring, typename BringWeights, typename Run>
LLTM_JIT_DEVICE void run_cluster(const Bring& bring, const BringWeights& bring_weights,
                                 const Run& run) {
  constexpr int kTiles = Variant::kShape.tiles;
  // The registers of a multiplying thread, instead of an equal share.
  constexpr int kTaken = kTiles == 4 ? 112 : kTiles == 3 ? 160 : 240;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  synchronize_cluster();
  if (threadIdx.x >= 128 * kTiles) {
    if constexpr (kTiles > 1) give_registers<24>();
    const int tile = threadIdx.x / 32 % 4;
    if (threadIdx.x % 32 == 0 && tile < kTiles) bring(tile);
    if (Variant::kShape.streamed > 0 && threadIdx.x % 128 == 127) bring_weights();
    __syncwarp();
  } else {
    if constexpr (kTiles > 1) take_registers<kTaken>();
    run(int(threadIdx.x / 128));
  }
  synchronize_cluster();
}

template <typename scalar_t, typename Variant, int kGates>
struct ClusterBlock {
  static constexpr ManyRowsShape kShape = Variant::kShape;
  static constexpr int kTiles = kShape.tiles, kStages = kShape.stages, kChunks = kShape.chunks;
  static constexpr int kN = kShape.columns(kGates), kTileBytes = ManyRowsShape::kTileBytes;
  static constexpr int kChunkBytes = kShape.chunk_bytes(kGates);
  static constexpr int kStreamed = kShape.streamed, kWeightStages = ManyRowsShape::kWeightStages;
  static constexpr int64_t kRowBytes = kShape.row_bytes();
  // Sums arrive in parts if there is no room for all at once.
  static constexpr int kEights = kShape.received_eights(kGates);
  static constexpr int kParts =
      kShape.reuses ? ceil_div(kShape.sum_bytes(kGates), kStages* kTileBytes) : 1;
  static constexpr int kPart = ceil_div(kEights, kParts);
  static constexpr bool kScaled = kShape.scaled;
  static constexpr int kExponents = kShape.exponents();  // per row
  static constexpr int kExponentsBytes = ManyRowsShape::kRows * kExponents;

  struct Barriers {
    CopyBarrier full[kTiles][kStages], empty[kTiles][kStages], sums[kTiles], free[kTiles];
    CopyBarrier weights_full[kWeightStages], weights_empty[kWeightStages];
    CopyBarrier exponents_full[kTiles], exponents_empty[kTiles];
  };

  char *weights, *stages, *received;
  Barriers& barriers;
  char* exponents;  // of each tile: RowExponents
  float* inverses;  // of the scales of the weights' columns
  float* constants;
  char *workspace, *streamed;
  int rank, first_unit, tile_rows;
  int64_t numbers_bytes;

  LLTM_JIT_DEVICE ClusterBlock(char* dynamic, void* memory, int64_t batch_size)
      : weights(dynamic + (-shared_address(dynamic) & (ManyRowsShape::kAlignment - 1))),
        stages(weights + kShape.weight_bytes(kGates)),
        received(stages + kTiles * kStages * kTileBytes),
        barriers(*reinterpret_cast<Barriers*>(
            received + (kShape.reuses ? 0 : kTiles * kShape.sum_bytes(kGates)))),
        exponents(reinterpret_cast<char*>(&barriers) + ManyRowsShape::kBarrierBytes),
        inverses(reinterpret_cast<float*>(exponents + kTiles * kExponentsBytes)),
        constants(inverses + (kScaled ? kN : 0)),
        workspace(static_cast<char*>(memory)),
        streamed(workspace + ManyRowsShape(kShape).exchange_bytes(batch_size) +
                 int64_t(blockIdx.x) * kStreamed * kChunkBytes),
        rank(blockIdx.x % kShape.blocks),
        first_unit(int(blockIdx.x / kShape.blocks) * kShape.units),
        tile_rows(ManyRowsShape(kShape).tile_rows(batch_size)),
        numbers_bytes(ManyRowsShape(kShape).numbers_bytes(batch_size)) {
    static_assert(sizeof(Barriers) <= ManyRowsShape::kBarrierBytes);
    if (threadIdx.x != 0) return;
    for (int tile = 0; tile < kTiles; ++tile) {
      for (auto& each : barriers.full[tile]) each.init(1);
      for (auto& each : barriers.empty[tile]) each.init(4);
      barriers.sums[tile].init(1);
      barriers.free[tile].init(kShape.backward() ? kShape.blocks : 1);
    }
    for (auto& each : barriers.exponents_full) each.init(1);
    for (auto& each : barriers.exponents_empty) each.init(4);
    for (auto& each : barriers.weights_full) each.init(1);
    for (auto& each : barriers.weights_empty) each.init(4 * kTiles);
    publish_barriers();
  }

  LLTM_JIT_DEVICE unsigned* counter(int tile) const {
    return reinterpret_cast<unsigned*>(workspace + tile * ManyRowsShape::kCounterBytes);
  }
  // The numbers of a tile's rows in a step, [chunks][rows] of 128 bytes, in the layout of the products.
  LLTM_JIT_DEVICE char* exchanged(int tile, int64_t step) const {
    return workspace + kTiles * ManyRowsShape::kCounterBytes +
           (tile * 2 + (step & 1)) * kRowBytes * tile_rows;
  }
  LLTM_JIT_DEVICE char* exchanged(int tile, int64_t step, int row, int64_t k) const {
    const int piece = int(k % 64) / 8;
    return exchanged(tile, step) + (k / 64 * tile_rows + row) * 128 + (piece ^ (row & 7)) * 16 +
           k % 8 * 2;
  }
  // The exponents of a tile's scales, [blocks][rows] of kExponents.
  LLTM_JIT_DEVICE char* exchanged_exponents(int tile, int64_t step, int block) const {
    return workspace + numbers_bytes +
           (int64_t(tile * 2 + (step & 1)) * kShape.blocks + block) * tile_rows * kExponents;
  }
  // Writes two numbers of a row to the exchanged numbers of a step, if they exist. All lanes of a
  // warp must call this; four lanes have an eight.
  LLTM_JIT_DEVICE void send_two(int tile, int64_t step, int row, int64_t k, bool there,
                                const float (&two)[2]) const {
    if constexpr (kScaled) {
      const ScaledTwo scaled(two[0], two[1]);
      if (!there) return;
      *reinterpret_cast<uint32_t*>(exchanged(tile, step, row, k)) = scaled.halves;
      if (k % 8 != 0) return;
      const int eight = int(k / 8), block = eight / kExponents;
      exchanged_exponents(tile, step, block)[row * kExponents + eight % kExponents] =
          static_cast<char>(scaled.exponent);
    } else if (there) {
      store_pack<2>(reinterpret_cast<scalar_t*>(exchanged(tile, step, row, k)), two);
    }
  }
  LLTM_JIT_DEVICE char* ring(int tile) const { return stages + tile * kStages * kTileBytes; }
  // Where a tile's sums arrive.
  LLTM_JIT_DEVICE char* sums_of(int tile) const {
    return kShape.reuses ? ring(tile) : received + tile * kShape.sum_bytes(kGates);
  }
  LLTM_JIT_DEVICE char* weight(int n, int in_block) const {
    const int chunk = in_block / 64, piece = in_block % 64 / 8, before = streamed_before(chunk);
    char* target = is_streamed(chunk) ? streamed + before * kChunkBytes
                                      : weights + (chunk - before) * kChunkBytes;
    return target + n * 128 + (piece ^ (n & 7)) * 16 + in_block % 8 * 2;
  }
  static LLTM_JIT_DEVICE int streamed_before(int chunk) { return chunk * kStreamed / kChunks; }
  static LLTM_JIT_DEVICE bool is_streamed(int chunk) {
    return streamed_before(chunk + 1) > streamed_before(chunk);
  }
  LLTM_JIT_DEVICE char* weight_stage(int slot) const {
    return weights + (kShape.resident() + slot) * kChunkBytes;
  }

  // Also called by one thread: fetches the streamed weights of `steps` steps.
  LLTM_JIT_DEVICE void bring_weights(int64_t steps) const {
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

  // Called by one thread: fetches a tile's chunks for `count` steps from `first` on, each once all
  // blocks have arrived step + arrived times.
  LLTM_JIT_DEVICE void bring(int tile, int64_t first, int64_t count, int arrived) const {
    int slot = 0, round = 0;
    const int bytes = tile_rows * 128;
    for (int64_t step = first; step < first + count; ++step) {
      const unsigned target = unsigned(step + arrived) * gridDim.x;
      unsigned there;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(there)
                     : "l"(counter(tile))
                     : "memory");
      } while (int(there - target) < 0);
      asm volatile("fence.proxy.async;" ::: "memory");
      if constexpr (kScaled) {
        if (step > first) barriers.exponents_empty[tile].wait(int(step - first - 1) & 1);
        auto& full = barriers.exponents_full[tile];
        full.arrive_and_expect(tile_rows * kExponents);
        copy_bulk(shared_address(exponents + tile * kExponentsBytes),
                  exchanged_exponents(tile, step, rank), tile_rows * kExponents, full);
      }
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

  // Synchronises the tile's warpgroup.
  LLTM_JIT_DEVICE void synchronize(int tile) const {
    asm volatile("bar.sync %0, 128;" ::"r"(tile + 1) : "memory");
  }
  // Called when all threads have written their part of a step.
  LLTM_JIT_DEVICE void arrive(int tile) const {
    asm volatile("fence.proxy.async;" ::: "memory");
    synchronize(tile);
    if (threadIdx.x % 128 == 0) {
      asm volatile(
          "fence.acq_rel.gpu;\nred.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter(tile))
          : "memory");
    }
  }
};

}  // namespace lltm_jit
