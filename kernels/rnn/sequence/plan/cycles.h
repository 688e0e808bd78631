// What a plan costs a GPU: the cycles of a step, registers and shared memory.
#pragma once

#include <algorithm>

#include "rnn/sequence/by_steps/few_rows.h"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {

// Note [What a step costs]
// The parts of a step come one after the other: data arrives, the warps of a quarter of an SM multiply, their sums
// meet, and the cell is computed. Clusters that do not fit on the chip at once run in turns. Times are in cycles,
// measured on an H200. The estimates are within some 10 % of the kernels'.
constexpr double kProduct = 6.2;          // of 16 x 8 by 16 on a quarter of an SM
constexpr double kProductLatency = 24.4;  // until the next one to the same sums
constexpr double kFloatProduct = 42;      // of floats, Note [Floats in two halves]
constexpr double kFloatInGrid = 24;       // forward, while other warps wait for their part of k
constexpr double kFloatInBlock = 40;      // in one block
constexpr double kRoundedProduct = 28, kRoundedInGrid = 14,
                 kTf32Product = 18;  // Note [Floats in one half]
// Of two rows, Note [Sent as multiplied] (numbers/halves.cuh). Backward, TF32 takes as long as with more rows.
constexpr double kFloatOfTwoRows = 18, kFloatOfTwoRowsBackward = 34, kTf32OfTwoRows = 11;
constexpr double kSharedBytes = 200;    // a cycle, of weights that are in shared memory
constexpr double kExchangedBytes = 21;  // a cycle, that a block can receive
constexpr double kExchange = 300, kExchangeOfBlock = 3.5;
constexpr double kCell = 150, kFloatCell = 250, kElement = 15;  // and of a gate's element
constexpr double kSplit = 20;  // for each other warp of a group, and twice in float
// In a grid: a word's way through memory, and the bytes per cycle that a block of 8 warps or more receives: of h,
// and of the gradients of gates, which have more loads in flight.
constexpr double kMemory = 1100, kMemoryBytes = 27, kMemoryBytesOfGates = 48;
constexpr double kFloatDerivativeInGrid = 450;
constexpr double kStreamedBytes = 60,
                 kStreamedBytesBackward = 10;  // a cycle, Note [Streamed weights]
// For each phase, the loads of what arrived during another phase; and for each tile of rows.
constexpr double kPhase = 500, kPhaseTile = 300, kFloatDerivativeTile = 350;
// Three tiles of rows, in float or in two phases: by how much longer a step takes.
constexpr double kThreeTiles = 1.1;
// One block: its barrier, for each warp; and warps that share k, which have less of a quarter of an SM.
constexpr double kBarrier = 20, kSplitOfBlock = 250;
// Backward in a cluster: the block's barrier, for each of its warps; parts of sums, for each block; and a warp's
// sends, for each tile of units.
constexpr double kWarp = 7, kPart = 4, kSend = 20;
// The derivative of an element, if it is not computed while parts are on their way: in one block; by its other warps,
// Note [Derivatives beside]; without helpers; or with as many helpers as finishing warps.
constexpr double kDerivativeInBlock = 170, kFloatDerivativeInBlock = 300;
constexpr double kDerivativeBeside = 20;
constexpr double kDerivativeAlone = 130, kDerivativeHelped = 75;
// In 16 bits, clusters of 16 blocks that take at least so many turns take longer by this factor.
constexpr int kLateTurns = 6;
constexpr double kLateTurn = 1.4;
// For each finishing warp of other blocks on the same SM; forward, of two rows; and with derivatives beside.
constexpr double kBeside = 70, kBesideOfTwoRows = 10, kBesideDerivatives = 45;
// Step by step: the launches of a product and a kernel within a graph, and the multiply-adds per cycle of both.
// Large products use larger tiles, with a higher rate and a longer launch.
constexpr double kLaunches = 9500, kLibrary = 60000;
constexpr double kLargeLaunches = 15700, kLargeLibrary = 160000;
constexpr double kFloatLaunches = 20000, kFloatLibrary = 17000;
// For floats as TF32 also the bytes of weights per cycle, which come from memory.
constexpr double kRoundedLaunches = 13000, kRoundedLibrary = 100000, kRoundedBytes = 1500;
// Before the first step: the states and a step without a product; or a launch, for a grid after a fill, and then
// the weights' way to a block, in bytes per cycle.
constexpr double kFirstStep = 9000, kBegin = 3500, kBeginOfGrid = 2700;
constexpr double kLoadedBytes = 20, kLoadedBytesBackward = 12;
// Note [Few rows]: its launches, and the bytes of weights per cycle.
constexpr double kFewRowsLaunches = 5000, kFewRowsBytes = 1440, kFewRowsBytesBackward = 970;

