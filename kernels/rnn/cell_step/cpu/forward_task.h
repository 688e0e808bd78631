// One thread's part of the LLTM cell's product: the pre-activations of some rows and hidden units; and the products of
// rows by rows of which it consists if there are few rows, Note [Two tiles].
#pragma once

#include "rnn/cell_step/cpu/blocked_product.h"
#include "rnn/cell_step/cpu/limits.h"
#include "rnn/cell_step/kernels.h"

namespace lltm_jit {

// Adds neighbouring lanes of two vectors; the sums of `a` go to the lower half.
template <typename Vec>
inline Vec add_pairs(const Vec& a, const Vec& b) {
  const auto [even, odd] = at::vec::deinterleave2(a, b);
  return even + odd;
}

// Writes the sum over each vector's lanes. `target` has room for whole vectors.
template <typename acc_t, int kCount>
inline void sum_lanes(at::vec::Vectorized<acc_t> (&vectors)[kCount], acc_t* target) {
  constexpr int kLanes = RegisterTile<acc_t>::kLanes;
  int count = kCount;
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    const int pairs = (count + 1) / 2;
#pragma GCC unroll 16
    for (int i = 0; i < pairs; ++i) {
      vectors[i] = add_pairs(vectors[2 * i], vectors[std::min(2 * i + 1, count - 1)]);
    }
    count = pairs;
  }
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) vectors[i].store(target + i * kLanes);
}

// A piece of the rows that dot_tile multiplies: `length` elements of rows a + r * a_stride, and of
// the rows of b at their offsets.
template <typename scalar_t>
struct DotPiece {
  const scalar_t* a;
  int64_t a_stride;
  const scalar_t* b;
  int64_t length;
};

// Sums kRows rows of A by kColumns rows of B, over two pieces of each. Unless this is the first
// call, the sums start from `partial`, where the call before left them. The last call writes them
// to target[r * kColumns + c]. Both arrays have room for whole vectors.
template <typename scalar_t, int kRows, int kColumns>
C10_NOINLINE void dot_tile(const DotPiece<scalar_t> (&pieces)[2],
                           const int64_t (&offsets)[kColumns], bool first, bool last,
                           opmath_t<scalar_t>* partial, opmath_t<scalar_t>* target) {
  using acc_t = opmath_t<scalar_t>;
  using Vec = at::vec::Vectorized<acc_t>;
  constexpr int kCount = kRows * kColumns;
  Vec sums[kCount];
#pragma GCC unroll 32
  for (int i = 0; i < kCount; ++i) {
    sums[i] = first ? Vec(acc_t(0)) : Vec::loadu(partial + i * Vec::size());
  }
  for (const auto& piece : pieces) {
    const auto add_lanes = [&](int64_t k, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
      Vec rows[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) rows[r] = load(piece.a + r * piece.a_stride + k, count);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const Vec column = load(piece.b + offsets[c] + k, count);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          sums[r * kColumns + c] = at::vec::fmadd(rows[r], column, sums[r * kColumns + c]);
        }
      }
    };
    int64_t k = 0;
    for (; k + Vec::size() <= piece.length; k += Vec::size()) add_lanes(k, Vec::size());
    if (k < piece.length) add_lanes(k, piece.length - k);
  }
  if (last) {
    sum_lanes<acc_t, kCount>(sums, target);
    return;
  }
#pragma GCC unroll 32
  for (int i = 0; i < kCount; ++i) sums[i].store(partial + i * Vec::size());
}

namespace {

constexpr int kGates = 3;

template <typename scalar_t>
class ForwardTask : LltmCpuBounds {
 public:
  using acc_t = opmath_t<scalar_t>;
  using Shape = RegisterTile<acc_t>;
  // Hidden units of a task: their three gates fill the columns of a panel.
  static constexpr int64_t kUnits = Shape::kLanes;
  using Sums = acc_t[kGates][kUnits];

  // The operands that panels are multiplied with. Products of few rows do not use panels.
  struct State {
    WideRows<scalar_t> old_h, input;
  };

  ForwardTask(const LltmCellArgs& args, int64_t row, int64_t rows, int64_t unit)
      : row(row),
        rows(std::min(rows, args.batch_size - row)),
        unit(unit),
        units(std::min(kUnits, args.hidden_size - unit)),
        args_(args) {}

  const int64_t row, rows, unit, units;
  alignas(64) Sums sums[kTaskRows];  // the pre-activations, without the bias

  void multiply(const State* state) {
    if (state == nullptr) {
      for (int64_t u = 0; u < units; u += kTileUnits) multiply_dots(u);
    } else {
      add_panels(state->old_h, args_.hidden_size, 0);
      add_panels(state->input, args_.input_size, args_.hidden_size);
    }
  }

