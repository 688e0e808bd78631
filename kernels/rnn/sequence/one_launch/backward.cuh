// The backward pass of a sequence in one launch: the gradients of the gates.
//
// The gradient of a step's output is that of the gates of the step after, times the weights; gradients.cuh
// brings it to those who need it. What the derivative of a step needs but the gradients, a warp computes while
// it waits for those.
#pragma once

#include "core/launch/launch.cuh"
#include "rnn/sequence/cell.h"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/numbers/gate_float.cuh"
#include "rnn/sequence/one_launch/gradients.cuh"
#include "rnn/sequence/one_launch/recurrence.cuh"

namespace lltm_jit {

// What one thread does. Iteration 0 is the last step of the sequence.
template <typename Cell, typename scalar_t, typename Shape, bool kControls>
class BackwardThread {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kParameters = CellTraits<Cell>::kParameters;
  static constexpr int kElements = kShape.elements(), kWords = kShape.words();
  static constexpr int kHalves = kElements == 2 ? 1 : 2;  // units that a lane's elements are of
  static constexpr bool kAdds = CellAddsGates<Cell>::value, kCluster = kShape.blocks > 1;
  static constexpr bool kSendsParts = kShape.sends_parts();
  using Gradients = std::conditional_t<kSendsParts, PartGradients<Shape, scalar_t, kGates>,
                                       AllGradients<Shape, scalar_t, kGates>>;
  static constexpr int kBytes = kShape.bytes;
  static_assert(kBytes == sizeof(scalar_t));
  using T = GateNumber<scalar_t>;
  using Packs = typename Gradients::Packs;
  // What a step's gradients come from but those of its results: its derivative, and the gradient of its
  // output from outside.
  struct Prepared {
    CellDerivative<Cell, T> derivatives[kElements];
    float grad_output[kElements];
  };

  // The gradients of the state that the first step began with come in an iteration of their own: of the same loop
  // where receiving them makes products, which would else be compiled twice.
  static constexpr int kIterationsAfter = kSendsParts ? 0 : 1;

  // Where a group has warps that do not finish, some of them bring what finishing warps read.
  static constexpr bool kHelped = kShape.helped();

  // What is read ahead of each step.
  static constexpr int kPacks = kShape.backward_packs(kGates, kAdds);
  static constexpr int kFloats = kShape.backward_floats(kStates);
  static constexpr int kGradOutput = 0, kSaved = 1, kInputs = kSaved + kGates;
  static constexpr int kOldOutput = kPacks - 1;

  // Shared memory.
  static constexpr int kRing = Gradients::kBytes;
  static constexpr int kBarriers = kRing + kShape.ring_bytes(kPacks, kFloats);

 public:
  static constexpr int kSharedBytes = kBarriers + SequenceShape::kBarrierBytes;
  static_assert(kSharedBytes == kShape.backward_bytes(kGates, kStates, kAdds));

  // A thread for one set of rows, of all recurrences.
  __device__ __forceinline__ BackwardThread(const SequenceBackwardArgs& args, uint32_t shared,
                                            int set)
      : args_(args),
        rows_(static_cast<int>(args.batch_size)),
        hidden_(static_cast<int>(keep(static_cast<uint32_t>(args.hidden_size)))),
        gate_size_(Shape::kPadded ? keep(static_cast<uint32_t>(args.gate_size())) : 0),
        gate_stride_(Shape::kSeveral ? keep(static_cast<uint32_t>(args.gate_stride())) : 0),
        steps_(static_cast<int>(args.steps)),
        recurrence_(args, set),
        lane_(recurrence_.rows()),
        gradients_(lane_,
                   exchange_place<Shape, kGates, kGates>(args, set, 0, shared, shared + kBarriers),
                   steps_, [&](int gate, int unit, int k) { return load_tile(gate, unit, k); }),
        ring_(lane_, shared + kRing),
        controls_(lane_, recurrence_.control(args, args.steps - 1),
                  -recurrence_.stride(args.control_step_stride), args.steps, args.batch_size),
        elements_(lane_, rows_, hidden_, units(), recurrence_.first_unit()),
        units_(lane_, hidden_),
        inside_(lane_.pack_row() < rows_ && lane_.pack_unit() < gate_size()) {}

  __device__ __forceinline__ void run() {
    begin();
    for (int iteration = 0; iteration < steps_ + kIterationsAfter; ++iteration)
      run_iteration(iteration);
    if constexpr (kIterationsAfter == 0) {
      float grad_h[kElements];
      if (args_.grad_old_h && receives()) gradients_.receive(steps_, 0, grad_h, [] {});
      if (lane_.finishes()) write_state(grad_h);
    }
    gradients_.finish();
  }

