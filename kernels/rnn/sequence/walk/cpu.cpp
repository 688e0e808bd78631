// Sequences of cells without a product on the CPU: a task has some units of a row, for all steps.
#include <algorithm>
#include <vector>

#include "core/launch/parallel.h"
#include "core/memory/aligned_array.h"
#include "rnn/sequence/cpu/threads.h"
#include "rnn/sequence/walk/run.h"

namespace lltm_jit {
namespace {

// Calls run(row, unit, units) for all units of each row.
void for_each_part(const SequenceSizes& sizes,
                   c10::function_ref<void(int64_t, int64_t, int64_t)> run) {
  constexpr int64_t kFewest = 64, kMost = 1024, kWorthWaking = 1 << 14;  // units; and with steps
  const int64_t all = sizes.batch_size * sizes.hidden_size;
  const int64_t equal = ceil_div(all, int64_t(at::get_num_threads()) * kFewest) * kFewest;
  const int64_t units = std::clamp(equal, kFewest, kMost);
  const int64_t parts = ceil_div(sizes.hidden_size, units);
  const int64_t grain = std::max<int64_t>(1, kWorthWaking / (sizes.steps * units));
  for_each_task(sizes.batch_size * parts, grain, [&](int64_t task) {
    const int64_t unit = task % parts * units;
    run(task / parts, unit, std::min(units, sizes.hidden_size - unit));
  });
}

// Some units of a row, for all steps.
template <typename scalar_t, typename Args>
struct Part {
  using acc_t = opmath_t<scalar_t>;

  const Args& args;
  int64_t row, unit, units;
  int64_t hidden = args.hidden_size, of_state = args.batch_size * hidden;
  int64_t place = row * hidden + unit;
  int count = args.states;
  AlignedArray<acc_t> states = aligned_array<acc_t>(count * units);  // or their gradients

  acc_t* state(int s) const { return states.get() + s * units; }

  // From h and cells at `first`; null pointers stand for zeros.
  void read_states(const void* h, const void* cells, int64_t first) const {
    const auto* of_h = static_cast<const scalar_t*>(h);
    const auto* of_cells = static_cast<const acc_t*>(cells);
    copy_row(of_h ? of_h + first : nullptr, units, state(0));
    for (int s = 1; s < count; ++s) {
      copy_row(of_cells ? of_cells + (s - 1) * of_state + first : nullptr, units, state(s));
    }
  }

  void write_states(void* h, void* cells) const {
    if (h != nullptr) copy_row(state(0), units, static_cast<scalar_t*>(h) + place);
    for (int s = 1; s < count && cells != nullptr; ++s) {
      copy_row(state(s), units, static_cast<acc_t*>(cells) + (s - 1) * of_state + place);
    }
  }

