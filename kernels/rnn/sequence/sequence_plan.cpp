#include "rnn/sequence/sequence_plan.h"

#include <algorithm>
#include <initializer_list>

namespace lltm_jit {
namespace {

// Note [What a step costs]
// In cycles of an H200, where they were measured, the parts of a step come one after the other: what is sent
// arrives, the warps of a quarter of an SM multiply, their sums meet, and the cell is computed. Clusters that
// do not fit on the chip at once run in turn. The estimates are within some 10 % of the kernels'.
constexpr double kProduct = 6.2;          // of 16 x 8 by 16 on a quarter of an SM
constexpr double kProductLatency = 24.4;  // until the next one to the same sums
constexpr double kFloatProduct = 42;      // of floats, with their splitting
constexpr double kSharedBytes = 128;      // a cycle, of weights that are in shared memory
constexpr double kExchangedBytes = 21;    // a cycle, that a block can receive
constexpr double kBarrier = 60;           // of one block
constexpr double kExchange = 250, kExchangeOfBlock = 10;
constexpr double kCell = 150, kElement = 15;  // and of a gate's element
constexpr double kFloatCell = 300;
constexpr double kSplit = 20;  // for each other warp of a group
// A step by itself: the product and the kernel after it, launched within a graph; and multiply-adds a cycle
// of both, at large batches.
constexpr double kLaunches = 9000, kLibrary = 60000, kFloatLibrary = 17000;

// How many clusters of so many blocks run at once, of blocks that fill an SM: SMs stand in groups, most
// of which have 16 or 18 on an H100 or H200.
int clusters_at_once(int blocks, const SequenceGpu& gpu) {
  const int on_h200 = blocks == 1   ? 132
                      : blocks == 2 ? 66
                      : blocks == 4 ? 30
                      : blocks == 8 ? 15
                                    : 7;
  return std::max(1, on_h200 * gpu.sms / 132);
}

// Registers of a thread beside those of weights.
int registers_beside(const SequenceSizes& sizes, SequencePass pass, int rows) {
  const int elements = rows == 4 ? 2 : 4, row_tiles = rows == 16 ? 2 : 1;
  const int sums = 4 * sizes.gates * row_tiles;
  const int of_cell = pass == SequencePass::Forward
                          ? sizes.gates * elements
                          : elements * sizes.states * (sizes.gates + sizes.states - 1);
  const int apart = sizes.adds_gates ? 0 : sizes.gates * elements;
  const int of_floats = sizes.type == ElementType::Float ? 24 : 0;  // while they are split
  return 44 + sums + of_cell + apart + of_floats + 2 * sizes.parameters;
}

int tiles_in_registers(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape) {
  // Each quarter of an SM has as many for its warps.
  constexpr int kRegistersOfLanes = 16384 / 32, kMost = 255;
  const int warps = (shape.warps() + 3) / 4;
  const int of_thread = std::min(kMost, kRegistersOfLanes / warps / 8 * 8);
  return (of_thread - registers_beside(sizes, pass, shape.rows)) / (2 * shape.bytes * sizes.gates);
}

int shared_bytes(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape) {
  return pass == SequencePass::Forward
             ? shape.forward_bytes(sizes.gates)
             : shape.backward_bytes(sizes.gates, sizes.states, sizes.adds_gates);
}

double cycles_of(const SequenceSizes& sizes, SequencePass pass, const SequenceShape& shape,
                 const SequenceGpu& gpu) {
  const int arrays = pass == SequencePass::Forward ? 1 : sizes.gates;
  const double received =
      double(shape.bytes) * arrays * shape.tiles() * SequenceShape::kUnits * shape.rows;
  const double exchange =
      shape.blocks == 1 ? kBarrier
                        : kExchange + kExchangeOfBlock * shape.blocks + received / kExchangedBytes;
  const int warps = (shape.warps() + 3) / 4;
  const int sums = sizes.gates * shape.row_tiles();
  const double product = shape.bytes == 4 ? kFloatProduct : kProduct;
  const double products = shape.tiles_of_warp() * std::max(product * warps * sums, kProductLatency);
  const double weights = shape.weight_bytes(sizes.gates) / kSharedBytes;
  const double cell = (shape.bytes == 4 ? kFloatCell : kCell) +
                      kElement * shape.elements() * sizes.gates +
                      kSplit * (shape.splits - 1) * shape.row_tiles();
  const int64_t clusters = (sizes.batch_size + shape.rows - 1) / shape.rows;
  const int at_once = clusters_at_once(shape.blocks, gpu);
  const auto turns = static_cast<double>((clusters + at_once - 1) / at_once);
  return turns * (exchange + products + weights + cell);
}

double cycles_of_steps(const SequenceSizes& sizes) {
  const double h = static_cast<double>(sizes.hidden_size);
  const double rate = sizes.type == ElementType::Float ? kFloatLibrary : kLibrary;
  return kLaunches + static_cast<double>(sizes.batch_size) * h * h * sizes.gates / rate;
}

}  // namespace

SequencePlan sequence_plan(const SequenceSizes& sizes, bool aligned, SequencePass pass,
                           const SequenceGpu& gpu) {
  SequencePlan best{false, {}, cycles_of_steps(sizes)};
  const int bytes = sizes.type == ElementType::Float ? 4 : 2;
  constexpr int64_t kMostHidden = 4096, kMostRows = int64_t(1) << 24;
  if (sizes.type == ElementType::Double || !aligned || sizes.hidden_size % 4 != 0 ||
      gpu.architecture < 80 || sizes.hidden_size > kMostHidden || sizes.batch_size > kMostRows ||
      sizes.steps >= int64_t(1) << 31) {
    return best;
  }
  const int groups = static_cast<int>(sizes.hidden_size + 15) / SequenceShape::kUnits;
  constexpr int kMostWarps = 16, kMostGroups = 15;  // which have a barrier each
  for (const int blocks : {1, 2, 4, 8, 16}) {
    if (blocks > 1 && (gpu.architecture < 90 || blocks > groups)) continue;
    for (const int rows : {4, 8, 16}) {
      for (int splits = rows == 16 ? 2 : 1; splits <= 8; ++splits) {
        SequenceShape shape{blocks, (groups + blocks - 1) / blocks, splits, rows, 0, bytes};
        if (shape.groups > kMostGroups || shape.warps() > kMostWarps || splits > shape.tiles()) {
          continue;
        }
        const int in_registers = tiles_in_registers(sizes, pass, shape);
        if (in_registers < 1) continue;
        shape.shared_tiles = std::max(0, shape.tiles_of_warp() - in_registers);
        if (shared_bytes(sizes, pass, shape) > gpu.shared_bytes) continue;
        const double cycles = cycles_of(sizes, pass, shape, gpu);
        if (cycles < best.cycles) best = {true, shape, cycles};
      }
    }
  }
  return best;
}

}  // namespace lltm_jit
