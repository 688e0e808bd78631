// The products of the weights that a warp holds.
#pragma once

#include "rnn/sequence/persistent/exchange/grid.cuh"
#include "rnn/sequence/persistent/products/tile.cuh"

namespace lltm_jit {

// What a function calls if there is nothing to do.
struct Nothing {
  __device__ void operator()() const {}
};

// Calls function(i) for constants i. The compiler ignores `#pragma unroll` on large loops, and then their arrays
// are in memory.
template <int kCount, int kFirst = 0, typename Function>
LLTM_JIT_DEVICE void for_constants(const Function& function) {
  if constexpr (kFirst < kCount) {
    function(std::integral_constant<int, kFirst>());
    for_constants<kCount, kFirst + 1>(function);
  }
}

// A warp's weights, for its group and its part of k. kOperands: the number of arrays of B, one for all gates or one for
// each. kSmall: a small block of floats. kInHalves: B is as Note [Sent as multiplied] says.
template <typename Shape, typename scalar_t, int kGates, int kOperands,
          bool kSmall = Shape::kShape.small_floats(), bool kInHalves = false>
class WarpWeights {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kTiles = kShape.tiles_of_warp(), kShared = kShape.shared_tiles;
  static constexpr int kStreamed = kShape.streamed_tiles, kRowTiles = kShape.phase_tiles();
  static constexpr int kInRegisters = kShape.register_tiles();
  static constexpr int kTileBytes = kShape.tile_bytes();
  static constexpr int kOperandBytes = kShape.operand_bytes(1);
  // Floats that are rounded, Note [Floats in one half], or scaled.
  static constexpr bool kFloats = kShape.bytes == 4, kRounded = kSmall && kShape.tf32;
  static constexpr bool kScales = kFloats && !kRounded;
  // Tiles of B that are loaded at once, during the products of as many other tiles. If weights of floats fill the
  // registers, there is no room for more tiles.
  static constexpr bool kFew =
      (kOperands > 1 && !(kSmall && kTiles <= 2)) || (kFloats && kShared > 0);
  static constexpr int kChunk = kShape.grid ? kShape.chunk_tiles(kOperands)
                                : kFew      ? 1
                                : kShape.bytes == 2 && kShape.blocks == 1 ? 4
                                                                          : 2;
  // Tiles in which a row's floats share one scale, Note [Floats in two halves], also across arrays.
  static constexpr int kScaled = kShape.grid && kOperands > 1 ? 1 : kChunk;

 public:
  // A lane's part of a tile of weights, in memory and as an operand, and of B.
  using Numbers = Words<2 * kShape.bytes>;
  using Tile = Words<2 * (kShape.tf32 && !kRounded ? 2 : kShape.bytes)>;
  using Part = Words<kShape.bytes>;
  using Operand = std::conditional_t<kScales, FloatOperand, Part>;
  // Where B is: in memory, or at an address of shared memory.
  using Place = std::conditional_t<kShape.grid, const char*, uint32_t>;

  // Sums of each gate; or one sum of all gates, if floats have scales and each gate has an array of B.
  static constexpr int kSums = kScales && kOperands > 1 ? 1 : kGates;
  // The first tile of rows is the one that this warp finishes, if it does.
  using Sums = float[kRowTiles][kSums][4];

