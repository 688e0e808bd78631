// The gradient of a step's output: the products of the next step's gate gradients and the weights.
#pragma once

#include "rnn/sequence/persistent/exchange/grid.cuh"
#include "rnn/sequence/persistent/products/group_sum.cuh"
#include "rnn/sequence/persistent/products/warp_weights.cuh"

namespace lltm_jit {

// In one block or a grid, warps have the weights of their own units' columns, and read the gradients of all gates.
template <typename Shape, typename scalar_t, int kGates>
class AllGradients {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();
  static constexpr int kRowTiles = kShape.phase_tiles();
  // Note [Sent as multiplied]; a single gate is quickly split where it is read.
  static constexpr bool kSendsHalves = kShape.rows == 2 && !kShape.tf32 && kGates > 1;
  static_assert(!kSendsHalves || kShape.splits == 1);  // a warp has all tiles
  using Weights = WarpWeights<Shape, scalar_t, kGates, kGates, kShape.small_floats(), kSendsHalves>;

  // Shared memory.
  static constexpr int kSums = kShape.copy_bytes(kGates);
  static constexpr int kWeights = kSums + kShape.sum_bytes(1);

 public:
  using Packs = Words<kWords>[kGates];
  static constexpr int kBytes = kWeights + kShape.weight_bytes(kGates) + kShape.inverse_bytes();

  // load(gate, unit, k) gives weights as WarpWeights takes them.
  template <typename Load>
  LLTM_JIT_DEVICE AllGradients(const Lane<Shape>& lane, const ExchangePlace& place, int steps,
                               const Load& load)
      : exchange_(lane, place),
        weights_(lane, place.shared + kWeights, place.streamed, load),
        group_sum_(lane, place.shared + kSums),
        upper_(lane.lane % 4 < 2),
        steps_(steps),
        inverses_(place.shared + kWeights + kShape.weight_bytes(kGates)),
        row_(keep(lane.lane % 2)),
        own_inverse_(keep((lane.group * 2 + lane.lane % 2) * 4)) {}

  LLTM_JIT_DEVICE void clear() const {
    if constexpr (kSendsHalves) {
      if (threadIdx.x < kShape.inverse_bytes() / 4) {
        store_shared(inverses_ + threadIdx.x * 4, Words<1>{});
      }
    }
    exchange_.clear();
  }
  LLTM_JIT_DEVICE void start() const { exchange_.start(); }
  LLTM_JIT_DEVICE void turn(int iteration) const { exchange_.turn(iteration, steps_); }
  LLTM_JIT_DEVICE void finish() const {}

  // Finishing warps store this iteration's gradients; then all warps signal that they are complete.
  LLTM_JIT_DEVICE void put(int iteration, const Packs& packs) const {
    if constexpr (kSendsHalves) {
      put_halves(iteration, packs);
    } else {
      exchange_.send(iteration, packs);
    }
  }
  LLTM_JIT_DEVICE void spread(int) const {
    if constexpr (!kShape.grid) sync_block(kShape.backward_threads());
  }

  // The products of the previous iteration's gradients, in warps that finish the phase. Calls `meanwhile()` once
  // the tensor cores have begun.
  template <typename Meanwhile>
  LLTM_JIT_DEVICE void receive(int iteration, int phase, float (&grad_h)[kElements],
                               const Meanwhile& meanwhile) {
    typename Weights::Sums products = {};
    const auto operands =
        exchange_.operands(iteration - 1) + phase * kRowTiles * kShape.tile_bytes();
    if constexpr (kSendsHalves) {
      LLTM_JIT_UNROLLED(i, kShape.tiles()) {
        const auto inverse = load_shared<1>(inverses(iteration - 1) + row_ * 4 + i * 8);
        weights_.set_inverse(__uint_as_float(inverse.value[0]), i);
      }
    }
    if constexpr (!kShape.grid) {
      weights_.multiply(products, operands, meanwhile);
    } else if (iteration > 0) {  // before that there are no zeros to be read
      if constexpr (kShape.loads_ahead()) {
        weights_.multiply_loaded(products, operands, loaded_);
      } else {
        weights_.multiply(products, operands);
      }
    }
    float sums[kRowTiles][1][kElements];
    LLTM_JIT_UNROLLED2(n, kRowTiles, e, kElements) {
      const auto of_gate = [&](int g) {
        const auto& four = products[n][g];
        const float upper = four[e], lower = four[(e + 2) % 4];
        return kElements == 4 || upper_ ? upper : lower;
      };
      sums[n][0][e] = of_gate(0);
      LLTM_JIT_UNROLLED_FROM(g, 1, Weights::kSums) sums[n][0][e] += of_gate(g);
    }
    group_sum_(iteration, phase, sums);
    if constexpr (kShape.loads_ahead()) load_after(iteration, phase);
    LLTM_JIT_UNROLLED(e, kElements) grad_h[e] = sums[0][0][e];
  }

