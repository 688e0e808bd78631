// The maths of a step of a cell that normalises, for the units of a thread: Note [A block for each row] (kernels.h).
#pragma once

#include "core/launch/block.cuh"
#include "rnn/sequence/normalised/finish.h"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/steps/kernels.h"

namespace lltm_jit {

// Sums over all threads of a block; each thread gets them. A kernel uses each slot once, so that no barrier is needed
// before a write to it.
template <typename T>
class RowSums {
 public:
  // The numbers of threads without units do not count.
  LLTM_JIT_DEVICE explicit RowSums(bool inside) : inside_(inside) {}

  template <int kSlot>
  LLTM_JIT_DEVICE void add(T& first, T& second) const {
    first = warp_sum(inside_ ? first : T(0)), second = warp_sum(inside_ ? second : T(0));
    T(*slot)[2] = shared<kSlot>();
    if (threadIdx.x % 32 == 0)
      slot[threadIdx.x / 32][0] = first, slot[threadIdx.x / 32][1] = second;
    __syncthreads();
    first = second = T(0);
    for (int warp = 0; warp < blockDim.x / 32; ++warp) {
      first += slot[warp][0], second += slot[warp][1];
    }
  }

  // The mean, and the sum of the squares around it, of kCount numbers of each thread. Each warp first uses its own
  // mean, so that no digits are lost. `all`: how many numbers a row has.
  template <int kSlot, int kCount>
  LLTM_JIT_DEVICE void moments(const T (&numbers)[kCount], int64_t all, T* mean, T* squares) const {
    T sum = T(0), of_warp = T(inside_ ? kCount : 0);
    LLTM_JIT_UNROLLED(i, kCount) sum += numbers[i];
    sum = warp_sum(inside_ ? sum : T(0)), of_warp = warp_sum(of_warp);
    const T own_mean = sum / (of_warp > 0 ? of_warp : T(1));
    T own_squares = T(0);
    LLTM_JIT_UNROLLED(i, kCount) own_squares += (numbers[i] - own_mean) * (numbers[i] - own_mean);
    own_squares = warp_sum(inside_ ? own_squares : T(0));
    T(*slot)[2] = shared<kSlot>();
    T(*counts)[2] = shared<kSlot + 1>();
    if (threadIdx.x % 32 == 0) {
      const int warp = threadIdx.x / 32;
      slot[warp][0] = sum, slot[warp][1] = own_squares, counts[warp][0] = of_warp;
    }
    __syncthreads();
    sum = T(0), *squares = T(0);
    for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += slot[warp][0];
    *mean = sum / T(all);
    for (int warp = 0; warp < blockDim.x / 32; ++warp) {
      const T count = counts[warp][0], away = count > 0 ? slot[warp][0] / count - *mean : T(0);
      *squares += slot[warp][1] + count * away * away;
    }
  }

 private:
  bool inside_;

  static LLTM_JIT_DEVICE T warp_sum(T sum) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return sum;
  }
  template <int kSlot>
  static LLTM_JIT_DEVICE T (*shared())[2] {
    __shared__ T slots[kMostRowThreads / 32][2];
    return slots;
  }
};

template <typename Cell, typename T, int kUnits>
class RowStep {
  using Traits = CellTraits<Cell>;
  using Step = CellStep<Cell, T>;
  using number_t = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates,
                       kState = Traits::kNormalisedState;

 public:
  LLTM_JIT_DEVICE explicit RowStep(int64_t hidden)
      : hidden_(hidden), sums_(int64_t(threadIdx.x) * kUnits < hidden) {}

  // The gates in `in` are normalised there.
  LLTM_JIT_DEVICE void run(Step (&in)[kUnits], T (&now)[kUnits][kStates]) const {
    normalise_gates(in);
    LLTM_JIT_UNROLLED(e, kUnits) run_step(in[e], now[e]);
    if constexpr (kState >= 0) {
      T normalised[kUnits];
      normalise_state(now, normalised);
      LLTM_JIT_UNROLLED(e, kUnits) finish_step<Cell>(in[e].p, normalised[e], now[e]);
    }
  }

