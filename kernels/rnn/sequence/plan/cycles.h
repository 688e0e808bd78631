// What a plan costs a GPU: the cycles of a step, registers and shared memory.
#pragma once

#include <algorithm>

#include "rnn/sequence/plan/plan.h"
#include "rnn/sequence/steps/few_rows.h"

namespace lltm_jit {

// Note [What a step costs]
// The parts of a step come one after the other: data arrives, the warps of a quarter of an SM multiply, their sums
// meet, and the cell is computed. Clusters that do not fit on the chip at once run in turns. These are the numbers that
// were measured or fitted, in cycles of an H200; the functions below multiply them by sizes and small factors.
constexpr double kProduct = 6.2;          // of 16 x 8 by 16, in 16 bits, on a quarter of an SM
constexpr double kProductLatency = 24.4;  // until the next one to the same sums
constexpr double kFloatProduct = 40;      // Note [Floats in two halves]; as TF32 two thirds of it
constexpr double kSharedBytes = 200;      // a cycle, of weights that are in shared memory
constexpr double kExchange = 300;         // until another block sees what one has written
constexpr double kMemory = 1000;          // the same through memory, in a grid
constexpr double kBytes = 25;             // a cycle, that a block receives
constexpr double kWarp = 18;              // for each warp of a barrier or a sum
constexpr double kCell = 320;             // of any cell
constexpr double kElement = 18;           // of a gate's element
constexpr double kDerivative = 145;       // of an element
constexpr double kPhase = 390;            // for a phase and for each of its tiles, Note [Phases]
constexpr double kThreeTiles = 1.05;      // a factor: three tiles of rows, in float or in phases
constexpr double kManyTurns = 4, kLate = 1.1;  // a factor: so many turns of clusters, backward
// Step by step: a product's launch and a kernel's, in a graph; for each SM and cycle, multiply-adds of the library's
// products in 16 bits or TF32, and bytes of memory: of gates, and of the weights of floats; and the factor of few steps.
constexpr double kLaunches = 9000, kLibrary = 700, kMemoryBytes = 11, kFew = 1.2;

// What a pass costs in a persistent kernel of a shape.
struct ShapeCost {
  const SequenceSizes& sizes;
  SequencePass pass;
  const SequenceShape& shape;
  const SequenceGpu& gpu;
  bool forward = pass == SequencePass::Forward;

  // How many sets of blocks, clusters or grids, run at once, with one block on each SM. 0: none.
  int sets_at_once() const {
    if (shape.grid || shape.blocks == 1) return gpu.sms / shape.blocks;
    int size = 0;
    while (2 << size < shape.blocks) ++size;
    return gpu.clusters[size];
  }

  // Whether the blocks of a cluster send each other Note [Parts of sums] (persistent/products/gradients.cuh).
  bool sends_parts() const { return !forward && shape.sends_parts(); }

  // The work of a warp: tiles of k, and sums for each of them.
  struct WarpProducts {
    int tiles, sums;
  };
  WarpProducts warp_products() const {
    if (sends_parts()) return {shape.own_tiles(sizes.gates), shape.output_tiles()};
    return {shape.tiles_of_warp(), sizes.gates};
  }

  // The registers of a thread besides those for weights: with fewer, the loop over steps would spill.
  int registers_beside() const {
    const bool floats = sizes.type == ElementType::Float;
    const int elements = shape.elements(), row_tiles = shape.phase_tiles();
    const int apart = sizes.adds_gates ? 0 : sizes.gates * elements;
    const int of_operand = shape.grid ? (row_tiles > 1 ? 48 : 32) : 0;  // on its way from memory
    const int of_phases = row_tiles == 3 && shape.phases > 1 && !floats ? 16 : 0;
    const int streamed = shape.streamed_tiles > 0 ? 2 * shape.weight_size() * sizes.gates : 0;
    const int others = apart + of_operand + of_phases + streamed + 2 * sizes.parameters;
    if (forward) {
      const int of_sum = shape.streamed_tiles > 0 ? 6 : shape.grid ? 7 : 9;
      const int of_b = !floats ? 0 : shape.rows <= 4 ? 4 : of_sum * sizes.gates * row_tiles;
      const int of_states = std::max(0, sizes.states - 2) * elements;  // beyond those of most cells
      return 37 + (4 * sizes.gates + 2) * row_tiles + sizes.gates * elements + of_b + of_states +
             others;
    }
    const int of_derivative = elements * sizes.states * (sizes.gates + sizes.states - 1);
    const int ahead = shape.loads_ahead() ? 24 : 0;
    const int pointers = shape.keeps_pointers() ? 16 : 0;
    const int beside = of_derivative + (floats ? 14 : 0) + ahead + pointers + others;
    if (!sends_parts()) return 44 + 4 * sizes.gates * row_tiles + beside;
    // The derivative is not there yet while parts of sums are made.
    return (shape.helped() ? 28 + 38 * row_tiles : 48) + beside;
  }