 private:
  LLTM_JIT_DEVICE void put_halves(int iteration, const Packs& packs) const {
    float largest = 0;
    LLTM_JIT_UNROLLED(g, kGates) {
      largest = fmaxf(largest, fabsf(__uint_as_float(packs[g].value[0])));
    }
    const HalfScale scale = scale_of_two_rows(largest);
    LLTM_JIT_UNROLLED(g, kGates) {
      const float grad = __uint_as_float(packs[g].value[0]);
      exchange_.send_halves(iteration, g, in_halves(grad, scale.scale));
    }
    if (threadIdx.x % 32 < 2) {
      store_shared(inverses(iteration) + own_inverse_, Words<1>{__float_as_uint(scale.inverse)});
    }
  }
  // The first loads of the next phase, which are in flight while this phase is finished.
  LLTM_JIT_DEVICE void load_after(int iteration, int phase) {
    const bool last = phase + 1 == kShape.phases;
    if (iteration == (last ? steps_ : 0)) return;
    weights_.load_ahead(exchange_.operands(last ? iteration : iteration - 1) +
                            (last ? 0 : phase + 1) * kRowTiles * kShape.tile_bytes(),
                        loaded_);
  }

  LLTM_JIT_DEVICE uint32_t inverses(int iteration) const {
    return inverses_ + (iteration & 1) * (kShape.inverse_bytes() / 2);
  }

  Exchange<Shape, kGates> exchange_;
  Weights weights_;
  GroupSum<Shape, 1> group_sum_;
  bool upper_;
  int steps_;
  uint32_t inverses_;                // of scales
  int row_, own_inverse_;            // of this lane's row
  typename Weights::Loaded loaded_;  // with phases
};

// Note [Parts of sums]
// The blocks of a cluster could exchange the gradients of all gates, as they exchange h in the forward pass. But each
// has the weights of its own units' rows. So it multiplies its own gradients, which gives a part of the sum for every
// hidden unit, and sends these parts to the blocks of the units, which add them in the order of the blocks. A block
// then receives one number for each unit, row and block, instead of one for each gate, unit, row and block: for three
// gates, a third of the bytes. The parts are rounded to the element type, as the gradients are. The products read the
// block's own gradients, of which there are two copies: a warp may still multiply one while finishing warps write the
// next. The finishing warps have all parts for the block by then, but the block's own parts for other blocks may not be
// computed yet; the barrier of the next iteration waits for them.
template <typename Shape, typename scalar_t, int kGates>
class PartGradients {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();
  static constexpr int kRowTiles = kShape.row_tiles(), kGroups = kShape.groups;
  static constexpr int kBlocks = kShape.blocks, kTileBytes = kShape.tile_bytes();
  static constexpr int kOutputs = kShape.output_tiles();
  static constexpr bool kFourRows = kShape.rows == 4;
  // Shapes as WarpWeights sees them: k are the gates of the block's own units, and its "gates" are tiles of all
  // hidden units, some for each warp.
  struct OwnShape {
    static constexpr SequenceShape kShape{1,     kGroups * kGates,           1, Shape::kShape.rows,
                                          1,     Shape::kShape.shared_tiles, 0, Shape::kShape.bytes,
                                          false, Shape::kShape.tf32};
  };
  using Weights = WarpWeights<OwnShape, scalar_t, kOutputs, 1, false>;

  // Shared memory.
  static constexpr int kOperands = Exchange<Shape, 1>::kBytes;
  static constexpr int kOperandBytes = OwnShape::kShape.operand_bytes(1);
  static constexpr int kWeights = kOperands + 2 * kOperandBytes;

 public:
  using Packs = Words<kWords>[kGates];
  static constexpr int kBytes = kWeights + kShape.weight_bytes(kOutputs);

