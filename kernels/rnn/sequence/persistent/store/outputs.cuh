// What a forward pass writes.
#pragma once

#include "rnn/sequence/persistent/lanes/place.cuh"

namespace lltm_jit {

// A lane's outputs, and the arrays that kSaves asks for.
template <typename Shape, typename scalar_t, int kGates, int kStates, SequenceSaves kSaves>
class Outputs {
  static constexpr int kElements = Shape::kShape.elements(), kWords = Shape::kShape.words();
  static constexpr bool kSavesGates = kSaves == kSavesAll;
  using State = float[kStates][kElements];

 public:
  LLTM_JIT_DEVICE Outputs(const LanePlace<Shape>& place, const Elements<Shape>& elements,
                          const LanePack<Shape>& pack, const SequenceForwardArgs& args)
      : place_(place), elements_(elements), pack_(pack), args_(args) {}
  LLTM_JIT_DEVICE void start() {
    output_ = place_.first_pack(args_.output, place_.recurrence.first_unit());
    step_bytes_.start(place_, args_.output.step_stride);
    if constexpr (kSavesGates) {
      saved_gates_ = place_.first_pack(args_.saved_gates, place_.recurrence.first_gate());
      gates_bytes_.start(place_, args_.saved_gates.step_stride);
    }
    if constexpr (kSaves) {
      const int64_t first = place_.recurrence.place_of(0, args_.steps);
      saved_cells_ = args_.saved_cells.as<char>() +
                     4 * (elements_.first + first * args_.saved_cells.step_stride);
      cells_bytes_.start(place_, args_.saved_cells.step_stride);
    }
  }

  // Makes packs of a finished step's results.
  template <typename Controls>
  LLTM_JIT_DEVICE void take(const float (&output)[kElements],
                            const float (&sums)[kGates][kElements], const Controls& controls) {
    packs_ = transpose<scalar_t>(to_words<scalar_t>(output));
    pack_.cut(packs_);
    held_ = controls.pack_holds();
    if constexpr (kSavesGates) {
      LLTM_JIT_UNROLLED(g, kGates) saved_[g] = to_words<scalar_t>(sums[g]);
    }
  }
  // The step's h; a row that holds keeps its old h.
  LLTM_JIT_DEVICE uint32_t word(int i, const Words<kWords>& before) const {
    return held_ ? before.value[i] : packs_.value[i];
  }

  // Writes the results that were taken last, if there are any.
  LLTM_JIT_DEVICE void write(bool any = true) {
    const bool writes = pack_.exists() && any;
    Words<kWords> packs = packs_;
    if (held_) packs = {};
    if constexpr (Shape::kPadded) {
      if (writes) pack_.store(output_, packs, args_.hidden_size);
    } else {
      if (writes) store_words(output_, packs);
    }
    output_ += any ? step_bytes_(place_, args_.output.step_stride) : 0;
    if constexpr (kSavesGates) {
      LLTM_JIT_UNROLLED(g, kGates) {
        const auto pack = transpose<scalar_t>(saved_[g]);
        if (writes) store_words(saved_gates_ + place_.gate_bytes(g), pack);
      }
      saved_gates_ += any ? gates_bytes_(place_, args_.saved_gates.step_stride) : 0;
    }
  }

  // Saves the cell states before a step.
  LLTM_JIT_DEVICE void save_cells(const State& state) {
    if constexpr (kSaves && kStates > 1) {
      if (place_.lane.finishes()) {
        LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
          LLTM_JIT_UNROLLED(e, kElements) {
            if (!elements_.exists(e)) continue;
            reinterpret_cast<float*>(saved_cells_)[elements_.beside(k - 1, e)] = state[k][e];
          }
        }
      }
      saved_cells_ += cells_bytes_(place_, args_.saved_cells.step_stride);
    }
  }
  // The state after the last step.
  LLTM_JIT_DEVICE void write_state(const State& state) const {
    Elements<Shape> elements = elements_;
    if (Shape::kSeveral && args_.states_apart) elements = elements_.apart(place_);
    LLTM_JIT_UNROLLED(e, kElements) {
      elements.template write<scalar_t>(args_.new_h, 0, e, state[0][e]);
    }
    if constexpr (kStates > 1) {
      if (args_.narrow_cells) {
        write_cells(elements, static_cast<scalar_t*>(args_.new_cells), state);
      } else {
        write_cells(elements, static_cast<float*>(args_.new_cells), state);
      }
    }
  }

 private:
  template <typename T>
  LLTM_JIT_DEVICE void write_cells(const Elements<Shape>& elements, T* cells,
                                   const State& state) const {
    LLTM_JIT_UNROLLED_FROM(k, 1, kStates) {
      LLTM_JIT_UNROLLED(e, kElements) elements.template write<T>(cells, k - 1, e, state[k][e]);
    }
  }

  LanePlace<Shape> place_;
  Elements<Shape> elements_;
  LanePack<Shape> pack_;
  const SequenceForwardArgs& args_;
  // The lane's packs of the step that is written next, and its first element of the cells.
  char *output_, *saved_gates_, *saved_cells_;
  StepBytes<Shape> step_bytes_, gates_bytes_;
  StepBytes<Shape, 4> cells_bytes_;
  Words<kWords> packs_, saved_[kGates];
  bool held_ = false;
};

}  // namespace lltm_jit
