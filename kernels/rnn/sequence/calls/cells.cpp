// The cells of this family, as sequences take them. cpu/cells.cpp has their loops on the CPU.
#include "rnn/cells/cells.h"

#include "rnn/cells/layer_norm.h"
#include "rnn/sequence/operators.h"
#include "rnn/sequence/plan/plan.h"
#include "rnn/sequence/side_by_side/part.h"
#include "rnn/sequence/steps/kernels.h"
#include "rnn/sequence/walk/kernels.h"

namespace lltm_jit {

void add_own_cells() {
#define ADD(name, type) \
  add_cell(             \
      recurrent_cell<type>(#name, {"rnn.sequence", "rnn/cells/" #name ".h", "lltm_jit::" #type}));
  LLTM_JIT_CELLS(ADD)
#define ADD_NORMALISED(name, type)     \
  add_cell(recurrent_cell<type>(#name, \
                                {"rnn.sequence", "rnn/cells/layer_norm.h", "lltm_jit::" #type}));
  LLTM_JIT_NORMALISED_CELLS(ADD_NORMALISED)
}

std::vector<CellFacts> own_cells() {
  std::vector<CellFacts> facts;
  for (const char* name : {
#define NAME(name, type) #name,
           LLTM_JIT_CELLS(NAME) LLTM_JIT_NORMALISED_CELLS(NAME)}) {
    const RecurrentCell& cell = find_cell(name);
    facts.emplace_back(name, cell.gates, cell.states, cell.parameters, cell.adds_gates,
                       cell.product, cell.normalises_gates, cell.normalises());
  }
  return facts;
}

namespace {

SequenceSizes sizes_of(const RecurrentCell& cell, std::string_view dtype, int64_t steps,
                       int64_t batch_size, int64_t hidden_size) {
  const auto type = dtype == "float16"    ? ElementType::Half
                    : dtype == "bfloat16" ? ElementType::BFloat16
                    : dtype == "float64"  ? ElementType::Double
                                          : ElementType::Float;
  return sizes_of(cell, type, /*tf32=*/dtype == "tf32", steps, batch_size, hidden_size);
}

SequenceGpu described(at::ArrayRef<int64_t> gpu) {
  const auto of_gpu = [&](size_t i) { return static_cast<int>(gpu.at(i)); };
  return {of_gpu(0),
          of_gpu(1),
          of_gpu(2),
          of_gpu(3) != 0,
          {of_gpu(4), of_gpu(5), of_gpu(6), of_gpu(7)},
          static_cast<PlanKind>(gpu.size() > 8 ? of_gpu(8) : 0)};
}

}  // namespace

int64_t layers_part(std::string_view cell, std::string_view dtype, int64_t steps,
                    int64_t batch_size, int64_t hidden_size, int64_t layers, bool training,
                    at::ArrayRef<int64_t> gpu) {
  SequenceSizes all = sizes_of(find_cell(cell), dtype, steps, batch_size, hidden_size);
  all.directions = all.layers = static_cast<int>(layers);
  return side_by_side_part(all, training, described(gpu));
}

std::vector<PlannedVariant> planned_variants(std::string_view cell, std::string_view dtype,
                                             int64_t steps, int64_t batch_size, int64_t hidden_size,
                                             int64_t directions, int64_t heads, bool padded,
                                             bool training, bool controls,
                                             at::ArrayRef<int64_t> gpu) {
  const RecurrentCell& known = find_cell(cell);
  SequenceSizes sizes = sizes_of(known, dtype, steps, batch_size, hidden_size);
  sizes.directions = static_cast<int>(directions);
  sizes.heads = static_cast<int>(heads);
  sizes.padded = padded && known.ordinary();
  std::vector<VariantRequest> requests;
  if (known.product) {
    requests = sequence_requests(sizes, training, controls, described(gpu), known.cuda);
  } else {
    const int units = hidden_size % kWalkUnits == 0 ? kWalkUnits : 1;
    requests.push_back(walk_request(sizes, /*forward=*/true, units, controls, known.cuda));
  }
  std::vector<PlannedVariant> found;
  for (auto& [kernel, function, constants, label, beside] : requests) {
    found.emplace_back(
        kernel, function,
        std::vector<std::tuple<std::string, std::string>>(constants.begin(), constants.end()),
        label);
  }
  return found;
}

}  // namespace lltm_jit