  template <typename Row>
  Row row_of_cell() const {
    Row cell{};
    cell.units = units, cell.gate_stride = hidden, cell.parameter_stride = hidden;
    cell.state_stride = units, cell.cell_stride = of_state;
    if (args.SequenceSizes::parameters > 0) {
      cell.parameters = static_cast<const scalar_t*>(args.parameters) + unit;
    }
    return cell;
  }
};

template <typename scalar_t>
using ForwardPart = Part<scalar_t, SequenceForwardArgs>;
template <typename scalar_t>
using BackwardPart = Part<scalar_t, SequenceBackwardArgs>;

// Prepares a step; false if the row holds.
template <typename scalar_t>
bool prepare(const ForwardPart<scalar_t>& part, int64_t t, CellForwardRow& cell) {
  using acc_t = opmath_t<scalar_t>;
  const SequenceForwardArgs& args = part.args;
  const int64_t row = part.row, unit = part.unit;
  scalar_t* output = row_of<scalar_t>(args.output, t, row) + unit;
  const uint8_t control = control_of(args, t, row);
  if (control == kHolds) {
    std::fill_n(output, part.units, scalar_t(0));
    return false;
  }
  if (control == kResets) {
    part.read_states(row_of<scalar_t>(args.reset_h, t, row),
                     row_of<acc_t>(args.reset_cells, t, row), unit);
  }
  cell.gates = row_of<scalar_t>(args.gates, t, row) + unit;
  cell.output = output;
  if (args.saved_cells.data != nullptr) {
    cell.acc_saved_cells = row_of<acc_t>(args.saved_cells, t, row) + unit;
  }
  return true;
}

template <typename scalar_t>
void walk_forward(const SequenceForwardArgs& args, void (*step)(const CellForwardRow&)) {
  for_each_part(args, [&](int64_t row, int64_t unit, int64_t units) {
    const ForwardPart<scalar_t> part{args, row, unit, units};
    part.read_states(args.old_h, args.old_cells, part.place);
    auto cell = part.template row_of_cell<CellForwardRow>();
    cell.acc_states = part.state(0);
    for (int64_t t = 0; t < args.steps; ++t) {
      if (prepare(part, t, cell)) step(cell);
    }
    part.write_states(args.new_h, args.new_cells);
  });
}

template <typename scalar_t>
bool prepare(const BackwardPart<scalar_t>& part, int64_t t, CellBackwardRow& cell) {
  using acc_t = opmath_t<scalar_t>;
  const SequenceBackwardArgs& args = part.args;
  const int64_t row = part.row, unit = part.unit;
  cell.grad_gates = row_of<scalar_t>(args.grad_gates, t, row) + unit;
  const uint8_t control = control_of(args, t, row);
  if (control == kHolds) {
    for (int g = 0; g < args.SequenceSizes::gates; ++g) {
      std::fill_n(static_cast<scalar_t*>(cell.grad_gates) + g * part.hidden, part.units,
                  scalar_t(0));
    }
    return false;
  }
  const bool first = t == 0 || control_of(args, t - 1, row) == kHolds;
  const auto* old_h = static_cast<const scalar_t*>(args.old_h);
  const scalar_t* before = first ? old_h == nullptr ? nullptr : old_h + part.place
                                 : row_of<scalar_t>(args.output, t - 1, row) + unit;
  const auto* reset_h = row_of<scalar_t>(args.reset_h, t, row);
  cell.old_h = control != kResets ? before : reset_h == nullptr ? nullptr : reset_h + unit;
  if (args.grad_output.data != nullptr) {
    cell.grad_output = row_of<scalar_t>(args.grad_output, t, row) + unit;
  }
  cell.saved_gates = row_of<scalar_t>(args.saved_gates, t, row) + unit;
  if (part.count > 1) cell.acc_saved_cells = row_of<acc_t>(args.saved_cells, t, row) + unit;
  return true;
}

// Adds the gradients of saved cell states, and gives those of a reset to the states that the call gave.
template <typename scalar_t>
void finish(const BackwardPart<scalar_t>& part, int64_t t) {
  using acc_t = opmath_t<scalar_t>;
  const SequenceBackwardArgs& args = part.args;
  const int64_t row = part.row, unit = part.unit;
  if (args.grad_saved_cells.data != nullptr) {  // of the cell states before the step
    const acc_t* given = row_of<acc_t>(args.grad_saved_cells, t, row) + unit;
    for (int s = 1; s < part.count; ++s, given += part.of_state) {
      add_row(given, part.units, part.state(s));
    }
  }
  if (control_of(args, t, row) != kResets) return;
  auto* of_h = row_of<acc_t>(args.grad_reset_h, t, row);
  auto* of_cells = row_of<acc_t>(args.grad_reset_cells, t, row);
  for (int s = 0; s < part.count; ++s) {
    acc_t* to = s == 0 ? of_h : of_cells == nullptr ? nullptr : of_cells + (s - 1) * part.of_state;
    if (to != nullptr) add_row(part.state(s), part.units, to + unit);
    std::fill_n(part.state(s), part.units, acc_t(0));
  }
}

template <typename scalar_t>
void walk_backward(const SequenceBackwardArgs& args, void (*step)(const CellBackwardRow&)) {
  using acc_t = opmath_t<scalar_t>;
  for_each_part(args, [&](int64_t row, int64_t unit, int64_t units) {
    const BackwardPart<scalar_t> part{args, row, unit, units};
    const auto zeros = aligned_zeros<acc_t>(units);
    part.read_states(args.grad_new_h, args.grad_new_cells, part.place);
    auto cell = part.template row_of_cell<CellBackwardRow>();
    cell.acc_grad_h = zeros.get();  // no product adds to it
    cell.acc_grad_states = part.state(0);
    if (args.SequenceSizes::parameters > 0) {
      auto* sums = static_cast<acc_t*>(args.grad_parameters) + part.place;
      for (int p = 0; p < args.SequenceSizes::parameters; ++p) {
        std::fill_n(sums + p * part.of_state, units, acc_t(0));
      }
      cell.acc_grad_parameters = sums;
    }
    for (int64_t t = args.steps - 1; t >= 0; --t) {
      if (!prepare(part, t, cell)) continue;
      step(cell);
      finish(part, t);
    }
    part.write_states(args.grad_old_h, args.grad_old_cells);
  });
}

}  // namespace

void walk_forward_cpu(const SequenceForwardArgs& args, const CpuCell& cell) {
  dispatch_floating(args.type, [&](auto number) {
    walk_forward<decltype(number)>(args, cell.forward[static_cast<int>(args.type)]);
  });
}

void walk_backward_cpu(const SequenceBackwardArgs& args, const CpuCell& cell) {
  dispatch_floating(args.type, [&](auto number) {
    walk_backward<decltype(number)>(args, cell.backward[static_cast<int>(args.type)]);
  });
}

}  // namespace lltm_jit