  int tiles_in_registers() const {
    // Each quarter of an SM has as many for its warps.
    constexpr int kRegistersOfLanes = 16384 / 32, kMost = 255;
    const int warps = (shape.warps() + 3) / 4;
    const int of_thread = std::min(kMost, kRegistersOfLanes / warps / 8 * 8);
    return (of_thread - registers_beside()) / (2 * shape.weight_size() * warp_products().sums);
  }

  int shared_bytes() const {
    const int sums = forward ? SequenceShape::kForwardSums : SequenceShape::kBackwardSums;
    return (forward ? shape.forward_bytes(sizes.gates)
                    : shape.backward_bytes(sizes.gates, sizes.states, sizes.parameters,
                                           sizes.adds_gates)) +
           (sizes.normalises ? shape.row_sum_bytes(sums) : 0);
  }

  // The cycles of a product of one tile.
  double product_cycles() const {
    if (shape.bytes == 2) return kProduct;
    // In a grid half of the time passes while other warps wait for their part of k. Two rows need half of the products.
    const bool half = shape.grid ? forward || shape.tf32 : shape.rows == 2;
    return kFloatProduct * (shape.tf32 ? 2. / 3 : 1) / (half ? 2 : 1);
  }

  // The cycles that a step of the backward pass takes in addition.
  double backward_cycles(int sums) const {
    if (shape.derives_beside()) return kElement * shape.elements();
    const double derivative = kDerivative * shape.elements();
    if (shape.grid) return shape.bytes == 4 ? derivative : 0;
    if (shape.blocks == 1) return derivative * shape.bytes / 2;
    return derivative * (shape.row_tiles() - (shape.helped() ? 1 : 0)) +
           kWarp * (sums + shape.warps() / 4.);
  }

  double exchange_cycles() const {
    if (shape.blocks == 1) return kWarp * shape.warps();
    const double received =
        double(shape.bytes) * shape.tiles() * SequenceShape::kUnits * shape.rows;
    if (!shape.grid) return kExchange + received / kBytes;
    // A block of fewer than eight warps has fewer loads in flight, and backward it has twice as many of them.
    const double share = std::min(1.0, shape.warps() / 8.0);
    const double arrays = forward ? 1 : sizes.gates / 2.;
    return kMemory + received * arrays / (share * kBytes);
  }

  static constexpr int kReserved = 1024;  // bytes of shared memory, for each block

  // How many blocks fit on an SM, also by registers: a thread may have the most of them if there are eight warps. The
  // blocks of a grid wait for each other, and a block with weights in shared memory has an SM for itself.
  int blocks_of_sm() const {
    constexpr int kWarps = 8;
    if (shape.grid || shape.shared_tiles > 0) return 1;
    const int bytes = shared_bytes() + kReserved;
    const int warps = (forward ? shape.threads() : shape.backward_threads()) / 32;
    return std::max(1, std::min(kWarps / warps, (gpu.shared_bytes + kReserved) / bytes));
  }

  // How many of a set's blocks an SM has, if all sets run at once.
  int64_t blocks_for_all() const {
    const int64_t sets = shape.sets(sizes.batch_size, sizes.recurrences());
    return std::max<int64_t>(1, ceil_div(sets, int64_t(sets_at_once())));
  }

