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

VariantRequest request_of(const char* kernel, const char* function, const SequenceSizes& sizes,
                          const CudaCell& cell) {
  return {cell.kernel + kernel,
          function,
          {{"CELL_HEADER", '"' + cell.header + '"'},
           {"CELL", cell.type},
           {"ELEMENT", element(sizes.type)}},
          cell.type + ", " + element(sizes.type)};
}

}  // namespace

VariantRequest sequence_request(const SequenceSizes& sizes, const SequenceUse& use,
                                const SequencePlan& plan, const CudaCell& cell) {
  const bool forward = use.pass == SequencePass::Forward;
  const char* saved = use.saves == kSavesAll     ? ", forward in training"
                      : use.saves == kSavesCells ? ", forward with all states"
                                                 : ", forward";
  const auto add_constants = [&](VariantRequest& request, const auto& shape) {
    request.constants.emplace_back("SHAPE", list(members_of(shape)));
    request.constants.emplace_back("CONTROLS", number(use.controls));
    request.constants.emplace_back("PADDED", number(sizes.padded));
    request.constants.emplace_back("SEVERAL", number(sizes.several()));
    if (forward) request.constants.emplace_back("SAVES", number(use.saves));
  };
  if (plan.many_rows.blocks > 0) {
    auto request = request_of(forward ? "_many_rows_forward" : "_many_rows_backward",
                              forward ? "many_rows_forward" : "many_rows_backward", sizes, cell);
    add_constants(request, plan.many_rows);
    request.label += (plan.many_rows.scaled ? " as TF32, hidden size " : ", hidden size ") +
                     number(sizes.hidden_size) + ", many rows" + (!forward ? ", backward" : saved);
    return request;
  }
  if (!plan.persistent && sizes.normalises) {
    const int units = sizes.hidden_size % kStepUnits == 0 ? kStepUnits : 1;
    return normalised_request(sizes, forward, units, cell);
  }
  if (!plan.persistent) {
    auto request = request_of(
        "_steps", forward ? "sequence_forward_step" : "sequence_backward_step", sizes, cell);
    request.label += ", step by step";
    return request;
  }
  auto request = request_of(forward ? "_forward" : "_backward",
                            forward ? "sequence_forward" : "sequence_backward", sizes, cell);
  const SequenceShape& shape = plan.shape;
  add_constants(request, shape);
  if (!forward) request.constants.emplace_back("ALL_STATES", number(use.all_states));
  request.label += (shape.tf32 ? " as TF32, hidden size " : ", hidden size ") +
                   number(sizes.hidden_size) + ", " + number(shape.rows) +
                   (shape.grid ? " rows a grid" : " rows a cluster") +
                   (!forward ? ", backward" : saved) + (use.all_states ? ", of all states" : "");
  return request;
}

VariantRequest normalised_request(const SequenceSizes& sizes, bool forward, int units,
                                  const CudaCell& cell) {
  auto request =
      request_of("_normalised_steps",
                 forward ? "normalised_forward_step" : "normalised_backward_step", sizes, cell);
  request.constants.emplace_back("UNITS", number(units));
  request.constants.emplace_back("THREADS", number(normalised_threads(sizes.hidden_size, units)));
  request.label += ", hidden size " + number(sizes.hidden_size) + ", step by step";
  return request;
}

VariantRequest walk_request(const SequenceSizes& sizes, bool forward, int units, bool controls,
                            const CudaCell& cell) {
  auto request = request_of("_walk", forward ? "walk_forward" : "walk_backward", sizes, cell);
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