 private:
  // From a gate's first unit to that of the next one, of the weights; and of the other arrays, and the units of a row.
  __device__ __forceinline__ int gate_size() const { return Shape::kPadded ? gate_size_ : hidden_; }
  __device__ __forceinline__ int gate_stride() const {
    return Shape::kSeveral ? gate_stride_ : gate_size();
  }
  __device__ __forceinline__ int units() const {
    return Shape::kSeveral ? static_cast<int>(args_.units()) : hidden_;
  }

  // A tile of the weights' transpose.
  __device__ __forceinline__ typename Gradients::Numbers load_tile(int gate, int unit,
                                                                   int k) const {
    const int64_t stride = args_.weights_stride;
    typename Gradients::Numbers tile;
    if constexpr (kBytes ==
                  2) {  // of four units each, and of k and k + 2, as the transpose has them
      const int row = lane_.lane / 4 / 2 * 4 + lane_.lane / 4 % 2, column = lane_.lane % 4 * 4;
      const int from_unit = unit - row + column, from_k = k - column + row;
      const auto* from = recurrence_.template weights<uint16_t>(args_) +
                         (int64_t(gate) * gate_size() + from_k) * stride + from_unit;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool exist = from_unit < hidden_ && from_k + 2 * i < hidden_;
        const auto four = transpose<scalar_t>(load_weights<2>(from + 2 * i * stride, exist));
        tile.value[2 * i] = four.value[0];
        tile.value[2 * i + 1] = four.value[1];
      }
    } else {
      const bool exist = unit < hidden_ && k < hidden_;
      const auto* from = recurrence_.template weights<uint32_t>(args_) +
                         (int64_t(gate) * gate_size() + k) * stride + unit;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        tile.value[i] = load_weight(from + i % 4 * stride + i / 4 * 2, exist);
      }
    }
    return tile;
  }

  __device__ __forceinline__ void begin() {
    gradients_.clear();
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      grad_state_[0][e] = elements_.template read<scalar_t>(args_.grad_new_h, 0, e);
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        grad_state_[k][e] = elements_.template read<float>(args_.grad_new_cells, k - 1, e);
      }
      if constexpr (kControls) old_h_[e] = elements_.template read<scalar_t>(args_.old_h, 0, e);
