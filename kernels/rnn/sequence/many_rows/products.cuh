// The products of Note [Many rows] (shape.h): the exchanged numbers of a tile's rows times a block's weights.
#pragma once

#include "rnn/sequence/many_rows/cluster.cuh"

namespace lltm_jit {

template <typename scalar_t, typename Variant, int kGates>
struct ClusterProducts : ClusterBlock<scalar_t, Variant, kGates> {
  using Block = ClusterBlock<scalar_t, Variant, kGates>;
  using Block::barriers, Block::weights, Block::exponents, Block::inverses, Block::ring,
      Block::weight_stage, Block::streamed_before, Block::is_streamed;
  using Block::Block;
  using Block::kShape, Block::kN, Block::kChunks, Block::kChunkBytes, Block::kTileBytes,
      Block::kStages, Block::kStreamed, Block::kWeightStages, Block::kScaled,
      Block::kExponentsBytes;

  struct Slot {
    int index = 0, round = 0;
    int of_weights = 0, round_of_weights = 0;
    int count = 0;  // products so far
  };
  // Waits for a chunk's weights, and describes them.
  LLTM_JIT_DEVICE uint64_t weights_of(int chunk, const Slot& slot) const {
    if (!is_streamed(chunk)) {
      return matrix_descriptor(weights) + (chunk - streamed_before(chunk)) * (kChunkBytes >> 4);
    }
    barriers.weights_full[slot.of_weights].wait(slot.round_of_weights & 1);
    return matrix_descriptor(weight_stage(slot.of_weights));
  }
  // Goes on to the next chunk. Returns the stage of the chunk's weights, or -1 if they are not streamed.
  LLTM_JIT_DEVICE int advance(int chunk, Slot& slot) const {
    if (++slot.index == kStages) slot.index = 0, ++slot.round;
    if (!is_streamed(chunk)) return -1;
    const int stage = slot.of_weights;
    if (++slot.of_weights == kWeightStages) slot.of_weights = 0, ++slot.round_of_weights;
    return stage;
  }
  // Once the products with a stage of weights have ended; -1 for none.
  LLTM_JIT_DEVICE void free_weights(int stage) const {
    const bool tells = threadIdx.x % 32 == 0;
    if (kStreamed > 0 && tells && stage >= 0) barriers.weights_empty[stage].arrive();
  }

  LLTM_JIT_DEVICE void multiply(int tile, Slot& slot, float (&sums)[kN / 2]) const {
    LLTM_JIT_UNROLLED(i, kN / 2) sums[i] = 0;
    if constexpr (kScaled) {
      multiply_scaled(tile, slot, sums);
    } else {
      multiply_chunks(tile, slot, sums);
    }
  }

  LLTM_JIT_DEVICE void multiply_chunks(int tile, Slot& slot, float (&sums)[kN / 2]) const {
    const bool tells = threadIdx.x % 32 == 0;
    int before = 0, weights_before = -1;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      barriers.full[tile][slot.index].wait(slot.round & 1);
      const uint64_t a = matrix_descriptor(ring(tile) + slot.index * kTileBytes);
      const uint64_t b = weights_of(chunk, slot);
      fence_products();
      LLTM_JIT_UNROLLED(k, ManyRowsShape::kChunk / 16) {
        wgmma<scalar_t, kN>(sums, a + 2 * k, b + 2 * k);
      }
      commit_products();
      wait_for_products<1>();
      if (chunk > 0 && tells) barriers.empty[tile][before].arrive();
      free_weights(weights_before);
      before = slot.index;
      weights_before = advance(chunk, slot);
    }
    wait_for_products<0>();
    if (tells) barriers.empty[tile][before].arrive();
    free_weights(weights_before);
  }

  // The same with scaled halves. A chunk is read into registers, so that its slot is free before its products end.
  LLTM_JIT_DEVICE void multiply_scaled(int tile, Slot& slot, float (&sums)[kN / 2]) const {
    const int lane = threadIdx.x % 32;
    const bool tells = lane == 0;
    barriers.exponents_full[tile].wait(slot.count & 1);
    ++slot.count;
    const RowExponents<kChunks> rows(shared_address(exponents + tile * kExponentsBytes));
    uint32_t operands[2][4];
    int weights_before = -1;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      barriers.full[tile][slot.index].wait(slot.round & 1);
      const Words<2> of_chunk[2] = {load_shared<2>(rows.rows[0] + chunk * 8),
                                    load_shared<2>(rows.rows[1] + chunk * 8)};
      const uint32_t a = shared_address(ring(tile)) + slot.index * kTileBytes;
      const uint64_t b = weights_of(chunk, slot);
      LLTM_JIT_UNROLLED(k, ManyRowsShape::kChunk / 16) {
        load_scaled(operands[k % 2], a, k, rows, of_chunk);
        fence_products();
        wgmma_of_registers<kN>(sums, operands[k % 2], b + 2 * k);
        commit_products();
        wait_for_products<1>();  // the other operand is free
        if (k == 0) free_weights(weights_before);
      }
      __syncwarp();
      if (tells) barriers.empty[tile][slot.index].arrive();
      weights_before = advance(chunk, slot);
    }
    wait_for_products<0>();
    __syncwarp();
    if (tells) barriers.exponents_empty[tile].arrive();
    free_weights(weights_before);
    LLTM_JIT_UNROLLED(i, kN / 2) {
      const float of_column = inverses[i / 4 * 8 + lane % 4 * 2 + i % 2];
      sums[i] = sums[i] * rows.inverse(i / 2 % 2) * of_column;
    }
  }
};

}  // namespace lltm_jit
