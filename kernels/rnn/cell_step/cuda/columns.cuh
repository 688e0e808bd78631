// Parts that the products of the LLTM cell share: their operand [old_h, input], whose two parts are
// read in place, and the check of their tiles.
#pragma once

#include "rnn/cell_step/cuda/tile_gemm.cuh"
#include "rnn/cell_step/plan.h"

namespace lltm_jit {

// [old_h, input] without the concatenation.
template <typename scalar_t>
struct Columns {
  const scalar_t* old_h;
  const scalar_t* input;
  int64_t old_h_stride, input_stride;
  int hidden_size, width;
  int64_t batch_size;

  template <typename Args>
  LLTM_JIT_DEVICE explicit Columns(const Args& args)
      : old_h(static_cast<const scalar_t*>(args.old_h)),
        input(static_cast<const scalar_t*>(args.input)),
        old_h_stride(args.old_h_stride),
        input_stride(args.input_stride),
        hidden_size(int(args.hidden_size)),
        width(int(args.hidden_size + args.input_size)),
        batch_size(args.batch_size) {}

  struct Row {
    const scalar_t* old_h;
    const scalar_t* input;  // hidden_size before the row's first element
    int hidden_size;
    bool inside;
    LLTM_JIT_DEVICE const scalar_t* at(int column) const {
      return (column < hidden_size ? old_h : input) + column;
    }
  };
  LLTM_JIT_DEVICE Row row(int64_t row) const {
    const bool inside = row < batch_size;
    if (!inside) row = 0;
    return {old_h + row * old_h_stride, input + row * input_stride - hidden_size, hidden_size,
            inside};
  }

  LLTM_JIT_DEVICE Line<scalar_t> column(int column) const {
    const bool inside = column < width;
    if (!inside) column = 0;
    return column < hidden_size
               ? Line<scalar_t>{old_h + column, old_h_stride, inside}
               : Line<scalar_t>{input + column - hidden_size, input_stride, inside};
  }
};

// Whether a shape is the one that lltm_plan() counts with (Note [Shapes of the tiles]) and fits in
// the stages that the plan has found room for.
template <typename Shape, int kStageBytes>
constexpr bool is_as_planned() {
  return Shape::kStages == kMostStages && Shape::kStageBytes <= kStageBytes &&
         Shape::shared_bytes(kFewestStages) <= kFewestStages * kStageBytes;
}

}  // namespace lltm_jit