#pragma unroll
      for (int i = 0; i < kParameters; ++i) grad_parameters_[i][e] = 0;
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int unit = min(lane_.unit_of(2 * half), hidden_ - 1);
#pragma unroll
      for (int i = 0; i < kParameters; ++i) {
        parameters_[i][half] = to_opmath(static_cast<const scalar_t*>(
            args_.parameters)[int64_t(i) * units() + recurrence_.first_unit() + unit]);
      }
    }
    for (int i = 0; i < SequenceShape::kStages - 1; ++i) bring(i);
    if constexpr (kHelped) {
      if (brings()) ring_.template arrange<scalar_t, 0>();
    }
    gradients_.start();
  }

  __device__ __forceinline__ bool brings() const {
    constexpr int kFinishers = kShape.finishers();
    if constexpr (!kHelped) return lane_.finishes();
    return lane_.split >= kFinishers && lane_.split < 2 * kFinishers;
  }
  __device__ __forceinline__ void bring(int iteration) {
    if (!brings()) return ring_.skip();
    if (iteration < steps_) {
      const auto bring_pack = [&](int pack, const char* from, bool exists = true) {
        ring_.bring_pack(pack, from, inside_ && exists);
      };
      bring_pack(kGradOutput, of_units(args_.grad_output, iteration), args_.grad_output.data);
      const char* saved_gates = of_gates(args_.saved_gates, iteration);
      const char* gates = kAdds ? nullptr : of_gates(args_.gates, iteration);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        bring_pack(kSaved + g, saved_gates + kBytes * g * gate_stride());
        if constexpr (!kAdds) bring_pack(kInputs + g, gates + kBytes * g * gate_stride());
      }
      if constexpr (Shape::kPadded) {
        bring_pack(kOldOutput, of_units(args_.output, iteration + 1));
      } else {
        const SequenceArray old_h{args_.old_h, 0, units()};
        const bool first = iteration + 1 == steps_;
        bring_pack(kOldOutput,
                   first ? of_units(old_h, iteration) : of_units(args_.output, iteration + 1),
                   !first || args_.old_h);
      }
      if constexpr (kStates > 1) bring_cells(iteration);
    }
    ring_.commit();
  }
  // Where this lane's pack is in an array, in the step of an iteration: computed each time, as pointers that go on
  // from iteration to iteration would take registers.
  template <typename Array>
  __device__ __forceinline__ auto* of_units(const Array& array, int iteration) const {
    return place(array, iteration, recurrence_.first_unit());
  }
  template <typename Array>
  __device__ __forceinline__ auto* of_gates(const Array& array, int iteration) const {
    return place(array, iteration, recurrence_.first_gate());
  }
  template <typename Array>
  __device__ __forceinline__ auto* place(const Array& array, int iteration, int first) const {
    using Byte = std::conditional_t<std::is_same_v<Array, SequenceArray>, const char, char>;
    return static_cast<Byte*>(array.data) +
           kBytes * (step_of(iteration) * array.step_stride + lane_.pack_row() * array.row_stride +
                     first + lane_.pack_unit());
  }
  __device__ __forceinline__ int64_t step_of(int iteration) const {
    return recurrence_.place_of(steps_ - 1 - static_cast<int>(keep(iteration)), steps_);
  }
  __device__ __forceinline__ void bring_cells(int iteration) const {
    const auto* of_step = static_cast<const float*>(args_.saved_cells.data) +
                          step_of(iteration) * args_.saved_cells.step_stride;
#pragma unroll
    for (int k = 0; k < kStates - 1; ++k) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const bool exists = elements_.exists(e);
        ring_.bring_float(k * kElements + e, of_step + elements_.place(k, e), exists);
      }
    }
  }

  __device__ __forceinline__ void read_elements(int pack, float (&values)[kElements]) const {
    auto words = ring_.pack(pack);
    if constexpr (!kHelped) words = transpose<scalar_t>(words);
    to_floats<scalar_t>(words, values);
  }

  __device__ __forceinline__ void prepare(int iteration, Prepared* prepared) {
    if (!lane_.finishes()) return;
    if constexpr (!kHelped) ring_.wait();
    read_elements(kGradOutput, prepared->grad_output);
    float saved[kGates][kElements], inputs[kGates][kElements], old_h[kElements];
    read_elements(kOldOutput, old_h);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      read_elements(kSaved + g, saved[g]);
      if constexpr (!kAdds) read_elements(kInputs + g, inputs[g]);
    }
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      auto in = step_of_element<Cell, T>(e, saved, inputs, parameters_);
      if constexpr (kControls) {  // what is held before a row's first step has left no output
        if (controls_.holds_next(e)) old_h[e] = old_h_[e];
        if (controls_.resets(e)) old_h[e] = 0;
      }
      in.old[0] = T(old_h[e]);
