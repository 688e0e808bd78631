// The cells of this family, as sequences take them. sequence_cells_cpu.cpp has their loops on the CPU.
#include "rnn/cells/gru.h"
#include "rnn/cells/lltm.h"
#include "rnn/cells/lstm.h"
#include "rnn/sequence/sequence_ops.h"

namespace lltm_jit {

void add_own_cells() {
  const char* kernel = "rnn.sequence";
  add_cell(recurrent_cell<LltmCell>("lltm", {kernel, "rnn/cells/lltm.h", "lltm_jit::LltmCell"}));
  add_cell(recurrent_cell<LstmCell>("lstm", {kernel, "rnn/cells/lstm.h", "lltm_jit::LstmCell"}));
  add_cell(recurrent_cell<GruCell>("gru", {kernel, "rnn/cells/gru.h", "lltm_jit::GruCell"}));
}

std::vector<PlannedVariant> planned_variants(std::string_view cell, std::string_view dtype,
                                             int64_t batch_size, int64_t hidden_size, bool training,
                                             bool controls, at::ArrayRef<int64_t> gpu) {
  const RecurrentCell& known = find_cell(cell);
  SequenceSizes sizes{};
  sizes.steps = 1;
  sizes.batch_size = batch_size;
  sizes.hidden_size = hidden_size;
  sizes.gates = known.gates;
  sizes.states = known.states;
  sizes.parameters = known.parameters;
  sizes.adds_gates = known.adds_gates;
  sizes.type = dtype == "float16"    ? ElementType::Half
               : dtype == "bfloat16" ? ElementType::BFloat16
               : dtype == "float32"  ? ElementType::Float
                                     : ElementType::Double;
  const auto of_gpu = [&](size_t i) { return static_cast<int>(gpu.at(i)); };
  const SequenceGpu described{of_gpu(0),
                              of_gpu(1),
                              of_gpu(2),
                              of_gpu(3) != 0,
                              {of_gpu(4), of_gpu(5), of_gpu(6), of_gpu(7)}};
  std::vector<PlannedVariant> found;
  for (auto& [kernel, function, constants, label, beside] :
       sequence_requests(sizes, training, controls, described, known.cuda)) {
    found.emplace_back(
        kernel, function,
        std::vector<std::tuple<std::string, std::string>>(constants.begin(), constants.end()),
        label);
  }
  return found;
}

}  // namespace lltm_jit