  // load(gate, unit, k) returns a lane's weights: two of `unit` from k on, two of unit + 2, and both again from k +
  // 2 on.
  template <typename Load>
  LLTM_JIT_DEVICE WarpWeights(const Lane<Shape>& lane, uint32_t shared, char* streamed,
                              const Load& load)
      : streamed_(streamed + threadIdx.x / 32 * kStreamed * kGates * kWeightBytes + lane.lane * 16),
        shared_(keep(shared + threadIdx.x / 32 * kShared * kGates * kWeightBytes + lane.lane * 16)),
        first_row_tile_(lane.split % kRowTiles),
        tiles_(keep(min(kShape.tiles() - lane.split * kTiles, kTiles))),
        operand_(keep(lane.split * kTiles * kShape.row_tiles() * kTileBytes + lane.tile_offset() -
                      (kInHalves ? lane.lane % 4 * 8 : 0))) {
    const int row = lane.lane / 4, unit = lane.unit + 4 * (row / 2) + row % 2;
    const auto load_at = [&](int j, int gate) -> Numbers {
      const int k = (lane.split * kTiles + j) * SequenceShape::kUnits + lane.lane % 4 * 4;
      return load(gate, unit, k);
    };
    float scale = 1;
    if constexpr (kScales) {
      uint32_t magnitude = 0;
#pragma unroll 1
      for (int j = 0; j < kTiles; ++j) {
        LLTM_JIT_UNROLLED(gate, kGates) {
          const Numbers tile = load_at(j, gate);
          LLTM_JIT_UNROLLED(i, 8) magnitude = max(magnitude, magnitude_of(tile.value[i]));
        }
      }
      const HalfScale of_all = scale_of_warp(magnitude);
      scale = of_all.scale;
      inverse_ = of_all.inverse;
    }
    const auto operand_of = [&](int j, int gate) {
      const Numbers tile = load_at(j, gate);
      if constexpr (kRounded) {
        return rounded_to_tf32(tile);
      } else if constexpr (kFloats) {
        return in_halves<Tile>(tile, scale);
      } else {
        return tile;
      }
    };
    for_constants<kInRegisters>([&](auto j_) {
      constexpr int j = decltype(j_)::value;
      LLTM_JIT_UNROLLED(gate, kGates) registers_[j][gate] = operand_of(j, gate);
    });
    // A loop if there are many: unrolled, they would take as long to compile as everything else.
    constexpr bool kMany = kOperands > 1 && kShared * kShape.bytes > 8;
    constexpr int kUnrolled = kMany || kShared == 0 ? 1 : kShared;
#pragma unroll kUnrolled
    for (int j = 0; j < kShared; ++j) {
      LLTM_JIT_UNROLLED(gate, kGates) {
        store_tile(shared_ + (j * kGates + gate) * kWeightBytes,
                   operand_of(kInRegisters + j, gate));
      }
    }
#pragma unroll 1
    for (int i = 0; i < kStreamed * kGates; ++i) {
      const int j = kInRegisters + kShared + i / kGates;
      store_tile(streamed_ + i * kWeightBytes, operand_of(j, i % kGates));
    }
  }

  // kInHalves: of the scale of the lane's row, or of a tile of it, the inverse.
  LLTM_JIT_DEVICE void set_inverse(float inverse, int tile = 0) {
    inverses_[tile] = inverse * inverse_;
  }

  // The loaded part of B: a chunk, and the next one.
  struct Loaded {
    Part b[2][kChunk][kOperands][kRowTiles];
  };
  // Begins the first loads of multiply().
  LLTM_JIT_DEVICE void load_ahead(Place operands, Loaded& loaded) const {
    load<0, kTiles>(0, operands, loaded);
  }

