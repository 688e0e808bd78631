// A block of the kernels for cells without a product, Note [Cells without a product] (kernels.h).
#pragma once

#include "rnn/sequence/walk/lane.cuh"

namespace lltm_jit {

// The units of a warp in one row, for a piece of the steps.
template <typename Walk, typename Sequence, typename Cell, typename scalar_t, int kUnits>
class WalkBlock {
  using Traits = CellTraits<Cell>;
  using state_t = opmath_t<scalar_t>;
  using T = typename Walk::T;
  using Map = typename Walk::Map;
  using Loaded = typename Walk::Loaded;
  static constexpr int kStates = Cell::kStates;
  static constexpr bool kLinear = Traits::kLinear;

 public:
  static constexpr WalkShape kShape = walk_shape(static_cast<const Sequence*>(nullptr), kLinear,
                                                 Cell::kGates, kStates, sizeof(state_t));

  LLTM_JIT_DEVICE explicit WalkBlock(const WalkArgs<Sequence>& args)
      : args_(args), warp_(threadIdx.x / 32), lane_(threadIdx.x % 32) {
    constexpr int kWidth = 32 * kUnits;
    const SequenceSizes& sizes = args.sequence;
    const int64_t columns = (sizes.hidden_size + kWidth - 1) / kWidth;
    const int64_t set = blockIdx.x / columns;
    row_ = set % sizes.batch_size, piece_ = set / sizes.batch_size;
    unit_ = blockIdx.x % columns * kWidth + lane_ * kUnits;
    if (unit_ >= sizes.hidden_size) unit_ = 0;  // a lane with none does what that of the first does
    first_ = piece_ * args.piece_steps;
    last_ = first_ + args.piece_steps < sizes.steps ? first_ + args.piece_steps : sizes.steps;
  }

  LLTM_JIT_DEVICE void run() {
    Walk walk(args_.sequence, row_, unit_);
    walk.begin(states_);
    if constexpr (kLinear) {
      if (!args_.only_maps) {
        for (int64_t piece = 0; piece < piece_; ++piece) apply_piece(piece);
      }
      LLTM_JIT_UNROLLED(e, kUnits) all_[e] = Map::identity();
    }
    Loaded next[kShape.steps];
    load(walk, first_, next);
    int copy = 0;
#pragma unroll 1
    for (int64_t begin = first_; begin < last_; begin += kShape.tile(), copy ^= 1) {
      Loaded now[kShape.steps];
      LLTM_JIT_UNROLLED(i, kShape.steps) now[i] = next[i];
      if (begin + kShape.tile() < last_) load(walk, begin + kShape.tile(), next);
      if (begin + kShape.tile() <= last_) {
        tile<true>(walk, begin, copy, now);
      } else {
        tile<false>(walk, begin, copy, now);
      }
    }
    if (kLinear && args_.only_maps) return write_piece();
    const bool ends = warp_ == 0 && last_ == args_.sequence.steps;
    if (ends) walk.end(states_);
    if constexpr (Traits::kParameters > 0 && std::is_same_v<Sequence, SequenceBackwardArgs>) {
      write_parameters(walk);
    }
  }

 private:
  const WalkArgs<Sequence>& args_;
  const int warp_, lane_;
  int64_t row_, unit_, piece_, first_, last_;
  T states_[kStates][kUnits];
  Map all_[kUnits];  // of the steps so far

  struct Shared {
    state_t maps[2][kShape.warps][Map::kNumbers][kUnits][32];
    bool cuts[2][kShape.warps];
  };
  static LLTM_JIT_DEVICE Shared& shared() {
    __shared__ Shared memory;
    return memory;
  }

  // A warp's part of the tile from `begin` on. Steps behind the last one are not used.
  LLTM_JIT_DEVICE void load(const Walk& walk, int64_t begin, Loaded (&loaded)[kShape.steps]) const {
    const int64_t own = begin + warp_ * kShape.steps, valid = last_ - own;
    if (valid > kShape.steps) {
      walk.template load<true>(own, valid, loaded);
    } else {
      walk.template load<false>(valid > 0 ? own : last_ - 1, valid, loaded);
    }
  }

