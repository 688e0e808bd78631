// A lane's part of a tile of weights, for WarpWeights.
#pragma once

#include "rnn/sequence/persistent/lanes/place.cuh"

namespace lltm_jit {

template <typename Shape, typename Args>
LLTM_JIT_DEVICE auto load_tile(const LanePlace<Shape>& place, const Args& args, int gate, int unit,
                               int k) {
  constexpr int kBytes = Shape::kShape.bytes;
  using Number = std::conditional_t<kBytes == 2, uint16_t, uint32_t>;
  const auto* from = place.recurrence.template weights<Number>(args) +
                     (int64_t(gate) * place.gate_size + unit) * args.weights_stride + k;
  const bool exist = unit < place.hidden && k < place.hidden;
  const auto first = load_weights<kBytes>(from, exist);
  const auto second = load_weights<kBytes>(from + 2 * args.weights_stride, exist);
  if constexpr (kBytes == 2) {
    return Words<4>{first.value[0], second.value[0], first.value[1], second.value[1]};
  } else {
    return Words<8>{first.value[0],  first.value[1],  first.value[2],  first.value[3],
                    second.value[0], second.value[1], second.value[2], second.value[3]};
  }
}

// Of the weights' transpose.
template <typename scalar_t, typename Shape, typename Args>
LLTM_JIT_DEVICE auto load_transposed_tile(const LanePlace<Shape>& place, const Args& args, int gate,
                                          int unit, int k) {
  const int64_t stride = args.weights_stride;
  using Number = std::conditional_t<Shape::kShape.bytes == 2, uint16_t, uint32_t>;
  Words<2 * Shape::kShape.bytes> tile;
  if constexpr (Shape::kShape.bytes == 2) {
    // Of four units each, and of k and k + 2, as the transpose has them.
    const int row = place.lane.lane / 4 / 2 * 4 + place.lane.lane / 4 % 2,
              column = place.lane.lane % 4 * 4;
    const int from_unit = unit - row + column, from_k = k - column + row;
    const auto* from = place.recurrence.template weights<Number>(args) +
                       (int64_t(gate) * place.gate_size + from_k) * stride + from_unit;
    LLTM_JIT_UNROLLED(i, 2) {
      const bool exist = from_unit < place.hidden && from_k + 2 * i < place.hidden;
      const auto four = transpose<scalar_t>(load_weights<2>(from + 2 * i * stride, exist));
      tile.value[2 * i] = four.value[0];
      tile.value[2 * i + 1] = four.value[1];
    }
  } else {
    const bool exist = unit < place.hidden && k < place.hidden;
    const auto* from = place.recurrence.template weights<Number>(args) +
                       (int64_t(gate) * place.gate_size + k) * stride + unit;
    LLTM_JIT_UNROLLED(i, 8) tile.value[i] = load_weight(from + i % 4 * stride + i / 4 * 2, exist);
  }
  return tile;
}

}  // namespace lltm_jit
