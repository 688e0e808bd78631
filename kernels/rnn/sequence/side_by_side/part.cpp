#include "rnn/sequence/side_by_side/part.h"

#include <algorithm>
#include <iterator>

#include "rnn/sequence/plan/cycles.h"

namespace lltm_jit {
namespace {

// The host's cycles for a part; and the most of the estimated time of one layer after the other that pays.
constexpr double kHost = 45000, kWorth = 0.75;
// The most memory for the gates of all layers at once, in bytes.
constexpr int64_t kMostBytes = int64_t(1) << 28;
constexpr int64_t kParts[] = {16, 32, 64, 128};  // steps

}  // namespace

int64_t side_by_side_part(const SequenceSizes& all, bool training, const SequenceGpu& gpu) {
  const int layers = all.layers;
  SequenceSizes sizes = all;
  sizes.directions = 1, sizes.layers = 0;
  const int64_t gates = sizes.batch_size * sizes.gates * sizes.hidden_size;
  const int bytes = sizes.type == ElementType::Float ? 4 : 2;
  if (sizes.steps * gates * layers * bytes > kMostBytes) return 0;
  // A layer's launches for its input's product and its steps, or those of all layers for a part.
  const double begin = 1.5 * kLaunches;
  const double product =
      static_cast<double>(gates * sizes.hidden_size) / (gpu.sms * library_rate(sizes));
  double in_turn = 0, side_by_side[std::size(kParts)] = {};
  for (const auto pass : {SequencePass::Forward, SequencePass::Backward}) {
    if (pass == SequencePass::Backward && !training) continue;
    const SequencePlan one = sequence_plan(sizes, pass, gpu), plan = sequence_plan(all, pass, gpu);
    if (!plan.persistent) return 0;
    in_turn += layers * (begin + static_cast<double>(sizes.steps) * (one.cycles + product));
    const double step = plan.cycles + (layers - 1) * product;
    for (size_t i = 0; i < std::size(kParts); ++i) {
      const int64_t parts = (sizes.steps + kParts[i] - 1) / kParts[i] + layers - 1;
      const double part = begin + static_cast<double>(kParts[i]) * step;
      side_by_side[i] += static_cast<double>(parts) * std::max(part, kHost);
    }
  }
  const auto* best = std::min_element(std::begin(side_by_side), std::end(side_by_side));
  return *best < kWorth * in_turn ? kParts[best - side_by_side] : 0;
}

}  // namespace lltm_jit
