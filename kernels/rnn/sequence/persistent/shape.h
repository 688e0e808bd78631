// How the hidden units, the rows and the weights of a sequence are divided in a persistent kernel.
//
// Note [Persistent kernels]
// A set of blocks runs all steps for a few rows of the batch: one block, a cluster, or any number of blocks, which
// exchange h in another way (Note [The whole grid]). Each block has some groups of 16 hidden units, and their weights.
// A warp has the weights of one group and a part of k, in registers as operands A of the tensor cores, and in shared
// memory if they do not fit. The operand B is h of the step before (backward: the gradients of the gates of the step
// after), for all units of the cluster. Each block keeps a copy in shared memory, and each step sends its results to
// the copies of all other blocks. One or more of a group's warps add up the sums of all, and finish the step in float.
#pragma once

#include <cstdint>

#include "core/math/scalar.h"

namespace lltm_jit {

struct SequenceShape {
  int blocks;          // of a set
  int groups;          // of a block
  int splits;          // of k: the warps of a group
  int rows;            // of the batch, that a set has: 4 to 64, or 2 in one block of floats
  int phases;          // of a step, each for as many of the rows, Note [Phases]
  int shared_tiles;    // of a warp's weights, each 16 of k, that are in shared memory
  int streamed_tiles;  // and that are in memory, Note [Streamed weights]
  int bytes;           // of an element: 2 or 4
  bool grid;           // Note [The whole grid]; or the set is a cluster
  bool tf32 = false;   // floats are rounded to the precision of TF32, Note [Floats in one half]

  static constexpr int kUnits = 16;  // of a group, and of a tile of k
  static constexpr int kStages = 4;  // of what is read ahead of its step, a power of two

  // Sets of rows, of all recurrences.
  LLTM_JIT_HOST_DEVICE constexpr int64_t sets(int64_t batch_size, int recurrences) const {
    return recurrences * ((batch_size + rows - 1) / rows);
  }
  LLTM_JIT_HOST_DEVICE constexpr int tiles() const { return blocks * groups; }  // of k
  LLTM_JIT_HOST_DEVICE constexpr int tiles_of_warp() const {
    return (tiles() + splits - 1) / splits;
  }
  LLTM_JIT_HOST_DEVICE constexpr int register_tiles() const {
    return tiles_of_warp() - shared_tiles - streamed_tiles;
  }
  LLTM_JIT_HOST_DEVICE constexpr int padded_tiles() const { return tiles_of_warp() * splits; }
  LLTM_JIT_HOST_DEVICE constexpr int row_tiles() const {
    return rows > 8 ? rows / 8 : 1;
  }  // columns of B: tiles of 8
  LLTM_JIT_HOST_DEVICE constexpr int phase_tiles() const { return row_tiles() / phases; }
  // Whether a phase begins the loads of the next phase, which pays if products take long.
  LLTM_JIT_HOST_DEVICE constexpr bool loads_ahead() const { return phases > 1 && bytes == 4; }
  // Warps of a group that finish, a tile of rows each.
  LLTM_JIT_HOST_DEVICE constexpr int finishers() const { return row_tiles(); }
  // Forward, a step of few rows in one block is so short that a load ends some steps later.
  LLTM_JIT_HOST_DEVICE constexpr int forward_stages() const {
    return blocks == 1 && groups <= 2 && rows <= 4 ? 2 * kStages : kStages;
  }
  // One block of floats with so few units that all warps wait for the instructions of one.
  LLTM_JIT_HOST_DEVICE constexpr bool small_floats() const {
    return blocks == 1 && bytes == 4 && groups <= (tf32 || rows == 2 ? 4 : 2);
  }
  // Whether other warps load what the finishing warps read, backward in a cluster.
  LLTM_JIT_HOST_DEVICE constexpr bool helped() const {
    return blocks > 1 && !grid && splits >= 2 * finishers();
  }
  LLTM_JIT_HOST_DEVICE constexpr int warps() const { return groups * splits; }
  LLTM_JIT_HOST_DEVICE constexpr int threads() const { return 32 * warps(); }
  // Backward: whether as many other warps as finish compute the derivatives, Note [Derivatives beside].
  LLTM_JIT_HOST_DEVICE constexpr bool derives_beside() const {
    return small_floats() && splits == finishers() && warps() <= (rows == 2 ? 4 : 2);
  }
  LLTM_JIT_HOST_DEVICE constexpr int backward_threads() const {
    return derives_beside() ? 2 * threads() : threads();
  }
  // A finishing lane's numbers for a gate, and the 32-bit words for as many elements.
  LLTM_JIT_HOST_DEVICE constexpr int elements() const { return rows < 8 ? rows / 2 : 4; }
  LLTM_JIT_HOST_DEVICE constexpr int words() const { return elements() * bytes / 4; }
  // The rows and bytes of a tile of B.
  LLTM_JIT_HOST_DEVICE constexpr int tile_rows() const { return rows < 8 ? rows : 8; }
  LLTM_JIT_HOST_DEVICE constexpr int tile_bytes() const { return kUnits * bytes * tile_rows(); }

