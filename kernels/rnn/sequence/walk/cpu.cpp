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

template <typename scalar_t>
void walk_forward(const SequenceForwardArgs& args, void (*step)(const CellForwardRow&)) {
  using acc_t = opmath_t<scalar_t>;
  const int64_t hidden = args.hidden_size, of_state = args.batch_size * hidden;
  for_each_part(args, [&](int64_t row, int64_t unit, int64_t units) {
    const int64_t place = row * hidden + unit;
    const auto states = aligned_array<acc_t>(args.states * units);
    const auto* old_h = static_cast<const scalar_t*>(args.old_h);
    const auto* old_cells = static_cast<const acc_t*>(args.old_cells);
    const auto set = [&](const scalar_t* h, const acc_t* cells, int64_t first) {
      copy_row(h ? h + first : nullptr, units, states.get());
      for (int s = 1; s < args.states; ++s) {
        copy_row(cells ? cells + (s - 1) * of_state + first : nullptr, units,
                 states.get() + s * units);
      }
    };
    set(old_h, old_cells, place);
    CellForwardRow cell{};
    cell.units = units, cell.gate_stride = hidden, cell.parameter_stride = hidden;
    if (args.parameters != nullptr) {
      cell.parameters = static_cast<const scalar_t*>(args.parameters) + unit;
    }
    cell.acc_states = states.get(), cell.state_stride = units, cell.cell_stride = of_state;
    for (int64_t t = 0; t < args.steps; ++t) {
      scalar_t* output = row_of<scalar_t>(args.output, t, row) + unit;
      const uint8_t control = control_of(args, t, row);
      if (control == kHolds) {
        std::fill_n(output, units, scalar_t(0));
        continue;
      }
      if (control == kResets) {
        set(row_of<scalar_t>(args.reset_h, t, row), row_of<acc_t>(args.reset_cells, t, row), unit);
      }
      cell.gates = row_of<scalar_t>(args.gates, t, row) + unit;
      cell.output = output;
      if (args.saved_cells.data != nullptr) {
        cell.acc_saved_cells = row_of<acc_t>(args.saved_cells, t, row) + unit;
      }
      step(cell);
    }
    copy_row(states.get(), units, static_cast<scalar_t*>(args.new_h) + place);
    for (int s = 1; s < args.states; ++s) {
      copy_row(states.get() + s * units, units,
               static_cast<acc_t*>(args.new_cells) + (s - 1) * of_state + place);
    }
  });
}

template <typename scalar_t>
void walk_backward(const SequenceBackwardArgs& args, void (*step)(const CellBackwardRow&)) {
  using acc_t = opmath_t<scalar_t>;
  const int64_t hidden = args.hidden_size, of_state = args.batch_size * hidden;
  const int states = args.states;
  for_each_part(args, [&](int64_t row, int64_t unit, int64_t units) {
    const int64_t place = row * hidden + unit;
    const auto grads = aligned_array<acc_t>(states * units), zeros = aligned_zeros<acc_t>(units);
    const auto* new_h = static_cast<const scalar_t*>(args.grad_new_h);
    const auto* new_cells = static_cast<const acc_t*>(args.grad_new_cells);
    copy_row(new_h ? new_h + place : nullptr, units, grads.get());
    for (int s = 1; s < states; ++s) {
      copy_row(new_cells ? new_cells + (s - 1) * of_state + place : nullptr, units,
               grads.get() + s * units);
    }
    CellBackwardRow cell{};
    cell.units = units, cell.gate_stride = hidden, cell.parameter_stride = hidden;
    cell.acc_grad_h = zeros.get();  // no product adds to it
    cell.acc_grad_states = grads.get(), cell.state_stride = units, cell.cell_stride = of_state;
    if (args.SequenceSizes::parameters > 0) {
      auto* sums = static_cast<acc_t*>(args.grad_parameters) + place;
      for (int p = 0; p < args.SequenceSizes::parameters; ++p) {
        std::fill_n(sums + p * of_state, units, acc_t(0));
      }
      cell.parameters = static_cast<const scalar_t*>(args.parameters) + unit;
      cell.acc_grad_parameters = sums;
    }
    const auto* old_h = static_cast<const scalar_t*>(args.old_h);
    for (int64_t t = args.steps - 1; t >= 0; --t) {
      scalar_t* grad_gates = row_of<scalar_t>(args.grad_gates, t, row) + unit;
      const uint8_t control = control_of(args, t, row);
      if (control == kHolds) {
        for (int g = 0; g < args.SequenceSizes::gates; ++g) {
          std::fill_n(grad_gates + g * hidden, units, scalar_t(0));
        }
        continue;
      }
      const bool first = t == 0 || control_of(args, t - 1, row) == kHolds;
      const scalar_t* before = first ? old_h == nullptr ? nullptr : old_h + place
                                     : row_of<scalar_t>(args.output, t - 1, row) + unit;
      const auto* reset_h = row_of<scalar_t>(args.reset_h, t, row);
      cell.old_h = control != kResets ? before : reset_h == nullptr ? nullptr : reset_h + unit;
      if (args.grad_output.data != nullptr) {
        cell.grad_output = row_of<scalar_t>(args.grad_output, t, row) + unit;
      }
      cell.saved_gates = row_of<scalar_t>(args.saved_gates, t, row) + unit;
      if (states > 1) cell.acc_saved_cells = row_of<acc_t>(args.saved_cells, t, row) + unit;
      cell.grad_gates = grad_gates;
      step(cell);
      if (args.grad_saved_cells.data != nullptr) {  // of the cell states before the step
        const acc_t* given = row_of<acc_t>(args.grad_saved_cells, t, row) + unit;
        for (int s = 1; s < states; ++s, given += of_state) {
          add_row(given, units, grads.get() + s * units);
        }
      }
      if (control != kResets) continue;
      auto* of_h = row_of<acc_t>(args.grad_reset_h, t, row);
      auto* of_cells = row_of<acc_t>(args.grad_reset_cells, t, row);
      for (int s = 0; s < states; ++s) {
        acc_t* to = s == 0 ? of_h : of_cells == nullptr ? nullptr : of_cells + (s - 1) * of_state;
        acc_t* from = grads.get() + s * units;
        if (to != nullptr) add_row(from, units, to + unit);
        std::fill_n(from, units, acc_t(0));
      }
    }
    if (args.grad_old_h != nullptr) {
      copy_row(grads.get(), units, static_cast<scalar_t*>(args.grad_old_h) + place);
    }
    for (int s = 1; s < states && args.grad_old_cells != nullptr; ++s) {
      copy_row(grads.get() + s * units, units,
               static_cast<acc_t*>(args.grad_old_cells) + (s - 1) * of_state + place);
    }
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
