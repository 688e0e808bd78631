// A recurrent cell is the maths of one hidden unit in one step. Every kernel for whole sequences is made from it.
//
// A cell has limits. step() sees the numbers of one unit, so it cannot add up over units, except by a layer norm
// (below). h[i] is the product already, so step() cannot change the old output before the product. step() must be a
// pure function, without random numbers, statics and globals, because a backward pass computes it again: pass a mask of
// zoneout or dropout as one more gate of x. OwnCell.check() finds steps that are not pure.
//
//   struct PeepholeCell {
//     static constexpr int kGates = 4, kStates = 2;  // states[0] is the output
//     static constexpr int kParameters = 3;          // learnt per unit, besides matrices and biases
//     template <typename T>
//     LLTM_JIT_HOST_DEVICE static void step(const T (&x)[kGates], const T (&h)[kGates],
//                                           const T (&p)[kParameters], const T (&old)[kStates],
//                                           T (&now)[kStates]);
//   };
//
// x[i] is gate i's product of weights and input, h[i] its product of weights and the old output, each with a bias.
// A cell without kParameters has no `p`. A cell that uses only the sums x[i] + h[i] is faster with
//   static constexpr bool kAddsGates = true;
// A cell without recurrent weights, such as minGRU, SRU and QRNN, has
//   static constexpr bool kProduct = false;
// Its step() and step_backward() have neither `h` nor `grad_h`. A GPU runs such a cell at the speed of its memory if
// each new state is linear in the old states, with factors and a summand that depend on x and p alone:
//   static constexpr bool kLinear = true;
// The factors must not grow without bounds: their products over many steps are computed, too.
//
// A cell may have its numbers normalised over all units of a row: the mean is subtracted, and the rest is divided by
// sqrt(variance + kEpsilon). kEpsilon is 1e-5 unless the cell has this constant.
//   static constexpr bool kNormalisesGates = true;
// Then all gates of a row are normalised together: h[i] or, if the cell adds its gates, the sums x[i] + h[i]. There is
// no bias of the hidden part; the weights and biases of the norm are parameters of the cell.
//   static constexpr int kNormalisedState = 1;
// Then this state is normalised after step(). Another function gets the normalised number, and changes `now` to the
// states after the step:
//   template <typename T>
//   LLTM_JIT_HOST_DEVICE static void finish(const T (&p)[kParameters], const T& normalised, T (&now)[kStates]);
// T is a float, a double, a vector of them, a dual number or a tensor: write constants as T(1), and sums as
// a = a + b. The functions are exp, log, log1p, sqrt, sin, cos, tanh, abs, min, max, sigmoid, softplus, elu, relu
// and, instead of comparisons, where_greater(x, y, a, b), which is x > y ? a : b.
//
// The derivative is the same code on dual numbers, or the cell's own
//   template <typename T>
//   LLTM_JIT_HOST_DEVICE static void step_backward(
//       const T (&x)[kGates], const T (&h)[kGates], const T (&p)[kParameters], const T (&old)[kStates],
//       const T (&grad_now)[kStates], T (&grad_x)[kGates], T (&grad_h)[kGates],
//       T (&grad_p)[kParameters], T (&grad_old)[kStates]);
#pragma once

#include <type_traits>
#include <utility>

#include "core/math/dual.h"
#include "rnn/sequence/numbers/functions.h"