 private:
  static_assert(Shape::kPanel == kGates * kUnits);
  static constexpr int kTileUnits = Shape::kDotColumns / kGates;
  static_assert(kUnits % kTileUnits == 0);

  const LltmCellArgs& args_;

  const scalar_t* weights_of(int64_t u) const {
    return static_cast<const scalar_t*>(args_.weights) + (unit + u) * args_.weights_stride;
  }

  // ------------------------------------------------------------------------------- few rows --

  // Computes the three gates of kTileUnits units for all rows, one piece of [h, x] after another.
  void multiply_dots(int64_t u) {
    // The partial sums, lane by lane, of tiles whose rows are longer than kDotDepth.
    alignas(64) acc_t partial[kDotTaskRows * Shape::kDotColumns * Shape::kLanes];
    const int64_t columns = args_.hidden_size + args_.input_size;
    for (int64_t begin = 0; begin < columns; begin += kDotDepth) {
      const int64_t end = std::min(columns, begin + kDotDepth);
      for (int64_t r = 0; r < rows;) {
        if (rows - r >= Shape::kDotRows) {
          r += multiply_tile<Shape::kDotRows>(r, u, begin, end, partial);
        } else if (rows - r >= 2) {
          r += multiply_tile<2>(r, u, begin, end, partial);
        } else {
          r += multiply_tile<1>(r, u, begin, end, partial);
        }
      }
    }
  }

  template <int kRows>
  int multiply_tile(int64_t r, int64_t u, int64_t begin, int64_t end, acc_t* partial) {
    const int64_t hidden = args_.hidden_size;
    const scalar_t* weights = weights_of(u);
    int64_t offsets[Shape::kDotColumns];
    for (int gate = 0; gate < kGates; ++gate) {
      for (int64_t i = 0; i < kTileUnits; ++i) {
        const int64_t next = std::min(i, units - 1 - u);  // units beyond the last are ignored
        offsets[gate * kTileUnits + i] = (gate * hidden + next) * args_.weights_stride;
      }
    }
    const auto piece = [&](const void* state, int64_t stride, int64_t from, int64_t to,
                           int64_t first_column) -> DotPiece<scalar_t> {
      return {static_cast<const scalar_t*>(state) + (row + r) * stride + from, stride,
              weights + first_column + from, std::max<int64_t>(0, to - from)};
    };
    const bool last = end == hidden + args_.input_size;
    acc_t target[ceil_div(kRows * Shape::kDotColumns, Shape::kLanes) * Shape::kLanes];
    dot_tile<scalar_t, kRows, Shape::kDotColumns>(
        {piece(args_.old_h, args_.old_h_stride, std::min(begin, hidden), std::min(end, hidden), 0),
         piece(args_.input, args_.input_stride, std::max<int64_t>(begin - hidden, 0),
               std::max<int64_t>(end - hidden, 0), hidden)},
        offsets, begin == 0, last, partial + r * Shape::kDotColumns * Shape::kLanes, target);
    if (!last) return kRows;
    for (int k = 0; k < kRows; ++k) {
      for (int gate = 0; gate < kGates; ++gate) {
        std::copy_n(target + (k * kGates + gate) * kTileUnits, kTileUnits, &sums[r + k][gate][u]);
      }
    }
    return kRows;
  }

  // ------------------------------------------------------------------------------ many rows --

  // Adds the products of rows of `depth` elements with the weights' columns from `first_column` on.
  C10_NOINLINE void add_panels(const WideRows<scalar_t>& state, int64_t depth,
                               int64_t first_column) {
    alignas(64) acc_t panel[kBlockDepth * Shape::kPanel];
    for (int64_t begin = 0; begin < depth; begin += kBlockDepth) {
      Tile<acc_t> tile{};
      tile.a = state.data + row * state.stride + begin;
      tile.a_row_stride = state.stride;
      tile.a_depth_stride = 1;
      tile.b = panel;
      tile.c = sums[0][0];
      tile.sums = first_column + begin == 0 ? nullptr : tile.c;
      tile.b_stride = tile.c_stride = tile.sums_stride = tile.columns = Shape::kPanel;
      tile.depth = std::min(kBlockDepth, depth - begin);
      transpose_weights(first_column + begin, tile.depth, panel);
      multiply_rows(tile, rows);
    }
  }

  // Copies the weights of all gates for some columns to panel[column][gate][unit].
  void transpose_weights(int64_t first_column, int64_t columns, acc_t* panel) const {
    for (int gate = 0; gate < kGates; ++gate) {
      const scalar_t* weights =
          weights_of(0) + gate * args_.hidden_size * args_.weights_stride + first_column;
      copy_transposed(weights, args_.weights_stride, units, columns, panel + gate * kUnits,
                      Shape::kPanel);
    }
  }
};

}  // namespace
}  // namespace lltm_jit