  LLTM_JIT_DEVICE void derive(Step (&in)[kUnits], const T (&grad_now)[kUnits][kStates],
                              Step (&grads)[kUnits]) const {
    const number_t of_gates = normalise_gates(in);
    T grad_left[kUnits][kStates];
    LLTM_JIT_UNROLLED2(e, kUnits, k, kStates) grad_left[e][k] = grad_now[e][k];
    FinishGradients<Cell, T> finished[kState >= 0 ? kUnits : 1];
    if constexpr (kState >= 0) {
      T left[kUnits][kStates], normalised[kUnits];
      LLTM_JIT_UNROLLED(e, kUnits) run_step(in[e], left[e]);
      const number_t scale = normalise_state(left, normalised);
      number_t sum = 0, slope = 0;
      LLTM_JIT_UNROLLED(e, kUnits) {
        finished[e] = FinishGradients<Cell, T>(in[e].p, normalised[e], left[e], grad_now[e]);
        sum += number_t(finished[e].normalised);
        slope += number_t(finished[e].normalised) * number_t(normalised[e]);
      }
      sums_.template add<4>(sum, slope);
      sum /= number_t(hidden_), slope /= number_t(hidden_);
      LLTM_JIT_UNROLLED(e, kUnits) {
        LLTM_JIT_UNROLLED(k, kStates) grad_left[e][k] = finished[e].now[k];
        const number_t grad = number_t(finished[e].normalised) - sum;
        grad_left[e][kState] =
            grad_left[e][kState] + T((grad - number_t(normalised[e]) * slope) * scale);
      }
    }
    LLTM_JIT_UNROLLED(e, kUnits) {
      grads[e] = CellDerivative<Cell, T>(in[e])(grad_left[e]);
      if constexpr (kState >= 0) {
        LLTM_JIT_UNROLLED(p, Traits::kParameters) grads[e].p[p] = grads[e].p[p] + finished[e].p[p];
      }
    }
    if constexpr (Traits::kNormalisesGates) {
      number_t sum = 0, slope = 0;
      LLTM_JIT_UNROLLED2(e, kUnits, g, kGates) {
        const number_t grad = number_t(grads[e].sum(g));
        sum += grad, slope += grad * number_t(in[e].sum(g));
      }
      sums_.template add<5>(sum, slope);
      const number_t count = number_t(kGates * hidden_);
      sum /= count, slope /= count;
      LLTM_JIT_UNROLLED2(e, kUnits, g, kGates) {
        T& grad = grads[e].sum(g);
        grad = T((number_t(grad) - sum - number_t(in[e].sum(g)) * slope) * of_gates);
      }
    }
  }

 private:
  const int64_t hidden_;
  const RowSums<number_t> sums_;

  // Normalises numbers of which a row has so many, and returns the factor.
  template <int kSlot, int kCount>
  LLTM_JIT_DEVICE number_t normalise(number_t (&numbers)[kCount], int64_t all) const {
    number_t mean, squares;
    sums_.template moments<kSlot>(numbers, all, &mean, &squares);
    const number_t scale = number_t(1) / sqrt(squares / number_t(all) + number_t(Traits::kEpsilon));
    LLTM_JIT_UNROLLED(i, kCount) numbers[i] = (numbers[i] - mean) * scale;
    return scale;
  }
  LLTM_JIT_DEVICE number_t normalise_gates(Step (&in)[kUnits]) const {
    if constexpr (Traits::kNormalisesGates) {
      number_t numbers[kUnits * kGates];
      LLTM_JIT_UNROLLED2(e, kUnits, g, kGates) numbers[e * kGates + g] = number_t(in[e].sum(g));
      const number_t scale = normalise<0>(numbers, kGates * hidden_);
      LLTM_JIT_UNROLLED2(e, kUnits, g, kGates) in[e].sum(g) = T(numbers[e * kGates + g]);
      return scale;
    } else {
      return number_t(1);
    }
  }
  LLTM_JIT_DEVICE number_t normalise_state(const T (&states)[kUnits][kStates],
                                           T (&normalised)[kUnits]) const {
    number_t numbers[kUnits];
    LLTM_JIT_UNROLLED(e, kUnits) numbers[e] = number_t(states[e][kState]);
    const number_t scale = normalise<2>(numbers, hidden_);
    LLTM_JIT_UNROLLED(e, kUnits) normalised[e] = T(numbers[e]);
    return scale;
  }
};

}  // namespace lltm_jit