  // In bytes: operands of so many arrays of h's size.
  LLTM_JIT_HOST_DEVICE constexpr int operand_bytes(int arrays) const {
    return arrays * padded_tiles() * kUnits * rows * bytes;
  }
  // The tiles of k that a warp of a grid reads at once, with so many words per lane.
  LLTM_JIT_HOST_DEVICE constexpr int chunk_tiles(int arrays) const {
    const int words = arrays * phase_tiles() * bytes, most = arrays > 1 ? 32 : 16;
    return words < most ? most / words : 1;
  }
  // Memory of a grid: places for the operands of steps, which take turns; and for a block, its streamed weights.
  static constexpr int kPlaces = 128;  // a power of two, Note [Places in turn]
  LLTM_JIT_HOST_DEVICE static constexpr int64_t places(int64_t steps) {
    return steps < kPlaces ? steps + 1 : kPlaces;  // one of them for the step before the first one
  }
  LLTM_JIT_HOST_DEVICE constexpr int64_t operands_bytes(int64_t steps, int64_t sets,
                                                        int arrays) const {
    return sets * places(steps) * operand_bytes(arrays);
  }
  LLTM_JIT_HOST_DEVICE constexpr int streamed_bytes(int gates) const {
    return warps() * streamed_tiles * tile_of_weights_bytes(gates);
  }

