// Declares the operators that an elementwise operator consists of, given only the numbers of their
// tensors: an edit of the maths does not recompile bindings.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/host/operator.h"

namespace lltm_jit {

template <typename Result, typename Indices>
struct OfTensors;
template <typename Result, size_t... k>
struct OfTensors<Result, std::index_sequence<k...>> {
  template <size_t>
  using Each = const at::Tensor&;
  using Function = Result(Each<k>...);
  // An operator returns a single tensor as it is, and several as a tuple.
  using Tensors = std::tuple<std::decay_t<Each<k>>...>;
  using Some = std::conditional_t<sizeof...(k) == 1, at::Tensor, Tensors>;
};
template <int kInputs, typename Result = at::Tensor>
using OfInputs = OfTensors<Result, std::make_index_sequence<kInputs>>;

template <int kInputs>
using Elementwise = Operator<typename OfInputs<kInputs>::Function>;
template <int kInputs, int kSaved>
using ElementwiseBackward =
    Operator<typename OfInputs<1 + kSaved, typename OfInputs<kInputs>::Some>::Function>;
using ElementwiseDerivative = Composite<at::Tensor(const at::Tensor&)>;

}  // namespace lltm_jit

#define LLTM_JIT_DECLARE_ELEMENTWISE(name, Op, inputs, saved) \
  namespace ops {                                             \
  extern Elementwise<inputs> name;                            \
  extern ElementwiseBackward<inputs, saved> name##_backward;  \
  }
#define LLTM_JIT_DECLARE_DERIVATIVE(name, Op, inputs, saved) \
  namespace ops {                                            \
  extern ElementwiseDerivative d_##name;                     \
  }