  // Note [Blocks apart]
  // A sequence may begin while the last blocks of a product still hold SMs. Its blocks would then gather on the other
  // SMs, where they take turns, for all steps. So each asks for so much shared memory that no more of them fit on an
  // SM than are needed there.
  int bytes_apart() const {
    constexpr int kUnit = 128;  // in which memory is given
    const int needed = shared_bytes();
    const int64_t all = blocks_for_all();
    if (shape.grid || all > blocks_of_sm()) return needed;
    const int of_each = (gpu.shared_bytes + kReserved) / static_cast<int>(all + 1);
    return std::max(needed, of_each - kReserved + kUnit);
  }

  double cycles() const {
    // The blocks of an SM, some of which run at once.
    const int64_t all = blocks_for_all();
    const auto at_once = std::min<int64_t>(all, blocks_of_sm());
    const auto turns = static_cast<double>(ceil_div(all, at_once));
    const int warps = static_cast<int>(at_once * shape.warps() + 3) / 4;
    const auto of_warp = warp_products();
    const int sums = of_warp.sums * shape.phase_tiles();
    const double products =
        of_warp.tiles * std::max(product_cycles() * warps * sums, kProductLatency);
    const double weights = shape.weight_bytes(of_warp.sums) / kSharedBytes +
                           shape.streamed_bytes(of_warp.sums) / (kBytes * (forward ? 2 : 0.5));
    const double split = shape.blocks == 1 ? kExchange
                         : sends_parts()   ? 0
                                           : kWarp * shape.phase_tiles() * shape.bytes / 2;
    const double cell = kCell + kElement * shape.elements() * sizes.gates;
    const double backward = forward ? 0 : backward_cycles(of_warp.sums);
    // Each finishing warp of other blocks on the same SM.
    const double beside = kWarp * (forward && shape.rows == 2 ? 1 : 4) *
                          static_cast<double>((at_once - 1) * shape.groups * shape.finishers());
    const double exchange = exchange_cycles();
    const double rest = beside + products + weights + split * (shape.splits - 1) + cell + backward;
    const bool three_tiles = shape.phase_tiles() == 3 && (shape.bytes == 4 || shape.phases > 1);
    const bool many_turns = sends_parts() && turns > kManyTurns;
    const double longer = turns * (three_tiles ? kThreeTiles : many_turns ? kLate : 1);
    if (shape.phases == 1) return longer * (exchange + rest);
    const double phase = kPhase * (1 + shape.phase_tiles()) + rest;
    return longer * std::max(shape.phases * phase, exchange + rest);
  }

  // Before the first step: a launch, and the weights' way to a block.
  double cycles_before_steps() const {
    const double bytes = double(sizes.gates) * SequenceShape::kUnits * shape.groups *
                         double(sizes.hidden_size) * shape.bytes;
    const int64_t sets = shape.sets(sizes.batch_size, sizes.recurrences());
    // The blocks of a grid stay for all rows.
    const int64_t turns = shape.grid ? 1 : ceil_div(sets, int64_t(sets_at_once()));
    const double rate = kBytes / (forward ? 1 : 2);
    return kLaunches / 2 + bytes / rate * static_cast<double>(turns);
  }
};

// The multiply-adds of the library's products, for each SM and cycle.
inline double library_rate(const SequenceSizes& sizes) {
  constexpr int kLanes = 128;  // of an SM, for exact floats
  return sizes.type == ElementType::Float && !sizes.tf32 ? kLanes : kLibrary;
}

// Of a step by itself, whose products the library computes, or Note [Few rows].
inline double cycles_of_steps(const SequenceSizes& sizes, const SequenceGpu& gpu) {
  const double units = static_cast<double>(sizes.hidden_size), columns = sizes.gates * units,
               rows = static_cast<double>(sizes.batch_size);
  const bool floats = sizes.type == ElementType::Float, exact = floats && !sizes.tf32;
  // Also for one row: the library, too, takes as long as reading the weights.
  const bool few = floats && few_rows_pay(sizes.batch_size, sizes.hidden_size, sizes.tf32);
  const double products = few ? 0 : rows * columns * units / library_rate(sizes);
  const double bytes = rows * columns * (floats ? 8 : 4) +  // read and written
                       (few || sizes.tf32 ? columns * units * 4 : 0);
  return (exact && !few ? 2 : 1) * kLaunches + (products + bytes / kMemoryBytes) / gpu.sms;
}

}  // namespace lltm_jit