  // Adds the products with the operand at `operands`, of tiles from kFirst to kLast.
  template <int kFirst = 0, int kLast = kTiles>
  LLTM_JIT_DEVICE void multiply(Sums& sums, Place operands) const {
    Loaded loaded;
    load<kFirst, kLast>(0, operands, loaded);
    multiply_loaded<kFirst, kLast>(sums, operands, loaded);
  }
  // After load_ahead(). Calls `meanwhile()` once the last products have begun.
  template <int kFirst = 0, int kLast = kTiles, typename Meanwhile = Nothing>
  LLTM_JIT_DEVICE void multiply_loaded(Sums& sums, Place operands, Loaded& loaded,
                                       const Meanwhile& meanwhile = {}) const {
    constexpr int kChunks = (kLast - kFirst + kChunk - 1) / kChunk;
    Operand operand[2][kChunk][kOperands][kRowTiles];
    auto& b = loaded.b;
    const auto load_chunk = [&](int chunk) { load<kFirst, kLast>(chunk, operands, loaded); };
    // Waits until all of a chunk has arrived, and meanwhile reads missing words of the next one again.
    const auto wait_for_chunk = [&](auto chunk_) {
      constexpr int chunk = decltype(chunk_)::value;
      const auto again = [&](Part& part, auto from) {
        if (is_missing(part)) load_sent(from, part);
      };
      for (;;) {
        bool missing = false;
        for_parts<kFirst, kLast>(chunk, operands, loaded,
                                 [&](const Part& part, Place) { missing |= is_missing(part); });
        if (!__any_sync(~0u, missing)) return;
        for_parts<kFirst, kLast>(chunk, operands, loaded, again);
        if (chunk + 1 < kChunks) for_parts<kFirst, kLast>(chunk + 1, operands, loaded, again);
      }
    };
    Tile from_shared[2][kGates];
    const auto load_weights = [&](int j) {
      LLTM_JIT_UNROLLED(gate, kGates) {
        from_shared[j % 2][gate] =
            load_tile<kTileWords>(shared_ + (j * kGates + gate) * kWeightBytes);
      }
    };
    if (shared_before(kFirst) < shared_before(kLast)) load_weights(shared_before(kFirst));
    Tile streamed[kGates];
    const auto load_streamed = [&](int j) {
      if (j >= streamed_before(kLast)) return;
      LLTM_JIT_UNROLLED(gate, kGates) {
        streamed[gate] = load_tile<kTileWords>(streamed_ + (j * kGates + gate) * kWeightBytes);
      }
    };
    load_streamed(streamed_before(kFirst));
    RowScales scales[2][kRowTiles];
    const auto find_scales = [&](int chunk, int first) {
      if constexpr (kScales && !kInHalves) {
        LLTM_JIT_UNROLLED(n, kRowTiles) {
          float largest = 0;
          LLTM_JIT_UNROLLED_FROM(i, first, first + kScaled) {
            const int j = kFirst + chunk * kChunk + i;
            if (j >= kLast || !has_tile(in_order(j))) continue;
            LLTM_JIT_UNROLLED(o, kOperands) {
              const float of_tile = largest_of(b[chunk % 2][i][o][n]);
              largest = i + o == first ? of_tile : fmaxf(largest, of_tile);
            }
          }
          scales[chunk % 2][n] = RowScales(largest, inverse_);
        }
      }
    };
    const auto prepare_tile = [&](int chunk, int i) {
      LLTM_JIT_UNROLLED2(o, kOperands, n, kRowTiles) {
        const auto& part = b[chunk % 2][i][o][n];
        if constexpr (kInHalves) {
          operand[chunk % 2][i][o][n] = FloatOperand(part);
        } else if constexpr (kRounded && !kShape.sends_tf32()) {
          operand[chunk % 2][i][o][n] = rounded_to_tf32(part);
        } else if constexpr (kScales) {
          operand[chunk % 2][i][o][n] = FloatOperand(part, scales[chunk % 2][n]);
        } else {
          operand[chunk % 2][i][o][n] = part;
        }
      }
    };
    const auto prepare_chunk = [&](int chunk) {
      LLTM_JIT_UNROLLED(i, kChunk) {
        if (kFirst + chunk * kChunk + i >= kLast) continue;
        if (i % kScaled == 0) find_scales(chunk, i);
        prepare_tile(chunk, i);
      }
    };
    if constexpr (!kShape.grid) prepare_chunk(0);
    [[maybe_unused]] Halves halves;
    for_constants<kChunks>([&](auto chunk_) {
      constexpr int chunk = decltype(chunk_)::value;
      if (chunk + 1 < kChunks) load_chunk(chunk + 1);
      if constexpr (kShape.grid) wait_for_chunk(chunk_);
      LLTM_JIT_UNROLLED(i, kChunk) {
        const int j = kFirst + chunk * kChunk + i;
        if (j >= kLast) continue;
        if (kShape.grid && i % kScaled == 0) find_scales(chunk, i);
        const int next = shared_before(j) + 1;
        if (is_shared(j) && next < shared_before(kLast)) load_weights(next);
        if (!has_tile(in_order(j))) continue;
        if constexpr (kShape.grid) prepare_tile(chunk, i);
        LLTM_JIT_UNROLLED(gate, kGates) {
          LLTM_JIT_UNROLLED(n, kRowTiles) {
            const auto& part = operand[chunk % 2][i][kOperands > 1 ? gate : 0][n];
            const auto add = [&](const Tile& tile) {
              if constexpr (kInHalves) {
                halves.add(in_order(j), gate, tile, part);
              } else {
                add_product<scalar_t>(sums[n][kSums > 1 ? gate : 0], tile, part);
              }
            };
            if (is_streamed(j)) {
              add(streamed[gate]);
            } else if (is_shared(j)) {
              add(from_shared[shared_before(j) % 2][gate]);
            } else {
              add(registers_[in_order(j) < kInRegisters ? in_order(j) : 0][gate]);
            }
          }
          // While the tensor cores work.
          if (!kShape.grid && gate == 0 && i + 1 == kChunk && chunk + 1 < kChunks) {
            prepare_chunk(chunk + 1);
          }
        }
        if (is_streamed(j)) load_streamed(streamed_before(j) + 1);
      }
      if constexpr (chunk + 1 == kChunks) meanwhile();
    });
    if constexpr (kInHalves) halves.add_to(sums[0], inverses_);
  }
  // Calls `meanwhile()` once the tensor cores have begun.
  template <typename Meanwhile>
  LLTM_JIT_DEVICE void multiply(Sums& sums, Place operands, const Meanwhile& meanwhile) const {
    constexpr int kBefore = kSmall ? kTiles : (kTiles + 1) / 2;
    Loaded loaded;
    load<0, kBefore>(0, operands, loaded);
    multiply_loaded<0, kBefore>(sums, operands, loaded, meanwhile);
    if constexpr (kBefore < kTiles) multiply<kBefore, kTiles>(sums, operands);
  }