namespace lltm_jit {

// ------------------------------------------------------------------------- a cell's properties --

// The first lines of this package's cells: the numbers above, and the arguments of step() in short.
template <int gates, int states, bool adds_gates = true>
struct CellOf {
  static constexpr int kGates = gates, kStates = states;
  static constexpr bool kAddsGates = adds_gates;
  template <typename T>
  using Gates = const T (&)[gates];
  template <typename T>
  using Old = const T (&)[states];
  template <typename T>
  using New = T (&)[states];
};

// Trait<Cell>::value is a constant of the cell or, if the cell has no such constant, `otherwise`. (kIsBounded, for
// cells of this package alone: the output is within -1 and 1.)
#define LLTM_JIT_CELL_CONSTANT(Trait, type, constant, otherwise) \
  template <typename Cell, typename = void>                      \
  struct Trait {                                                 \
    static constexpr type value = otherwise;                     \
  };                                                             \
  template <typename Cell>                                       \
  struct Trait<Cell, std::void_t<decltype(Cell::constant)>> {    \
    static constexpr type value = Cell::constant;                \
  };
LLTM_JIT_CELL_CONSTANT(CellParameters, int, kParameters, 0)
LLTM_JIT_CELL_CONSTANT(CellAddsGates, bool, kAddsGates, false)
LLTM_JIT_CELL_CONSTANT(CellIsBounded, bool, kIsBounded, false)
LLTM_JIT_CELL_CONSTANT(CellProduct, bool, kProduct, true)
LLTM_JIT_CELL_CONSTANT(CellIsLinear, bool, kLinear, false)
LLTM_JIT_CELL_CONSTANT(CellNormalisesGates, bool, kNormalisesGates, false)
LLTM_JIT_CELL_CONSTANT(CellNormalisedState, int, kNormalisedState, -1)
LLTM_JIT_CELL_CONSTANT(CellEpsilon, double, kEpsilon, 1e-5)
#undef LLTM_JIT_CELL_CONSTANT

// The sizes of a cell's arrays, none of which may be empty.
template <typename Cell>
struct CellTraits {
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kParameters = CellParameters<Cell>::value;
  static constexpr bool kProduct = CellProduct<Cell>::value, kLinear = CellIsLinear<Cell>::value;
  static constexpr bool kAddsGates = CellAddsGates<Cell>::value || !kProduct;
  static_assert(kGates >= 1 && kStates >= 1 && kParameters >= 0,
                "a cell has at least one gate and one state");
  static constexpr bool kNormalisesGates = CellNormalisesGates<Cell>::value;
  static constexpr int kNormalisedState = CellNormalisedState<Cell>::value;
  static constexpr bool kNormalises = kNormalisesGates || kNormalisedState >= 0;
  static constexpr double kEpsilon = CellEpsilon<Cell>::value;
  static_assert(!(kProduct && kLinear), "a cell with kLinear has no product");
  static_assert(kProduct || !kNormalises, "a cell without a product has nothing normalised");
  static_assert(kNormalisedState < kStates, "a cell has the state that is normalised");
  static constexpr int kHiddenRoom = kAddsGates ? 1 : kGates;                // for h, and
  static constexpr int kParametersRoom = kParameters > 0 ? kParameters : 1;  // for p, if any
};

// -------------------------------------------------------------------------------------- a step --

// The inputs of a step for one hidden unit of one row, or their gradients. A cell that adds its gates, or has no
// product, has the gates' sums in x, and nothing in h.
template <typename Cell, typename T>
struct CellStep {
  using Traits = CellTraits<Cell>;
  T x[Traits::kGates], h[Traits::kHiddenRoom], p[Traits::kParametersRoom], old[Traits::kStates];

  // The sum of a gate's parts, or its hidden part if the cell does not add them: what a forward pass saves, and what a
  // cell normalises.
  LLTM_JIT_HOST_DEVICE T& sum(int g) {
    if constexpr (Traits::kAddsGates) {
      return x[g];
    } else {
      return h[g];
    }
  }
  LLTM_JIT_HOST_DEVICE const T& sum(int g) const { return const_cast<CellStep*>(this)->sum(g); }
};

// Calls step() with what such a cell has of `h` and `p`.
template <typename Cell, typename T>
LLTM_JIT_HOST_DEVICE void call_step(const T (&x)[Cell::kGates], const T (&h)[Cell::kGates],
                                    const T (&p)[CellTraits<Cell>::kParametersRoom],
                                    const T (&old)[Cell::kStates], T (&now)[Cell::kStates]) {
  using Traits = CellTraits<Cell>;
  if constexpr (!Traits::kProduct && Traits::kParameters > 0) {
    Cell::step(x, p, old, now);
  } else if constexpr (!Traits::kProduct) {
    Cell::step(x, old, now);
  } else if constexpr (Traits::kParameters > 0) {
    Cell::step(x, h, p, old, now);
  } else {
    Cell::step(x, h, old, now);
  }
}

template <typename Cell, typename T>
LLTM_JIT_HOST_DEVICE void run_step(const CellStep<Cell, T>& in, T (&now)[Cell::kStates]) {
  using Traits = CellTraits<Cell>;
  if constexpr (Traits::kAddsGates) {
    T zeros[Traits::kGates];  // negative ones, which change no sum, as compilers know
    LLTM_JIT_UNROLLED(g, Traits::kGates) zeros[g] = T(-0.0);
    call_step<Cell>(in.x, zeros, in.p, in.old, now);
  } else {
    call_step<Cell>(in.x, in.h, in.p, in.old, now);
  }
}

// -------------------------------------------------------------------------------- derivatives --

template <typename Cell, typename = void>
struct HasOwnBackward : std::false_type {};
template <typename Cell>
struct HasOwnBackward<Cell, std::void_t<decltype(&Cell::template step_backward<float>)>>
    : std::true_type {};

// A step's derivative. The constructor computes what does not need the gradients, so that a kernel can do this while it
// waits for them.
template <typename Cell, typename T, bool kOwn = HasOwnBackward<Cell>::value>
class CellDerivative {
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, T>;
  // The variables are numbered as CellStep has them.
  static constexpr int kH = Traits::kGates;
  static constexpr int kP = kH + (Traits::kAddsGates ? 0 : Traits::kGates);
  static constexpr int kOld = kP + Traits::kParameters;
  static constexpr int kVariables = kOld + Traits::kStates;
  using Number = typename DualFor<T, kVariables>::type;

