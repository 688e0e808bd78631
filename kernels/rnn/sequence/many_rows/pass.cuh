// The places of rows and units in arrays, for both passes of Note [Many rows] (shape.h).
#pragma once

#include "rnn/sequence/cell.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/many_rows/products.cuh"
#include "rnn/sequence/many_rows/sums.cuh"
#include "rnn/sequence/many_rows/weights.cuh"
#include "rnn/sequence/numbers/gate_float.cuh"

namespace lltm_jit {

template <typename Cell, typename scalar_t, typename Variant, typename Args>
struct ManyRowsPass : ClusterProducts<scalar_t, Variant, Cell::kGates> {
  using Products = ClusterProducts<scalar_t, Variant, Cell::kGates>;
  using Products::kShape, Products::tile_rows;
  using Block = ClusterBlock<scalar_t, Variant, Cell::kGates>;
  static constexpr bool kPadded = Variant::kPadded;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kParameters = CellTraits<Cell>::kParameters;
  static constexpr bool kAdds = CellAddsGates<Cell>::value;
  using Number = GateNumber<scalar_t>;
  using Two = Pack<scalar_t, 2>;

  const Args& args;

  LLTM_JIT_DEVICE ManyRowsPass(char* shared, const Args& args)
      : Products(shared, args.workspace, args.batch_size), args(args) {}

  LLTM_JIT_DEVICE int64_t gate_size() const {
    return kPadded ? padded_size(args.hidden_size) : args.hidden_size;
  }

  // A lane's row i of two, place.row and place.row + 8 of the tile, as a row of the batch.
  template <typename Place>
  LLTM_JIT_DEVICE int64_t row_of(const Place& place, int i) const {
    return args.first_row + int64_t(place.tile) * tile_rows + place.row + 8 * i;
  }
  template <typename Place>
  LLTM_JIT_DEVICE bool has_row(const Place& place, int i) const {
    return place.row + 8 * i < tile_rows && row_of(place, i) < args.batch_size;
  }

  // The place of a gate's unit in a step's row of an array.
  template <typename Array>
  LLTM_JIT_DEVICE auto* in_array(const Array& array, int64_t step, int64_t row, int gate,
                                 int unit) const {
    return array.template as<scalar_t>() + step * array.step_stride + row * array.row_stride +
           gate * gate_size() + unit;
  }
  // The same in an array of states, which is dense and may hold several.
  LLTM_JIT_DEVICE int64_t in_state(int64_t row, int unit) const {
    return row * args.hidden_size + unit;
  }
  LLTM_JIT_DEVICE int64_t state_size() const { return args.batch_size * args.hidden_size; }

  // Stores two neighbouring units of an array that may end between them.
  template <typename element_t>
  LLTM_JIT_DEVICE void store_two(element_t* target, int unit, const float (&values)[2]) const {
    if constexpr (!kPadded) {
      store_pack<2>(target, values);
    } else {
      if (unit < args.hidden_size) target[0] = from_opmath<element_t>(values[0]);
      if (unit + 1 < args.hidden_size) target[1] = from_opmath<element_t>(values[1]);
    }
  }
};

}  // namespace lltm_jit
