// A cell of a user's own as a library: its loops on the CPU, its formula, and what it is. Constants of a
// variant:
//   CELL_HEADER  the header, as #include takes it
//   CELL         the cell's type
#include "rnn/sequence/recurrent_cell.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "rnn/sequence/cpu/cell.h"
#include "rnn/sequence/walk/map.h"

using namespace lltm_jit;
#include CELL_HEADER

#define LLTM_JIT_TEXT(words) LLTM_JIT_TEXT_OF(words)
#define LLTM_JIT_TEXT_OF(words) #words

namespace {

template <typename Cell, typename = void>
struct HasSizes : std::false_type {};
template <typename Cell>
struct HasSizes<Cell, std::void_t<std::enable_if_t<(Cell::kGates > 0 && Cell::kStates > 0)>>>
    : std::true_type {};
static_assert(HasSizes<CELL>::value,
              "expected the cell to have static constexpr int kGates, kStates, both above 0");

// Whether step() takes such arrays.
template <typename Cell, typename = void, typename... Arrays>
struct TakesArrays : std::false_type {};
template <typename Cell, typename... Arrays>
struct TakesArrays<Cell, std::void_t<decltype(Cell::step(std::declval<Arrays>()...))>, Arrays...>
    : std::true_type {};

template <typename Cell>
constexpr bool has_step() {
  using Gates = const float (&)[Cell::kGates];
  using Parameters = const float (&)[CellTraits<Cell>::kParametersRoom];
  using Old = const float (&)[Cell::kStates];
  using New = float (&)[Cell::kStates];
  constexpr bool kParameters = CellTraits<Cell>::kParameters > 0;
  if constexpr (CellTraits<Cell>::kProduct) {
    return kParameters ? TakesArrays<Cell, void, Gates, Gates, Parameters, Old, New>::value
                       : TakesArrays<Cell, void, Gates, Gates, Old, New>::value;
  }
  return kParameters ? TakesArrays<Cell, void, Gates, Parameters, Old, New>::value
                     : TakesArrays<Cell, void, Gates, Old, New>::value;
}
static_assert(
    has_step<CELL>(),
    "expected static void step(const T (&x)[kGates], const T (&h)[kGates] unless kProduct "
    "is false, const T (&p)[kParameters] if there are any, const T (&old)[kStates], "
    "T (&now)[kStates]) for any number T");

template <typename Cell>
constexpr int kNumbers = sizeof(CellStep<Cell, double>) / sizeof(double);

// The cell's states, with the two parts of its gates apart.
template <typename Cell>
void step_apart(const CellStep<Cell, double>& in, const double (&x)[Cell::kGates],
                const double (&h)[Cell::kGates], double* result) {
  double now[Cell::kStates];
  call_step<Cell>(x, h, in.p, in.old, now);
  std::copy_n(now, Cell::kStates, result);
}

template <int kSize, typename T>
T (&array_at(T* first))
[kSize] { return *reinterpret_cast<T(*)[kSize]>(first); }

// What a step does beyond its arrays: a bit for each of x, h, p, old and now that it uses out of range,
// then one for each state that it does not write. Numbers around an array are variables, on which results
// then depend; so are the states before the step.
template <typename Cell>
int64_t faults() {
  using Traits = CellTraits<Cell>;
  using Number = Dual<double, 6>;
  constexpr int kAround = 16, kArrays = 5, kNever = 5;
  constexpr int kSizes[] = {Traits::kGates, Traits::kGates, Traits::kParametersRoom,
                            Traits::kStates, Traits::kStates};
  constexpr int kAll =
      2 * kArrays * kAround + kSizes[0] + kSizes[1] + kSizes[2] + kSizes[3] + kSizes[4];
  Number numbers[kAll], *arrays[kArrays], *next = numbers;
  for (int array = 0; array < kArrays; ++array) {
    arrays[array] = next + kAround;
    std::fill_n(next, kSizes[array] + 2 * kAround, Number::variable(0.5, array));
    const Number inside = array == 4 ? Number::variable(0.5, kNever) : Number(0.5);
    std::fill_n(arrays[array], kSizes[array], inside);
    next = arrays[array] + kSizes[array] + kAround;
  }
  asm volatile("" : : "r"(numbers) : "memory");  // the compiler may assume nothing about them
  call_step<Cell>(array_at<Traits::kGates>(arrays[0]), array_at<Traits::kGates>(arrays[1]),
                  array_at<Traits::kParametersRoom>(arrays[2]),
                  array_at<Traits::kStates>(arrays[3]), array_at<Traits::kStates>(arrays[4]));
  asm volatile("" : : "r"(numbers) : "memory");
  int64_t found = 0;
  for (const Number* around = arrays[4] - kAround; around < next; ++around) {
    const int64_t state = around - arrays[4];
    if (state < 0 || state >= Traits::kStates) {
      if (around->active != 1u << 4 || around->value != 0.5) found |= 1 << 4;
    } else {
      found |= around->active & ((1u << kNever) - 1);
      if (around->depends_on(kNever)) found |= int64_t(1) << (kNever + state);
    }
  }
  return found;
}

template <typename Cell>
void compare(const double* numbers, const double* grad_now, double* dual, double* own,
             double* apart, double* added) {
  CellStep<Cell, double> in;
  std::copy_n(numbers, kNumbers<Cell>, reinterpret_cast<double*>(&in));
  double grads[Cell::kStates];
  std::copy_n(grad_now, Cell::kStates, grads);
  // With zeros in the room that an array without numbers has, and that no derivative writes.
  const auto put = [](CellStep<Cell, double> step, double* target) {
    if constexpr (CellTraits<Cell>::kAddsGates) step.h[0] = 0;
    if constexpr (CellTraits<Cell>::kParameters == 0) step.p[0] = 0;
    std::copy_n(reinterpret_cast<const double*>(&step), kNumbers<Cell>, target);
  };
  put(CellDerivative<Cell, double, false>(in)(grads), dual);
  if constexpr (HasOwnBackward<Cell>::value)
    put(CellDerivative<Cell, double, true>(in)(grads), own);
  if constexpr (CellTraits<Cell>::kLinear) {
    double now[Cell::kStates];
    run_step(in, now);
    std::copy_n(now, Cell::kStates, apart);
    const CellMap<Cell, double> map(in);
    for (int s = 0; s < Cell::kStates; ++s) {
      added[s] = map.sums[s];
      for (int of = 0; of < Cell::kStates; ++of) added[s] += map.factors[s][of] * in.old[of];
    }
  } else if constexpr (CellTraits<Cell>::kProduct && CellTraits<Cell>::kAddsGates) {
    double half[Cell::kGates], none[Cell::kGates] = {};
    for (int g = 0; g < Cell::kGates; ++g) half[g] = in.x[g] / 2;
    step_apart(in, half, half, apart);
    step_apart(in, in.x, none, added);
  } else {
    double now[Cell::kStates];
    run_step(in, now);
    std::copy_n(now, Cell::kStates, apart);
  }
}

}  // namespace

