#if defined(__OPTIMIZE__) && !defined(__clang__)
#pragma GCC optimize("O1")  // of code beside a build of seconds
#endif

#include "rnn/sequence/plan/variants.h"

#include "rnn/sequence/steps/kernels.h"

namespace lltm_jit {
namespace {

const char* element(ElementType type) {
  return type == ElementType::Half       ? "Half"
         : type == ElementType::BFloat16 ? "BFloat16"
         : type == ElementType::Float    ? "float"
                                         : "double";
}

std::string number(int64_t value) { return std::to_string(value); }

template <typename... Numbers>
std::string list(const std::tuple<Numbers...>& numbers) {
  std::string text;
  std::apply([&](auto... each) { ((text += (text.empty() ? "" : ", ") + number(each)), ...); },
             numbers);
  return text;
}

VariantRequest request_of(const std::string& kernel, const std::string& function,
                          const SequenceSizes& sizes, const CudaCell& cell) {
  return {cell.kernel + kernel,
          function,
          {{"CELL_HEADER", '"' + cell.header + '"'},
           {"CELL", cell.type},
           {"ELEMENT", element(sizes.type)}},
          cell.type + ", " + element(sizes.type)};
}

std::string direction(bool forward) { return forward ? "forward" : "backward"; }

}  // namespace

VariantRequest sequence_request(const SequenceSizes& sizes, const SequenceUse& use,
                                const SequencePlan& plan, const CudaCell& cell) {
  const bool forward = use.pass == SequencePass::Forward;
  const std::string way = direction(forward);
  const char* pass = !forward                   ? ", backward"
                     : use.saves == kSavesAll   ? ", forward in training"
                     : use.saves == kSavesCells ? ", forward with all states"
                                                : ", forward";
  const auto add_constants = [&](VariantRequest& request, const auto& shape, bool tf32) {
    request.constants.emplace_back("SHAPE", list(members_of(shape)));
    request.constants.emplace_back("CONTROLS", number(use.controls));
    request.constants.emplace_back("PADDED", number(sizes.padded));
    request.constants.emplace_back("SEVERAL", number(sizes.several()));
    if (forward) request.constants.emplace_back("SAVES", number(use.saves));
    request.label +=
        (tf32 ? " as TF32, hidden size " : ", hidden size ") + number(sizes.hidden_size);
  };
  if (plan.many_rows.blocks > 0) {
    auto request = request_of("_many_rows_" + way, "many_rows_" + way, sizes, cell);
    add_constants(request, plan.many_rows, plan.many_rows.scaled);
    request.label += std::string(", many rows") + pass;
    return request;
  }
  if (plan.persistent) {
    auto request = request_of("_" + way, "sequence_" + way, sizes, cell);
    add_constants(request, plan.shape, plan.shape.tf32);
    if (!forward) request.constants.emplace_back("ALL_STATES", number(use.all_states));
    request.label += ", " + number(plan.shape.rows) +
                     (plan.shape.grid ? " rows a grid" : " rows a cluster") + pass +
                     (use.all_states ? ", of all states" : "");
    return request;
  }
  if (sizes.normalises) {
    const int units = sizes.hidden_size % kStepUnits == 0 ? kStepUnits : 1;
    return normalised_request(sizes, forward, units, cell);
  }
  auto request = request_of("_steps", "sequence_" + way + "_step", sizes, cell);
  request.label += ", step by step";
  return request;
}

VariantRequest normalised_request(const SequenceSizes& sizes, bool forward, int units,
                                  const CudaCell& cell) {
  auto request =
      request_of("_normalised_steps", "normalised_" + direction(forward) + "_step", sizes, cell);
  request.constants.emplace_back("UNITS", number(units));
  request.constants.emplace_back("THREADS", number(normalised_threads(sizes.hidden_size, units)));
  request.label += ", hidden size " + number(sizes.hidden_size) + ", step by step";
  return request;
}

VariantRequest walk_request(const SequenceSizes& sizes, bool forward, int units, bool controls,
                            const CudaCell& cell) {
  auto request = request_of("_walk", "walk_" + direction(forward), sizes, cell);
  request.constants.emplace_back("UNITS", number(units));
  request.constants.emplace_back("CONTROLS", number(controls));
  request.label += units > 1 ? ", without a product" : ", without a product, unaligned";
  return request;
}

bool run_at_once(const SequenceSizes& sizes, bool training, const SequenceGpu& gpu) {
  return !sizes.normalises && sequence_plan(sizes, SequencePass::Forward, gpu).persistent &&
         (!training || sequence_plan(sizes, SequencePass::Backward, gpu).persistent);
}

std::vector<VariantRequest> sequence_requests(SequenceSizes sizes, bool training, bool controls,
                                              const SequenceGpu& gpu, const CudaCell& cell) {
  std::vector<VariantRequest> requests;
  if (!run_at_once(sizes, training, gpu)) sizes.directions = 1;  // as layers have it
  const bool padded_in_turn = sizes.padded && (controls || sizes.heads > 1 || sizes.parameters > 0);
  for (const auto pass : {SequencePass::Forward, SequencePass::Backward}) {
    if (pass == SequencePass::Backward && !training) continue;
    SequenceSizes together = sizes;
    SequencePlan plan = sequence_plan(together, pass, gpu);
    if (sizes.recurrences() > 1 && (!plan.persistent || padded_in_turn)) {  // one after the other
      together.directions = together.heads = 1;
      plan = sequence_plan(together, pass, gpu);
    }
    const SequenceSaves saves = training ? kSavesAll : kSavesNothing;
    const SequenceControls given = controls ? kZeroResets : kNoControls;
    requests.push_back(sequence_request(together, {pass, saves, given}, plan, cell));
  }
  return requests;
}

}  // namespace lltm_jit