// How many sets of blocks, clusters or grids, run at once, with one block on each SM. 0: none.
inline int sets_at_once(const SequenceShape& shape, const SequenceGpu& gpu) {
  if (shape.grid || shape.blocks == 1) return gpu.sms / shape.blocks;
  int size = 0;
  while (2 << size < shape.blocks) ++size;
  return gpu.clusters[size];
}

// Whether the blocks of a cluster send each other Note [Parts of sums] (one_launch/products/gradients.cuh).
inline bool sends_parts(SequencePass pass, const SequenceShape& shape) {
  return pass == SequencePass::Backward && shape.sends_parts();
}

// The work of a warp: tiles of k, and sums for each of them.
struct WarpProducts {
  int tiles, sums;
};
inline WarpProducts warp_products(const SequenceSizes& sizes, SequencePass pass,
                                  const SequenceShape& shape) {
  if (sends_parts(pass, shape)) return {shape.own_tiles(sizes.gates), shape.output_tiles()};
  return {shape.tiles_of_warp(), sizes.gates};
}

// The registers of a thread besides those for weights: with fewer, the loop over steps would spill.
inline int registers_beside(const SequenceSizes& sizes, SequencePass pass,
                            const SequenceShape& shape) {
  const bool floats = sizes.type == ElementType::Float;
  const int elements = shape.elements(), row_tiles = shape.phase_tiles();
  const int apart = sizes.adds_gates ? 0 : sizes.gates * elements;
  const int of_operand = shape.grid ? (row_tiles > 1 ? 48 : 32) : 0;  // on its way from memory
  const int of_phases = row_tiles == 3 && shape.phases > 1 && !floats ? 16 : 0;
  const int streamed = shape.streamed_tiles > 0 ? 2 * shape.weight_size() * sizes.gates : 0;
  const int others = apart + of_operand + of_phases + streamed + 2 * sizes.parameters;
  if (pass == SequencePass::Forward) {
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
  if (!sends_parts(pass, shape)) return 44 + 4 * sizes.gates * row_tiles + beside;
  // The derivative is not there yet while parts of sums are made.
  return (shape.helped() ? 28 + 38 * row_tiles : 48) + beside;
}

inline int tiles_in_registers(const SequenceSizes& sizes, SequencePass pass,
                              const SequenceShape& shape) {
  // Each quarter of an SM has as many for its warps.
  constexpr int kRegistersOfLanes = 16384 / 32, kMost = 255;
  const int warps = (shape.warps() + 3) / 4;
  const int of_thread = std::min(kMost, kRegistersOfLanes / warps / 8 * 8);
  return (of_thread - registers_beside(sizes, pass, shape)) /
         (2 * shape.weight_size() * warp_products(sizes, pass, shape).sums);
}

inline int shared_bytes(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape) {
  const bool forward = pass == SequencePass::Forward;
  const int sums = forward ? SequenceShape::kForwardSums : SequenceShape::kBackwardSums;
  return (forward ? shape.forward_bytes(sizes.gates)
                  : shape.backward_bytes(sizes.gates, sizes.states, sizes.parameters,
                                         sizes.adds_gates)) +
         (sizes.normalises ? shape.row_sum_bytes(sums) : 0);
}

// The cycles that a step of the backward pass takes in addition.
inline double backward_cycles(const SequenceShape& shape, int sums) {
  if (shape.grid) return shape.bytes == 4 ? kFloatDerivativeInGrid : 0;
  if (shape.derives_beside()) return kDerivativeBeside * shape.elements();
  if (shape.blocks == 1) {
    return (shape.bytes == 4 ? kFloatDerivativeInBlock : kDerivativeInBlock) * shape.elements();
  }
  const double derivative = shape.helped() ? kDerivativeHelped * (shape.row_tiles() - 1)
                                           : kDerivativeAlone * shape.row_tiles();
  return kWarp * shape.warps() + kPart * shape.blocks + kSend * sums +
         derivative * shape.elements();
}

inline double exchange_cycles(const SequenceSizes& sizes, SequencePass pass,
                              const SequenceShape& shape) {
  const double received = double(shape.bytes) * shape.tiles() * SequenceShape::kUnits * shape.rows;
  if (shape.grid) {
    const double share = std::min(1.0, shape.warps() / 8.0);
    return kMemory + (pass == SequencePass::Forward
                          ? received / (share * kMemoryBytes)
                          : received * sizes.gates / (share * kMemoryBytesOfGates));
  }
  if (shape.blocks == 1) return kBarrier * shape.warps();
  return kExchange + kExchangeOfBlock * shape.blocks + received / kExchangedBytes;
}

constexpr int kReserved = 1024;  // bytes of shared memory, for each block

// How many blocks fit on an SM, also by registers: a thread may have the most of them if there are eight warps. The
// blocks of a grid wait for each other, and a block with weights in shared memory has an SM for itself.
inline int blocks_of_sm(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape,
                        const SequenceGpu& gpu) {
  constexpr int kWarps = 8;
  if (shape.grid || shape.shared_tiles > 0) return 1;
  const int bytes = shared_bytes(sizes, pass, shape) + kReserved;
  const bool backward = pass == SequencePass::Backward;
  const int warps = (backward ? shape.backward_threads() : shape.threads()) / 32;
  return std::max(1, std::min(kWarps / warps, (gpu.shared_bytes + kReserved) / bytes));
}

// How many of a set's blocks an SM has, if all sets run at once.
inline int64_t blocks_for_all(const SequenceSizes& sizes, const SequenceShape& shape,
                              const SequenceGpu& gpu) {
  const int64_t sets = shape.sets(sizes.batch_size, sizes.recurrences());
  return std::max<int64_t>(1, ceil_div(sets, int64_t(sets_at_once(shape, gpu))));
}

// Note [Blocks apart]
// A sequence may begin while the last blocks of a product still hold SMs. Its blocks would then gather on the other
// SMs, where they take turns, for all steps. So each asks for so much shared memory that no more of them fit on an
// SM than are needed there.
inline int bytes_apart(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape,
                       const SequenceGpu& gpu) {
  constexpr int kUnit = 128;  // in which memory is given
  const int needed = shared_bytes(sizes, pass, shape);
  const int64_t all = blocks_for_all(sizes, shape, gpu);
  if (shape.grid || all > blocks_of_sm(sizes, pass, shape, gpu)) return needed;
  const int of_each = (gpu.shared_bytes + kReserved) / static_cast<int>(all + 1);
  return std::max(needed, of_each - kReserved + kUnit);
}

inline double cycles_of(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape,
                        const SequenceGpu& gpu) {
  const double exchange = exchange_cycles(sizes, pass, shape);
  // The blocks of an SM, some of which run at once.
  const int64_t all = blocks_for_all(sizes, shape, gpu);
  const auto at_once = std::min<int64_t>(all, blocks_of_sm(sizes, pass, shape, gpu));
  const auto turns = static_cast<double>(ceil_div(all, at_once));
  const int warps = static_cast<int>(at_once * shape.warps() + 3) / 4;
  const auto of_warp = warp_products(sizes, pass, shape);
  const int sums = of_warp.sums * shape.phase_tiles();
  const bool forward = pass == SequencePass::Forward;
  const bool two_rows = forward && shape.rows == 2;
  const bool tf32 = shape.multiplies_tf32() && (forward || shape.derives_beside());
  const double product = shape.bytes == 2    ? kProduct
                         : tf32              ? (two_rows ? kTf32OfTwoRows : kTf32Product)
                         : shape.tf32        ? (shape.grid ? kRoundedInGrid : kRoundedProduct)
                         : two_rows          ? kFloatOfTwoRows
                         : shape.rows == 2   ? kFloatOfTwoRowsBackward
                         : shape.blocks == 1 ? kFloatInBlock
                         : !forward          ? kFloatProduct
                         : shape.grid        ? kFloatInGrid
                                             : kFloatProduct;
  const double products = of_warp.tiles * std::max(product * warps * sums, kProductLatency);
  const double weights =
      shape.weight_bytes(of_warp.sums) / kSharedBytes +
      shape.streamed_bytes(of_warp.sums) /
          (pass == SequencePass::Forward ? kStreamedBytes : kStreamedBytesBackward);
  const double split = shape.blocks == 1          ? kSplitOfBlock
                       : sends_parts(pass, shape) ? 0
                                                  : kSplit * shape.phase_tiles() * shape.bytes / 2;
  const double cell =
      (shape.bytes == 4 ? kFloatCell : kCell) + kElement * shape.elements() * sizes.gates;
  const double backward = pass == SequencePass::Backward ? backward_cycles(shape, of_warp.sums) : 0;
  const double of_other = two_rows                             ? kBesideOfTwoRows
                          : !forward && shape.derives_beside() ? kBesideDerivatives
                                                               : kBeside;
  const double beside =
      of_other * static_cast<double>((at_once - 1) * shape.groups * shape.finishers());
  const double rest = beside + products + weights + split * (shape.splits - 1) + cell + backward;
  const bool three_tiles = shape.phase_tiles() == 3 && (shape.bytes == 4 || shape.phases > 1);
  const bool late = shape.blocks == 16 && shape.bytes == 2 && turns >= kLateTurns;
  const double longer = turns * (late ? kLateTurn : three_tiles ? kThreeTiles : 1);
  if (shape.phases == 1) return longer * (exchange + rest);
  const bool derives_floats = shape.bytes == 4 && pass == SequencePass::Backward;
  const double tile = kPhaseTile + (derives_floats ? kFloatDerivativeTile : 0);
  const double phase = kPhase + tile * shape.phase_tiles() + rest;
  return longer * std::max(shape.phases * phase, exchange + rest);
}

inline double cycles_of_steps(const SequenceSizes& sizes, SequencePass pass) {
  const double h = static_cast<double>(sizes.hidden_size);
  const bool floats = sizes.type == ElementType::Float;
  if (floats && few_rows_pay(sizes.batch_size, sizes.hidden_size, sizes.tf32)) {
    const double bytes = 4 * h * h * sizes.gates;
    return kFewRowsLaunches +
           bytes / (pass == SequencePass::Forward ? kFewRowsBytes : kFewRowsBytesBackward);
  }
  const double products = static_cast<double>(sizes.batch_size) * h * h * sizes.gates;
  if (floats && sizes.tf32) {
    return kRoundedLaunches + 4 * h * h * sizes.gates / kRoundedBytes + products / kRoundedLibrary;
  }
  if (floats) return kFloatLaunches + products / kFloatLibrary;
  return std::min(kLaunches + products / kLibrary, kLargeLaunches + products / kLargeLibrary);
}

inline double cycles_before_steps(const SequenceSizes& sizes, SequencePass pass,
                                  const SequenceShape& shape, const SequenceGpu& gpu) {
  const bool backward = pass == SequencePass::Backward;
  const double bytes = double(sizes.gates) * SequenceShape::kUnits * shape.groups *
                       double(sizes.hidden_size) * shape.bytes;
  const double load = bytes / (backward ? kLoadedBytesBackward : kLoadedBytes);
  if (shape.grid) return kBegin + kBeginOfGrid + load;  // whose blocks stay for all rows
  const int64_t sets = shape.sets(sizes.batch_size, sizes.recurrences());
  return kBegin + load * static_cast<double>(ceil_div(sets, int64_t(sets_at_once(shape, gpu))));
}

}  // namespace lltm_jit
