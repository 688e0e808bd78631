#include "rnn/sequence/plan/plan.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "rnn/sequence/many_rows/plan.h"
#include "rnn/sequence/plan/cycles.h"

namespace lltm_jit {
namespace {

// Whether few steps finish before a persistent kernel has loaded its weights.
bool steps_are_quicker(const SequenceSizes& sizes, SequencePass pass, const SequencePlan& plan,
                       const SequenceGpu& gpu) {
  if (gpu.kind != PlanKind::Any) return false;
  const auto steps = static_cast<double>(sizes.steps);
  // The first step, which often begins with zeros, needs no product.
  const double one_by_one = kLaunches + kFew * (steps - 1) * cycles_of_steps(sizes, gpu);
  const ShapeCost cost{sizes, pass, plan.shape, gpu};
  return sizes.recurrences() * one_by_one < cost.cycles_before_steps() + steps * plan.cycles;
}

constexpr int kFewestSteps = 4;  // of many rows
// Several recurrences then run one after the other.
void consider_many_rows(const SequenceSizes& sizes, SequencePass pass, const SequenceGpu& gpu,
                        SequencePlan* best) {
  if (!gpu.many_rows || !gpu.grids || gpu.architecture != 90 || gpu.kind == PlanKind::Persistent ||
      sizes.normalises) {
    return;
  }
  const bool backward = pass == SequencePass::Backward;
  const bool asked = gpu.kind == PlanKind::ManyRows;
  if (!asked && !many_rows_are_quicker(sizes, backward)) return;
  const int clusters = gpu.clusters[backward ? 2 : 0];  // of eight blocks, or two
  const ManyRowsShape shape = many_rows_shape(sizes, backward, gpu.shared_bytes, clusters);
  if (shape.blocks == 0) return;
  *best = {false, {}, best->cycles};
  // Loading the weights into shared memory takes as long as some steps by the library.
  if (sizes.recurrences() > 1 || (sizes.steps < kFewestSteps && !asked)) return;
  best->many_rows = shape;
  best->workspace = shape.workspace_bytes(sizes.batch_size, sizes.hidden_size, sizes.gates);
}

bool may_be_persistent(const SequenceSizes& sizes, const SequenceGpu& gpu) {
  // Tensor cores before 8.0 multiply halves alone, which parts of exact floats are.
  const bool multiplies =
      gpu.architecture >= 80 || (gpu.architecture >= 75 && sizes.type != ElementType::BFloat16);
  constexpr int64_t kMostHidden = 4096, kMostRows = int64_t(1) << 24;
  const bool whole = sizes.padded || sizes.hidden_size % kWholeAccess == 0;
  return sizes.type != ElementType::Double && multiplies &&
         (whole || (sizes.steps > 1 && !sizes.normalises)) && sizes.hidden_size <= kMostHidden &&
         sizes.batch_size * sizes.recurrences() <= kMostRows && sizes.steps < int64_t(1) << 31 &&
         gpu.kind != PlanKind::Steps;
}

// Looks for the shape of a persistent kernel with the fewest cycles.
class Search {
 public:
  Search(const SequenceSizes& sizes, SequencePass pass, const SequenceGpu& gpu)
      // Step by step, the recurrences run one after the other.
      : best{false, {}, sizes.recurrences() * cycles_of_steps(sizes, gpu)},
        sizes_(sizes),
        pass_(pass),
        gpu_(gpu) {}

  void consider_clusters() {
    for (int blocks = 1; blocks <= kMostBlocks; blocks *= 2) {
      if (blocks > 1 && (gpu_.architecture < 90 || blocks > groups_)) continue;
      for (const int rows : {2, 4, 8, 16}) {
        for (int splits = 1; splits <= 8; ++splits) {
          consider({blocks, (groups_ + blocks - 1) / blocks, splits, rows, 1, 0, 0, bytes_, false,
                    tf32_});
        }
        if (rows >= 4 && rows >= sizes_.batch_size) break;
      }
    }
  }

  // A block of a grid has one group, so that no two of its warps read the same numbers. Weights that clusters can hold
  // stay there, except those of floats with more than one group per block. The derivatives of floats leave no registers
  // for phases of 32 rows, and take too long for phases of 8.
  void consider_grids() {
    if (!gpu_.grids || gpu_.architecture < 90 || groups_ <= kMostBlocks * (floats_ ? 1 : 2) ||
        sizes_.normalises) {
      return;
    }
    const bool derives_floats = floats_ && pass_ == SequencePass::Backward;
    for (const int phases : {1, 2}) {
      const int fewest_rows = phases == 1 ? 4 : derives_floats ? 16 : 8;
      for (const int rows : {4, 8, 16, 24, 32}) {
        if (rows < fewest_rows || (derives_floats && rows > 24)) continue;
        for (int splits = 1; splits <= kMostWarps; ++splits) {
          consider({groups_, 1, splits, phases * rows, phases, 0, 0, bytes_, true, tf32_});
        }
        if (phases * rows >= sizes_.batch_size) break;
      }
    }
  }