  // Shared memory, in bytes: copies of the operand; `sums` per element of h that the warps of a group add; words
  // and floats that a lane reads ahead.
  LLTM_JIT_HOST_DEVICE constexpr int copy_bytes(int arrays) const {
    return grid ? 0 : 2 * operand_bytes(arrays);
  }
  LLTM_JIT_HOST_DEVICE constexpr int sum_copies() const { return grid ? 2 : 1; }
  LLTM_JIT_HOST_DEVICE constexpr int sum_bytes(int sums) const {
    return sum_copies() * groups * phase_tiles() * (splits - 1) * sums * elements() * 128;
  }
  // Note [Floats in one half]: whether the tensor cores multiply TF32 as it is.
  LLTM_JIT_HOST_DEVICE constexpr bool multiplies_tf32() const { return tf32 && small_floats(); }
  // Whether floats are rounded where they are made, instead of where they are multiplied.
  LLTM_JIT_HOST_DEVICE constexpr bool sends_tf32() const { return multiplies_tf32() && rows == 2; }
  // The bytes of a weight in products.
  LLTM_JIT_HOST_DEVICE constexpr int weight_size() const {
    return tf32 && !multiplies_tf32() ? 2 : bytes;
  }
  LLTM_JIT_HOST_DEVICE constexpr int tile_of_weights_bytes(int gates) const {
    return gates * kUnits * kUnits * weight_size();
  }
  LLTM_JIT_HOST_DEVICE constexpr int weight_bytes(int gates) const {
    return warps() * shared_tiles * tile_of_weights_bytes(gates);
  }
  LLTM_JIT_HOST_DEVICE constexpr int ring_bytes(int stages, int packs, int floats) const {
    return groups * finishers() * stages * (packs * words() + floats) * 128;
  }
  static constexpr int kBarrierBytes = 16;
  // Of a cell that normalises, besides: for each pair of a step's sums, two floats of each row and group, and a barrier.
  static constexpr int kForwardSums = 2, kBackwardSums = 4, kRowSumBarrier = 8;
  LLTM_JIT_HOST_DEVICE constexpr int row_sum_bytes(int pairs) const {
    return pairs * (tiles() * rows * 8 + kRowSumBarrier);
  }
  // For a cluster's backward pass, Note [Parts of sums]: the tiles of k that all warps of a block multiply, and the
  // tiles of hidden units that each of them does.
  LLTM_JIT_HOST_DEVICE constexpr bool sends_parts() const { return blocks > 1 && !grid; }
  LLTM_JIT_HOST_DEVICE constexpr int own_tiles(int gates) const { return groups * gates; }
  LLTM_JIT_HOST_DEVICE constexpr int output_tiles() const {
    return (tiles() + warps() - 1) / warps();
  }

  // Backward: whether pointers are advanced from step to step, if weights leave registers for them.
  LLTM_JIT_HOST_DEVICE constexpr bool keeps_pointers() const {
    const bool few_weights = warps() <= 8 && bytes * groups * output_tiles() <= 8;
    return blocks == 1 || (!grid && few_weights);
  }

  LLTM_JIT_HOST_DEVICE constexpr int forward_bytes(int gates) const {
    return copy_bytes(1) + sum_bytes(gates) + weight_bytes(gates) +
           ring_bytes(forward_stages(), gates, 0) + kBarrierBytes;
  }
  LLTM_JIT_HOST_DEVICE constexpr int backward_packs(int gates, bool adds_gates) const {
    return (adds_gates ? 1 : 2) * gates + 2;  // and the gradient of the output, and the old output
  }
  LLTM_JIT_HOST_DEVICE constexpr int backward_floats(int states) const {
    return (states - 1) * elements();
  }
  // Note [Derivatives beside]: the most numbers of an element's derivative and of what comes with it; and the bytes of
  // two steps' with so many.
  LLTM_JIT_HOST_DEVICE constexpr int derivative_numbers(int gates, int states, int parameters,
                                                        bool adds_gates) const {
    return states * ((adds_gates ? 1 : 2) * gates + parameters + states) + states;
  }
  LLTM_JIT_HOST_DEVICE constexpr int derivative_bytes(int numbers) const {
    return derives_beside() ? 2 * warps() * numbers * elements() * 128 : 0;
  }
  // Of exact floats of two rows, scales of two iterations for each group and row.
  LLTM_JIT_HOST_DEVICE constexpr int inverse_bytes() const {
    return rows == 2 && !tf32 ? 2 * groups * rows * 4 : 0;
  }
  LLTM_JIT_HOST_DEVICE constexpr int backward_bytes(int gates, int states, int parameters,
                                                    bool adds_gates) const {
    const int ring =
        ring_bytes(kStages, backward_packs(gates, adds_gates), backward_floats(states)) +
        derivative_bytes(derivative_numbers(gates, states, parameters, adds_gates));
    const int operands =
        sends_parts() ? copy_bytes(1) + 2 * own_tiles(gates) * kUnits * rows * bytes +
                            weight_bytes(output_tiles())
                      : copy_bytes(gates) + sum_bytes(1) + weight_bytes(gates) + inverse_bytes();
    return operands + ring + kBarrierBytes;
  }
};

}  // namespace lltm_jit