 public:
  CellDerivative() = default;
  // One whose numbers for_numbers() sets, as the same cell has them in another type.
  template <typename Other>
  LLTM_JIT_HOST_DEVICE explicit CellDerivative(const CellDerivative<Cell, Other>& other) {
    LLTM_JIT_UNROLLED(s, Traits::kStates) now_[s].active = other.active(s);
  }
  LLTM_JIT_HOST_DEVICE explicit CellDerivative(const Step& in) {
    CellStep<Cell, Number> variables;
    number<0, Traits::kGates>(in.x, variables.x);
    if constexpr (!Traits::kAddsGates) number<kH, Traits::kGates>(in.h, variables.h);
    number<kP, Traits::kParameters>(in.p, variables.p);
    number<kOld, Traits::kStates>(in.old, variables.old);
    run_step(variables, now_);
  }

  // The gradients of the step's inputs.
  LLTM_JIT_HOST_DEVICE Step operator()(const T (&grad_now)[Traits::kStates]) const {
    Step grads;
    gather<0, Traits::kGates>(grad_now, grads.x);
    if constexpr (!Traits::kAddsGates) gather<kH, Traits::kGates>(grad_now, grads.h);
    gather<kP, Traits::kParameters>(grad_now, grads.p);
    gather<kOld, Traits::kStates>(grad_now, grads.old);
    return grads;
  }

  // Calls function(number) for the numbers of this object, in an order that depends on the cell alone.
  template <typename Function>
  LLTM_JIT_HOST_DEVICE void for_numbers(const Function& function) {
    LLTM_JIT_UNROLLED2(s, Traits::kStates, i, kVariables) {
      if (now_[s].depends_on(i)) function(now_[s].partials[i]);
    }
  }
  LLTM_JIT_HOST_DEVICE uint32_t active(int state) const { return now_[state].active; }

 private:
  template <int kFirst, int kCount, int kRoom>
  static LLTM_JIT_HOST_DEVICE void number(const T (&values)[kRoom], Number (&variables)[kRoom]) {
    LLTM_JIT_UNROLLED(i, kCount) variables[i] = Number::variable(values[i], kFirst + i);
  }

  template <int kFirst, int kCount, int kRoom>
  LLTM_JIT_HOST_DEVICE void gather(const T (&grad_now)[Traits::kStates], T (&grads)[kRoom]) const {
    LLTM_JIT_UNROLLED(i, kCount) {
      bool any = false;
      LLTM_JIT_UNROLLED(s, Traits::kStates) {
        if (!now_[s].depends_on(kFirst + i)) continue;
        const T part = now_[s].partials[kFirst + i] * grad_now[s];
        grads[i] = any ? grads[i] + part : part;
        any = true;
      }
      if (!any) grads[i] = T(0);
    }
  }

  Number now_[Traits::kStates];
};

// The derivative of a cell that has a backward step of its own.
template <typename Cell, typename T>
class CellDerivative<Cell, T, true> {
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, T>;

 public:
  CellDerivative() = default;
  template <typename Other>
  LLTM_JIT_HOST_DEVICE explicit CellDerivative(const CellDerivative<Cell, Other>&) {}
  LLTM_JIT_HOST_DEVICE explicit CellDerivative(const Step& in) : in_(in) {}

  template <typename Function>
  LLTM_JIT_HOST_DEVICE void for_numbers(const Function& function) {
    const auto of = [&](auto& numbers, int count) {
      LLTM_JIT_UNROLLED(i, count) function(numbers[i]);
    };
    of(in_.x, Traits::kGates);
    if constexpr (!Traits::kAddsGates) of(in_.h, Traits::kGates);
    of(in_.p, Traits::kParameters);
    of(in_.old, Traits::kStates);
  }

  LLTM_JIT_HOST_DEVICE Step operator()(const T (&grad_now)[Traits::kStates]) const {
    Step grads;
    if constexpr (Traits::kAddsGates) {
      T none[Traits::kGates], unused[Traits::kGates];
      LLTM_JIT_UNROLLED(g, Traits::kGates) none[g] = T(0);
      backward(none, grad_now, grads, unused);
    } else {
      backward(in_.h, grad_now, grads, grads.h);
    }
    return grads;
  }

 private:
  LLTM_JIT_HOST_DEVICE void backward(const T (&h)[Traits::kGates],
                                     const T (&grad_now)[Traits::kStates], Step& grads,
                                     T (&grad_h)[Traits::kGates]) const {
    if constexpr (!Traits::kProduct && Traits::kParameters > 0) {
      Cell::step_backward(in_.x, in_.p, in_.old, grad_now, grads.x, grads.p, grads.old);
    } else if constexpr (!Traits::kProduct) {
      Cell::step_backward(in_.x, in_.old, grad_now, grads.x, grads.old);
    } else if constexpr (Traits::kParameters > 0) {
      Cell::step_backward(in_.x, h, in_.p, in_.old, grad_now, grads.x, grad_h, grads.p, grads.old);
    } else {
      Cell::step_backward(in_.x, h, in_.old, grad_now, grads.x, grad_h, grads.old);
    }
  }

  Step in_;
};

}  // namespace lltm_jit