 private:
  using Halves = SumsOfHalves<kGates, (kOperands > 1) * kTiles>;
  static constexpr int kTileWords = sizeof(Tile) / 4, kWeightBytes = sizeof(Tile) * 32;

  // Calls function(part, where it is) for the existing parts of a chunk.
  template <int kFirst, int kLast, typename Function>
  LLTM_JIT_DEVICE void for_parts(int chunk, Place operands, Loaded& loaded,
                                 const Function& function) const {
    LLTM_JIT_UNROLLED(i, kChunk) {
      const int j = kFirst + chunk * kChunk + i;
      if (j >= kLast) continue;
      const int tile = in_order(j);
      if (!has_tile(tile)) continue;
      LLTM_JIT_UNROLLED2(o, kOperands, n, kRowTiles) {
        const int row_tile = Lane<Shape>::row_tile(first_row_tile_, n);
        const int at = (tile * kShape.row_tiles() + row_tile) * kTileBytes;
        function(loaded.b[chunk % 2][i][o][n], operands + operand_ + o * kOperandBytes + at);
      }
    }
  }
  template <int kFirst, int kLast>
  LLTM_JIT_DEVICE void load(int chunk, Place operands, Loaded& loaded) const {
    for_parts<kFirst, kLast>(chunk, operands, loaded, [&](Part& part, Place from) {
      if constexpr (kShape.grid) {
        load_sent(from, part);
      } else if constexpr (kInHalves) {
        const auto high = load_shared<2>(from),
                   low = load_shared<2>(from + SequenceShape::kUnits * 2);
        part = {high.value[0], high.value[1], low.value[0], low.value[1]};
      } else {
        part = load_shared<kShape.bytes>(from);
      }
    });
  }

  // Tiles in memory, and then tiles in shared memory, come between tiles in registers, whose products hide the loads.
  static constexpr __device__ int streamed_before(int j) { return j * kStreamed / kTiles; }
  static constexpr __device__ bool is_streamed(int j) {
    return streamed_before(j + 1) > streamed_before(j);
  }
  static constexpr __device__ int shared_before(int j) {
    return (j - streamed_before(j)) * kShared / (kTiles - kStreamed);
  }
  static constexpr __device__ bool is_shared(int j) {
    return shared_before(j + 1) > shared_before(j);
  }
  static constexpr __device__ int in_order(int j) {
    return is_streamed(j) ? kInRegisters + kShared + streamed_before(j)
           : is_shared(j) ? kInRegisters + shared_before(j)
                          : j - shared_before(j) - streamed_before(j);
  }

  // Memory has nothing beyond the last tile, because nobody sends it; shared memory has zeros.
  LLTM_JIT_DEVICE bool has_tile(int tile) const {
    return !kShape.grid || kShape.padded_tiles() == kShape.tiles() || tile < tiles_;
  }

  Tile registers_[kInRegisters > 0 ? kInRegisters : 1][kGates];
  char* streamed_;
  uint32_t shared_;
  int first_row_tile_;
  int tiles_;  // that there are of this warp's
  uint32_t operand_;
  float inverse_ = 1;               // of the scale of floats
  float inverses_[Halves::kParts];  // of B's scales and of that
};

}  // namespace lltm_jit
