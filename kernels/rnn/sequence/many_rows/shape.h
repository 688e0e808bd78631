// The division of the work on a sequence with many rows.
//
// Note [Many rows]
// A cluster of blocks has some hidden units for the whole sequence. Its blocks divide k. For its part of k, a block has
// the weights of all the cluster's units in shared memory, and multiplies them by this part of the previous step's
// results from all clusters (forward h, backward the gradients of the gates). To read these results takes most of the
// time; a block reads only its part of them, and no weights. The blocks send one another sums through distributed
// shared memory (DSMEM), and each finishes some of the sums: forward a block of a pair has half of the units, backward
// each of eight blocks has a quarter of a tile's 64 rows and half of the units. A warpgroup of each block has a tile to
// itself, from copies to stores, so that one tile is multiplied while another waits. Steps exchange results through
// global memory, in the layout of the products, by bulk copies. A counter per tile shows that all clusters have written
// a step. Steps alternate between two copies. A block arrives at step i when its products have ended, and no block
// writes the copy that step i - 1 has read before all blocks have arrived at step i. Floats, if TF32 is allowed, are
// exchanged and multiplied as in Note [Floats in one half] (../numbers/halves.cuh): every eight numbers of a row have a
// scale, and its exponent is exchanged with them. The reader brings a row's numbers to the scale of the largest that it
// reads, and each column of weights has a scale. If not all tiles fit at once, rows take turns, with a launch for each
// turn.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"

namespace lltm_jit {

struct ManyRowsShape {
  int blocks;    // of a cluster: 2 forward, 8 backward
  int units;     // of a cluster, a multiple of 8
  int tiles;     // of 64 rows of the batch
  int chunks;    // of 64 of k, per block
  int stages;    // per tile, for chunks in flight
  bool reuses;   // whether sums arrive in the stages' memory
  int streamed;  // chunks of weights that are read from memory in each step
  bool scaled;   // floats are multiplied as halves

  static constexpr int kRows = 64, kChunk = 64, kTileBytes = kRows * kChunk * 2;
  static constexpr int kWeightStages = 2;  // for streamed weights
  static constexpr int kCounterBytes = 128, kBarrierBytes = 1024, kAlignment = 1024;

  LLTM_JIT_HOST_DEVICE constexpr int threads() const { return 128 * (tiles + 1); }
  LLTM_JIT_HOST_DEVICE constexpr bool backward() const { return blocks > 2; }
  // The products' columns, for all gates or units of a cluster. Each other block sends eights of them.
  LLTM_JIT_HOST_DEVICE constexpr int columns(int gates) const {
    return backward() ? units : gates * units;
  }
  // The eights of units that a block finishes. If the cluster has an odd number, the second block has one less.
  LLTM_JIT_HOST_DEVICE constexpr int own_eights() const { return (units / 8 + 1) / 2; }
  LLTM_JIT_HOST_DEVICE constexpr int received_eights(int gates) const {
    return own_eights() * (backward() ? 1 : gates);
  }
  // Bytes of the sums that a tile receives.
  LLTM_JIT_HOST_DEVICE constexpr int sum_bytes(int gates) const {
    return received_eights(gates) * (backward() ? blocks * 512 : 2048);
  }
  LLTM_JIT_HOST_DEVICE constexpr int chunk_bytes(int gates) const {
    return columns(gates) * kChunk * 2;
  }
  LLTM_JIT_HOST_DEVICE constexpr int resident() const { return chunks - streamed; }
  // Streamed chunks are spread evenly among the others.
  LLTM_JIT_HOST_DEVICE constexpr int streamed_before(int chunk) const {
    return chunk * streamed / chunks;
  }
  LLTM_JIT_HOST_DEVICE constexpr int weight_bytes(int gates) const {
    return (resident() + (streamed > 0 ? kWeightStages : 0)) * chunk_bytes(gates);
  }
  LLTM_JIT_HOST_DEVICE constexpr int constant_bytes(int gates, int parameters) const {
    return (gates + parameters) * units * int(sizeof(float));
  }
  // The exponents of a row's scales, one for each eight numbers that a block multiplies.
  LLTM_JIT_HOST_DEVICE constexpr int exponents() const { return scaled ? chunks * kChunk / 8 : 0; }
  LLTM_JIT_HOST_DEVICE constexpr int shared_bytes(int gates, int parameters) const {
    return kAlignment + weight_bytes(gates) + tiles * stages * kTileBytes +
           (reuses ? 0 : tiles * sum_bytes(gates)) + kBarrierBytes + tiles * kRows * exponents() +
           (scaled ? columns(gates) * int(sizeof(float)) : 0) + constant_bytes(gates, parameters);
  }
  // The number of turns that the batch takes, and the rows of a tile in each.
  LLTM_JIT_HOST_DEVICE constexpr int64_t turns(int64_t batch_size) const {
    return (batch_size + tiles * kRows - 1) / (tiles * kRows);
  }
  LLTM_JIT_HOST_DEVICE constexpr int tile_rows(int64_t batch_size) const {
    const int64_t of_batch = tiles * turns(batch_size);
    return static_cast<int>((batch_size + of_batch - 1) / of_batch + 7) / 8 * 8;
  }
  // A tile's memory: a cache line for its counter, and two copies of the exchanged numbers.
  LLTM_JIT_HOST_DEVICE constexpr int64_t row_bytes() const {
    return int64_t(blocks) * chunks * kChunk * 2;
  }
  LLTM_JIT_HOST_DEVICE constexpr int64_t numbers_bytes(int64_t batch_size) const {
    return tiles * (kCounterBytes + 2 * row_bytes() * tile_rows(batch_size));
  }
  LLTM_JIT_HOST_DEVICE constexpr int64_t exchange_bytes(int64_t batch_size) const {
    return numbers_bytes(batch_size) +
           int64_t(tiles) * 2 * blocks * tile_rows(batch_size) * exponents();
  }
  LLTM_JIT_HOST_DEVICE constexpr int64_t workspace_bytes(int64_t batch_size, int64_t hidden_size,
                                                         int gates) const {
    const int64_t clusters = (hidden_size + units - 1) / units;
    return exchange_bytes(batch_size) + clusters * blocks * streamed * chunk_bytes(gates);
  }
};

}  // namespace lltm_jit