// gates, states, parameters, adds_gates, product, normalises its gates, normalises anything, a backward step of its own,
// linear, numbers in a CellStep
extern "C" void recurrent_cell_sizes(int (&sizes)[10]) {
  using Traits = CellTraits<CELL>;
  const int found[] = {Traits::kGates,      Traits::kStates,
                       Traits::kParameters, Traits::kAddsGates,
                       Traits::kProduct,    Traits::kNormalisesGates,
                       Traits::kNormalises, HasOwnBackward<CELL>::value,
                       Traits::kLinear,     kNumbers<CELL>};
  std::copy_n(found, 10, sizes);
}

extern "C" int64_t recurrent_cell_faults() { return faults<CELL>(); }

// For add_cell_at(); lives as long as the process.
extern "C" const RecurrentCell* recurrent_cell_as(const char* name, const char* kernel) {
  return new RecurrentCell(recurrent_cell<CELL>(name, {kernel, CELL_HEADER, LLTM_JIT_TEXT(CELL)}));
}

// A step's derivative by dual numbers and by the cell's own backward step, in the order of CellStep; and its states,
// `apart` from the gates' parts, and `added` from their sums if it adds them, or by its map if it is linear.
extern "C" void recurrent_cell_compare(const double* numbers, const double* grad_now, double* dual,
                                       double* own, double* apart, double* added) {
  compare<CELL>(numbers, grad_now, dual, own, apart, added);
}
