// The gradients of the gates, which a backward pass writes.
#pragma once

#include "rnn/sequence/persistent/lanes/place.cuh"

namespace lltm_jit {

// A lane's packs of the last finished step. kAdds: the hidden parts have the same gradients.
template <typename Shape, typename scalar_t, int kGates, bool kAdds>
class GateGradients {
  static constexpr int kElements = Shape::kShape.elements(), kWords = Shape::kShape.words();

 public:
  using Packs = Words<kWords>[kGates];

  LLTM_JIT_DEVICE GateGradients(const LanePlace<Shape>& place, const SequenceBackwardArgs& args)
      : of_input_(args.grad_gates), of_hidden_(args.grad_hidden) {
    of_input_.start(place, 0);
    if constexpr (!kAdds) of_hidden_.start(place, 0);
  }

  LLTM_JIT_DEVICE void take(const LanePack<Shape>& pack, const float (&grads)[kGates][kElements],
                            const float (&grads_of_h)[kGates][kElements]) {
    LLTM_JIT_UNROLLED(g, kGates) {
      packs_[g] = transpose<scalar_t>(to_words<scalar_t>(kAdds ? grads[g] : grads_of_h[g]));
      pack.cut(packs_[g]);
      if constexpr (!kAdds) of_inputs_[g] = to_words<scalar_t>(grads[g]);
    }
  }
  // Of the hidden parts, from which the step before is computed.
  LLTM_JIT_DEVICE const Packs& packs() const { return packs_; }

  LLTM_JIT_DEVICE void write(const LanePlace<Shape>& place, const LanePack<Shape>& pack,
                             int iteration) {
    char* of_input = of_input_.next(place, iteration);
    char* of_hidden = kAdds ? nullptr : of_hidden_.next(place, iteration);
    LLTM_JIT_UNROLLED(g, kGates) {
      if constexpr (kAdds) {
        if (pack.exists()) store_words(of_input + place.gate_bytes(g), packs_[g]);
      } else {
        auto words = transpose<scalar_t>(of_inputs_[g]);
        pack.cut(words);
        if (pack.exists()) store_words(of_input + place.gate_bytes(g), words);
        if (pack.exists()) store_words(of_hidden + place.gate_bytes(g), packs_[g]);
      }
    }
  }

 private:
  Packs packs_, of_inputs_;
  StepPointer<Shape, Kept::Gates, MutableSequenceArray> of_input_, of_hidden_;
};

}  // namespace lltm_jit