  template <bool kWhole>
  LLTM_JIT_DEVICE void tile(Walk& walk, int64_t begin, int copy,
                            const Loaded (&loaded)[kShape.steps]) {
    const int64_t own = begin + warp_ * kShape.steps;
    if constexpr (kLinear) {
      linear_tile<kWhole>(walk, own, copy, loaded);
    } else {
      walk.template run<kWhole>(own, last_ - own, loaded, states_);
    }
  }

  template <bool kWhole>
  LLTM_JIT_DEVICE void linear_tile(Walk& walk, int64_t own, int copy,
                                   const Loaded (&loaded)[kShape.steps]) {
    Map maps[kUnits];
    LLTM_JIT_UNROLLED(e, kUnits) {
      maps[e] = Map::identity();
      LLTM_JIT_UNROLLED(i, kShape.steps) {
        if (kWhole || own + i < last_) walk.append(own + i, loaded[i], e, maps[e]);
      }
      maps[e].for_numbers([&](int index, T& number) {
        shared().maps[copy][warp_][index][e][lane_] = state_t(number);
      });
    }
    if (Walk::kResets && lane_ == 0) shared().cuts[copy][warp_] = maps[0].cuts;
    // One barrier for each tile is enough: a warp that writes a copy again has passed the next barrier, after all its
    // readers.
    __syncthreads();
    T mine[kStates][kUnits];
    LLTM_JIT_UNROLLED2(w, kShape.warps, e, kUnits) {
      Map map;
      map.cuts = Walk::kResets && shared().cuts[copy][w];
      map.for_numbers(
          [&](int index, T& number) { number = T(shared().maps[copy][w][index][e][lane_]); });
      LLTM_JIT_UNROLLED(k, kStates) {
        if (w == 0 || w == warp_) mine[k][e] = states_[k][e];
      }
      apply(map, e);
      if (args_.only_maps) all_[e].append(map);
    }
    if (!args_.only_maps) walk.template run<kWhole>(own, last_ - own, loaded, mine);
  }

  LLTM_JIT_DEVICE state_t* number_of(int64_t piece, int index) const {
    const int64_t of_rows = args_.sequence.batch_size * args_.sequence.hidden_size;
    return static_cast<state_t*>(args_.maps) + (piece * Map::kNumbers + index) * of_rows +
           row_ * args_.sequence.hidden_size + unit_;
  }
  LLTM_JIT_DEVICE void apply(const Map& map, int e) {
    T states[kStates];
    LLTM_JIT_UNROLLED(k, kStates) states[k] = states_[k][e];
    map.apply_to(states);
    LLTM_JIT_UNROLLED(k, kStates) states_[k][e] = states[k];
  }
  LLTM_JIT_DEVICE void apply_piece(int64_t piece) {
    LLTM_JIT_UNROLLED(e, kUnits) {
      Map map;
      map.cuts = args_.cuts[piece * args_.sequence.batch_size + row_];
      map.for_numbers([&](int index, T& number) { number = T(number_of(piece, index)[e]); });
      apply(map, e);
    }
  }
  LLTM_JIT_DEVICE void write_piece() {
    if (warp_ > 0) return;
    LLTM_JIT_UNROLLED(e, kUnits) {
      all_[e].for_numbers(
          [&](int index, T& number) { number_of(piece_, index)[e] = state_t(number); });
    }
    if (unit_ == 0) args_.cuts[piece_ * args_.sequence.batch_size + row_] = all_[0].cuts;
  }

  // The sums of all warps, as [parameters, pieces * batch, hidden].
  LLTM_JIT_DEVICE void write_parameters(const Walk& walk) {
    __shared__ state_t sums[kShape.warps][kUnits][32];
    const int64_t rows = args_.sequence.batch_size, hidden = args_.sequence.hidden_size;
    LLTM_JIT_UNROLLED(p, Traits::kParameters) {
      LLTM_JIT_UNROLLED(e, kUnits) sums[warp_][e][lane_] = state_t(walk.grad_parameters[p][e]);
      __syncthreads();
      if (warp_ == 0) {
        const int64_t place = (p * args_.pieces + piece_) * rows + row_;
        auto* target = static_cast<state_t*>(args_.sequence.grad_parameters) + place * hidden;
        LLTM_JIT_UNROLLED(e, kUnits) {
          state_t sum = 0;
          for (int w = 0; w < kShape.warps; ++w) sum += sums[w][e][lane_];
          target[unit_ + e] = sum;
        }
      }
      __syncthreads();
    }
  }
};

}  // namespace lltm_jit