  template <typename Load>
  LLTM_JIT_DEVICE PartGradients(const Lane<Shape>& lane, const ExchangePlace& place, int,
                                const Load& load)
      : exchange_(lane, place),
        first_(keep(threadIdx.x / 32 * kOutputs)),
        weights_(own_lane(), place.shared + kWeights, nullptr, [&](int output, int unit, int k) {
          const int tile = k / SequenceShape::kUnits, group = tile % kGroups;
          return load(
              tile / kGroups, (first_ + output) * SequenceShape::kUnits + unit,
              (lane.block * kGroups + group) * SequenceShape::kUnits + k % SequenceShape::kUnits);
        }) {
    const int n = kRowTiles > 1 && lane.finishes() ? lane.split : 0;
    const int own = (lane.group * kRowTiles + n) * kTileBytes;
    operands_ = keep(place.shared + kOperands);
    put_ = keep(own + lane.tile_offset() + (kFourRows ? lane.lane / 16 * kWords * 4 : 0));
    // The four numbers of a lane's sums are one after the other; with four rows, two lanes have the same numbers.
    const int g = lane.lane / 4, c = lane.lane % 4;
    const int slot = (kFourRows ? g * 2 + c % 2 : lane.lane) * 4 * kShape.bytes;
    received_ = keep(own + slot + (kFourRows ? c / 2 * kWords * 4 : 0));
    sent_ = keep(lane.block * kGroups * kRowTiles * kTileBytes + slot);
    second_ = kFourRows ? c / 2 : 0;
  }

  LLTM_JIT_DEVICE void clear() const { exchange_.clear(); }
  LLTM_JIT_DEVICE void start() const { exchange_.start(); }
  LLTM_JIT_DEVICE void finish() const { exchange_.finish(); }

  LLTM_JIT_DEVICE void put(int iteration, const Packs& packs) const {
    LLTM_JIT_UNROLLED(g, kGates) {
      store_shared(operands(iteration) + put_ + g * kGroups * kRowTiles * kTileBytes, packs[g]);
    }
  }
  LLTM_JIT_DEVICE void spread(int iteration) const {
    __syncthreads();
    typename Weights::Sums sums = {};
    weights_.multiply(sums, operands(iteration));
    if (iteration > 0 && threadIdx.x == 0) exchange_.expect(iteration - 1);
    // With four rows, one half of the lanes sends a tile, and the other the next one.
    constexpr int kAtOnce = kFourRows ? 2 : 1;
#pragma unroll
    for (int i = 0; i < kOutputs; i += kAtOnce) {
      const int tile = first_ + i + second_;
      if (i + second_ >= kOutputs || tile >= kShape.tiles()) continue;
      const int block = tile / kGroups, group = tile % kGroups;
      LLTM_JIT_UNROLLED(n, kRowTiles) {
        float four[4];
        LLTM_JIT_UNROLLED(e, 4) {
          four[e] = sums[n][i][e];
          if (i + 1 < kOutputs && second_) four[e] = sums[n][i + (i + 1 < kOutputs)][e];
        }
        exchange_.send_part(iteration, block, sent_ + (group * kRowTiles + n) * kTileBytes,
                            to_words<scalar_t>(four));
      }
    }
  }

  template <typename Meanwhile>
  LLTM_JIT_DEVICE void receive(int iteration, int, float (&grad_h)[kElements],
                               const Meanwhile&) const {
    LLTM_JIT_UNROLLED(e, kElements) grad_h[e] = 0;
    if (iteration == 0) return;
    exchange_.wait(iteration - 1);
    const uint32_t from = exchange_.operands(iteration - 1) + received_;
    constexpr int kMost = 16 / kWords, kAtOnce = kBlocks < kMost ? kBlocks : kMost;
#pragma unroll
    for (int first = 0; first < kBlocks; first += kAtOnce) {
      Words<kWords> parts[kAtOnce];
      LLTM_JIT_UNROLLED(i, kAtOnce) {
        parts[i] = load_shared<kWords>(from + (first + i) * kGroups * kRowTiles * kTileBytes);
      }
      LLTM_JIT_UNROLLED(i, kAtOnce) {
        float numbers[kElements];
        to_floats<scalar_t>(parts[i], numbers);
        LLTM_JIT_UNROLLED(e, kElements) grad_h[e] += numbers[e];
      }
    }
  }

 private:
  // Rows of a tile of units, and k, from 0.
  static LLTM_JIT_DEVICE Lane<OwnShape> own_lane() {
    Lane<OwnShape> lane(0);
    lane.split = lane.unit = 0;
    return lane;
  }
  LLTM_JIT_DEVICE uint32_t operands(int iteration) const {
    return operands_ + (iteration & 1) * kOperandBytes;
  }

  Exchange<Shape, 1> exchange_;
  int first_;  // of this warp's tiles of units
  Weights weights_;
  uint32_t operands_, put_;
  uint32_t received_, sent_;  // this lane's places among the parts
  int second_;
};

}  // namespace lltm_jit