#pragma unroll
      for (int k = 1; k < kStates; ++k) in.old[k] = T(ring_.number((k - 1) * kElements + e));
      prepared->derivatives[e] = CellDerivative<Cell, T>(in);
    }
    bring(iteration + SequenceShape::kStages - 1);
  }

  // In a block or a grid all warps make the sums of those that finish.
  __device__ __forceinline__ bool receives() const { return !kSendsParts || lane_.finishes(); }

  __device__ __forceinline__ void run_iteration(int iteration) {
    Prepared prepared;
    const bool has_step = kIterationsAfter == 0 || iteration < steps_;
    if constexpr (kHelped) {
      if (has_step && brings()) {
        ring_.template arrange<scalar_t, 1>();
        bring(iteration + SequenceShape::kStages - 1);
      }
    }
    if (kCluster && has_step) prepare(iteration, &prepared);
    if (has_step) controls_.read_ahead(iteration);
#pragma unroll 1
    for (int phase = 0; phase < kShape.phases; ++phase) {
      float grad_h[kElements];
      if (receives() && (has_step || !kCluster || args_.grad_old_h)) {
        gradients_.receive(iteration, phase, grad_h,
                           [&] {  // one block: while the tensor cores work
                             if (has_step) prepare(iteration, &prepared);
                             if (lane_.finishes() && iteration > 0) write_gradients(iteration - 1);
                           });
      }
      if (!has_step) {
        if (lane_.finishes(phase)) write_state(grad_h);
        continue;
      }
      if (lane_.finishes(phase)) {
        finish(grad_h, prepared);
        put(iteration);
      }
      if (!kCluster || iteration + 1 < steps_ || args_.grad_old_h) gradients_.spread(iteration);
      if (kCluster && lane_.finishes(phase)) write_gradients(iteration);
    }
    if (has_step) controls_.advance();
  }

  // Computes the gradients of the step's gates, and what else goes on to the step before, from what the gates give
  // to the output's gradient.
  __device__ __forceinline__ void finish(const float (&from_gates)[kElements],
                                         const Prepared& prepared) {
    float grads[kGates][kElements], grads_of_h[kGates][kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const bool holds = controls_.holds(e), resets = controls_.resets(e);
      const float grad_h = grad_state_[0][e] + from_gates[e];
      T grad_now[kStates];
      grad_now[0] = T(grad_h + prepared.grad_output[e]);
#pragma unroll
      for (int k = 1; k < kStates; ++k) grad_now[k] = T(grad_state_[k][e]);
      const auto of_step = prepared.derivatives[e](grad_now);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        grads[g][e] = holds ? 0 : float(of_step.x[g]);
        if constexpr (!kAdds) grads_of_h[g][e] = holds ? 0 : float(of_step.h[g]);
      }
#pragma unroll
      for (int i = 0; i < kParameters; ++i) {
        grad_parameters_[i][e] += holds ? 0 : float(of_step.p[i]);
      }
      grad_state_[0][e] = holds ? grad_h : resets ? 0 : float(of_step.old[0]);
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        if (!holds) grad_state_[k][e] = resets ? 0 : float(of_step.old[k]);
      }
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      packs_[g] = transpose<scalar_t>(to_words<scalar_t>(kAdds ? grads[g] : grads_of_h[g]));
      units_.cut(packs_[g]);
      if constexpr (!kAdds) of_inputs_[g] = to_words<scalar_t>(grads[g]);
    }
  }

  __device__ __forceinline__ void put(int iteration) const {
    // Units that do not exist are no numbers that weights of zero could cancel for sure.
    const bool exists = Shape::kPadded || lane_.pack_unit() < hidden_;
    const bool zero = !exists || controls_.pack_resets();
    Packs packs;
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) packs[g].value[i] = zero ? 0 : packs_[g].value[i];
    }
    gradients_.put(iteration, packs);
  }

  // Writes the gradients of the iteration that has been finished last.
  __device__ __forceinline__ void write_gradients(int iteration) const {
    char* of_input = of_gates(args_.grad_gates, iteration);
    char* of_hidden = kAdds ? nullptr : of_gates(args_.grad_hidden, iteration);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      if constexpr (kAdds) {
        if (inside_) store_words(of_input + kBytes * g * gate_stride(), packs_[g]);
      } else {
        auto pack = transpose<scalar_t>(of_inputs_[g]);
        units_.cut(pack);
        if (inside_) store_words(of_input + kBytes * g * gate_stride(), pack);
        if (inside_) store_words(of_hidden + kBytes * g * gate_stride(), packs_[g]);
      }
    }
  }

  __device__ __forceinline__ void write_state(const float (&from_gates)[kElements]) const {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if (args_.grad_old_h) {
        elements_.template write<scalar_t>(args_.grad_old_h, 0, e,
                                           grad_state_[0][e] + from_gates[e]);
      }
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        if (!args_.grad_old_cells) break;
        elements_.template write<float>(args_.grad_old_cells, k - 1, e, grad_state_[k][e]);
      }
#pragma unroll
      for (int i = 0; i < kParameters; ++i) {
        elements_.template write<float>(args_.grad_parameters, i, e, grad_parameters_[i][e]);
      }
    }
  }

  const SequenceBackwardArgs& args_;
  int rows_, hidden_, gate_size_, gate_stride_, steps_;
  Recurrence<Shape> recurrence_;
  Lane<Shape> lane_;
  Gradients gradients_;
  Ring<Shape, kPacks, kFloats> ring_;
  Controls<Shape, kControls> controls_;
  Elements<Shape> elements_;
  PackUnits<Shape> units_;
  bool inside_;  // this lane's pack is of a row and of units that exist

  // What the step after has left to this one's states, but for the part that the gates give.
  float grad_state_[kStates][kElements];
  float old_h_[kElements];  // of the sequence
  float grad_parameters_[CellTraits<Cell>::kParametersRoom][kElements];
  float parameters_[CellTraits<Cell>::kParametersRoom][kHalves];
  // What the iteration that has been finished last gave, to be written.
  Packs packs_, of_inputs_;
};

template <typename Cell, typename scalar_t, typename Shape, bool kControls>
__device__ __forceinline__ void run_sequence(const SequenceBackwardArgs& args) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kRunsHere<Shape>) {
    extern __shared__ __align__(128) char shared[];
    wait_for_predecessor();
    const uint32_t address = keep(shared_address(shared));
    for_sets<Shape>(args, [&](int set) {
      BackwardThread<Cell, scalar_t, Shape, kControls>(args, address, set).run();
    });
  }
#endif
}

}  // namespace lltm_jit