  SequencePlan best;

 private:
  static constexpr int kMostBlocks = 16, kMostWarps = 16, kMostBarriers = 15;

  void consider(SequenceShape shape) {
    const ShapeCost cost{sizes_, pass_, shape, gpu_};
    if (cost.sets_at_once() == 0 || !is_possible(shape) || !places_weights(cost, shape)) return;
    const double cycles = cost.cycles();
    const bool compares = best.persistent || gpu_.kind != PlanKind::Persistent;
    if (!compares || cycles < best.cycles) best = {true, shape, cycles};
  }

  bool is_possible(const SequenceShape& shape) const {
    if (shape.rows == 2 && (!shape.small_floats() || shape.splits > 1)) return false;
    if (sizes_.normalises && shape.blocks == 1) return false;  // Note [Sums of a row]: in clusters
    const bool every_warp_multiplies = shape.tiles_of_warp() * (shape.splits - 1) < shape.tiles();
    return shape.groups * shape.sum_copies() <= kMostBarriers && shape.warps() <= kMostWarps &&
           shape.splits >= shape.finishers() && shape.splits <= shape.tiles() &&
           (!shape.grid || every_warp_multiplies);
  }

  // Divides the weights among registers, shared memory and, if they fit in neither, memory. False if that is impossible.
  bool places_weights(const ShapeCost& cost, SequenceShape& shape) const {
    for (;; ++shape.streamed_tiles) {
      const int in_registers = cost.tiles_in_registers();
      const int others = cost.warp_products().tiles - in_registers;
      if (in_registers < 1) return false;
      shape.shared_tiles = std::max(0, others - shape.streamed_tiles);
      if (cost.shared_bytes() <= gpu_.shared_bytes) return true;
      if (!shape.grid || shape.phases > 1 || shape.streamed_tiles >= others) return false;
    }
  }

  const SequenceSizes& sizes_;
  SequencePass pass_;
  const SequenceGpu& gpu_;
  bool floats_ = sizes_.type == ElementType::Float, tf32_ = sizes_.tf32 && gpu_.architecture >= 80;
  int bytes_ = floats_ ? 4 : 2;
  int groups_ = static_cast<int>(sizes_.hidden_size + 15) / SequenceShape::kUnits;
};

SequencePlan searched_plan(const SequenceSizes& sizes, SequencePass pass, const SequenceGpu& gpu) {
  Search search(sizes, pass, gpu);
  const SequencePlan steps = search.best;
  if (!may_be_persistent(sizes, gpu)) return steps;
  search.consider_clusters();
  search.consider_grids();
  SequencePlan best = search.best;
  if (best.persistent && steps_are_quicker(sizes, pass, best, gpu)) best = steps;
  const ShapeCost cost{sizes, pass, best.shape, gpu};
  if (best.persistent) best.shared_bytes = cost.bytes_apart();
  if (best.shape.grid) {
    const int arrays = pass == SequencePass::Forward ? 1 : sizes.gates;
    const int64_t sets = best.shape.sets(sizes.batch_size, sizes.recurrences());
    const int64_t at_once = std::min<int64_t>(sets, cost.sets_at_once());
    best.workspace = best.shape.operands_bytes(sizes.steps, sets, arrays) +
                     at_once * best.shape.blocks * best.shape.streamed_bytes(sizes.gates);
  }
  consider_many_rows(sizes, pass, gpu, &best);
  return best;
}

}  // namespace

SequencePlan sequence_plan(const SequenceSizes& sizes, SequencePass pass, const SequenceGpu& gpu) {
  constexpr size_t kMost = 1024;
  const auto& [steps, rows, hidden, gates, states, parameters, adds, type, state_type, tf32,
               directions, heads, padded, normalises, layers] = sizes;
  const auto& [architecture, bytes, sms, grids, clusters, kind, many_rows] = gpu;
  const std::tuple key(steps, rows, hidden, gates, states, parameters, adds, type, state_type, tf32,
                       directions, heads, padded, normalises, layers, pass, architecture, bytes,
                       sms, grids, clusters, kind, many_rows);
  // A search takes longer than a launch.
  static thread_local std::map<std::decay_t<decltype(key)>, SequencePlan> known;
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() == kMost) known.clear();
  return known.emplace(key, searched_plan(sizes, pass, gpu)).first->second;
}

SequenceGpu after_refusal(SequenceGpu gpu, const SequencePlan& plan) {
  const SequenceShape& shape = plan.shape;
  if (!plan.persistent) {
    gpu.many_rows = false;
  } else if (shape.grid) {
    gpu.grids = false;
  } else if (shape.blocks == 1) {
    gpu.architecture = 0;  // if not even one block runs, no plan is persistent
  } else {
    for (int i = 0; i < kClusterSizes; ++i) {
      if (2 << i >= shape.blocks) gpu.clusters[i] = 0;
    }
  }
  return gpu;
}

}  // namespace lltm_jit
