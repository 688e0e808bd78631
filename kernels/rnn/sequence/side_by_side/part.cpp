#include "rnn/sequence/side_by_side/part.h"

#include <algorithm>
#include <iterator>

namespace lltm_jit {
namespace {

// Measured cycles, besides those of Note [What a step costs]. kInTurn: a layer's launch and its
// input's product. kOfPart: the same for one part of all layers; kNumber is added for each number
// of a state. kHost: the host's time for a part. kGradients: the gradients of a layer's weights.
constexpr double kInTurn = 14000, kOfPart = 13000, kNumber = 0.45, kHost = 45000;
constexpr double kGradients = 90000;
// Multiply-adds per cycle: in products over all steps, and in products over a part.
constexpr double kRate = 100000, kRounded = 50000, kFloats = 40000, kFloatsOfPart = 12000;
// The most memory for the gates of all layers at once, in bytes.
constexpr int64_t kMostBytes = int64_t(1) << 28;
constexpr int64_t kParts[] = {16, 32, 64, 128};  // steps
// The gain that makes it worthwhile. In float, clusters of many recurrences are slower than
// estimated. With two layers, the host takes longer than for one layer after the other.
constexpr double kWorth = 0.85, kWorthOfFewOrFloats = 0.7;

}  // namespace

int64_t side_by_side_part(const SequenceSizes& sizes, int layers, bool training,
                          const SequenceGpu& gpu) {
  const bool half = sizes.type != ElementType::Float;
  const double width = static_cast<double>(sizes.batch_size * sizes.hidden_size);
  const int64_t gates = sizes.batch_size * sizes.gates * sizes.hidden_size;
  if (sizes.steps * gates * layers * (half ? 2 : 4) > kMostBytes) return 0;
  const double products = static_cast<double>(gates) * sizes.hidden_size;
  const double rate = half ? kRate : sizes.tf32 ? kRounded : kFloats;
  const double rate_of_part = half || sizes.tf32 ? rate : kFloatsOfPart;
  SequenceSizes all = sizes;
  all.directions = all.layers = layers;
  double in_turn = 0, side_by_side[std::size(kParts)] = {};
  for (const auto pass : {SequencePass::Forward, SequencePass::Backward}) {
    const bool backward = pass == SequencePass::Backward;
    if (backward && !training) continue;
    const SequencePlan one = sequence_plan(sizes, pass, gpu), plan = sequence_plan(all, pass, gpu);
    if (!plan.one_launch) return 0;
    const double gradients = backward ? layers * kGradients : 0;
    const auto steps = static_cast<double>(sizes.steps);
    in_turn += gradients + layers * (kInTurn + steps * (one.cycles + products / rate));
    const double step = plan.cycles + (layers - 1) * products / rate_of_part;
    for (size_t i = 0; i < std::size(kParts); ++i) {
      const int64_t parts = (sizes.steps + kParts[i] - 1) / kParts[i];
      const double part =
          kOfPart + kNumber * layers * width + static_cast<double>(kParts[i]) * step;
      side_by_side[i] +=
          gradients + static_cast<double>(parts + layers - 1) * std::max(part, kHost);
    }
  }
  const auto* best = std::min_element(std::begin(side_by_side), std::end(side_by_side));
  const double worth = half && layers > 2 ? kWorth : kWorthOfFewOrFloats;
  return *best < worth * in_turn ? kParts[best - side_by_side] : 0;
}

}  // namespace lltm_jit
