#include "stylegan/filtered_lrelu/plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace lltm_jit {
namespace {

// Tiles of the direct kernel, the best first. With larger tiles, fewer samples of v are made twice.
constexpr FlrTile kTiles[] = {{32, 32}, {16, 32}, {16, 16}, {8, 16}, {8, 8}, {4, 4}};

int64_t bytes(const FilteredLreluArgs& args, FlrTile tile) {
  return flr_tile_layout(args, tile).total() * (args.type == ElementType::Double ? 8 : 4);
}

// Whether the blocks of a launch fit in a grid, which has at most 2^31 - 1.
bool fits_a_grid(const FilteredLreluArgs& args, FlrTile tile) {
  const int64_t of_plane =
      ceil_div(int64_t(args.out_h), tile.rows) * ceil_div(int64_t(args.out_w), tile.columns);
  return args.batch * args.channels * of_plane <= std::numeric_limits<int32_t>::max();
}

bool has_the_plane(const FilteredLreluArgs& args, FlrTile tile) {
  return tile.rows >= args.out_h && tile.columns >= args.out_w;
}

// The smallest tile that holds the whole plane, because a block computes all of its tile. Else the
// first tile of which two blocks share an SM, else the first that fits; no rows if none fits.
FlrTile tile_for(const FilteredLreluArgs& args, const FlrGpu& gpu) {
  // Much larger filters and factors would overflow the sizes of a tile.
  constexpr int kMostTaps = 4096, kMostFactor = 256;
  if (std::max(flr_taps(args.fu), flr_taps(args.fd)) > kMostTaps) return {0, 0};
  if (std::max(args.up, args.down) > kMostFactor) return {0, 0};
  for (int i = std::size(kTiles) - 1; i >= 0; --i) {
    const FlrTile tile = kTiles[i];
    if (!has_the_plane(args, tile)) continue;
    if (bytes(args, tile) <= gpu.shared_bytes && fits_a_grid(args, tile)) return tile;
  }
  for (const int64_t room : {gpu.shared_bytes / 2, gpu.shared_bytes}) {
    for (const FlrTile tile : kTiles) {
      if (bytes(args, tile) <= room && fits_a_grid(args, tile)) return tile;
    }
  }
  return {0, 0};
}

// How many times the direct kernel makes each sample of v, on average.
double repeated(const FilteredLreluArgs& args, FlrTile tile) {
  if (has_the_plane(args, tile)) return 1;
  const FlrTileLayout layout = flr_tile_layout(args, tile);
  return double(layout.v_h) * layout.v_w / (double(tile.rows) * tile.columns) / args.down /
         args.down;
}

// A variant is compiled on first use, which takes seconds: smaller calls, which take microseconds
// anyway, are not worth it.
constexpr int64_t kLeastSamples = int64_t(1) << 20;

bool takes_tensor_cores(const FilteredLreluArgs& args, const FlrGpu& gpu, FlrPlan* plan) {
  const int64_t samples = args.batch * args.channels * args.mid_h * args.mid_w;
  if (gpu.architecture < 80 || samples < kLeastSamples) return false;
  // Note [Slopes] in mma/walk/activation.cuh.
  if (args.mode != Signs::Read && !(std::abs(args.slope) <= 1)) return false;
  MmaPlan walks{};
  plan->variant = mma_shape(args, gpu.shared_bytes);
  if (!plan_mma(args, plan->variant, &walks)) return false;
  plan->kernel = FlrKernel::TensorCores;
  plan->parts = args.mode == Signs::Read ? walks.parts() : 0;
  return true;
}

}  // namespace

FlrPlan flr_plan(const FilteredLreluArgs& args, const FlrGpu& gpu) {
  FlrPlan plan{};
  if (takes_tensor_cores(args, gpu, &plan)) return plan;
  // The formula makes v once. Only filters longer than any published network's exceed this.
  constexpr double kMostRepeated = 4;
  plan.tile = tile_for(args, gpu);
  const bool direct = plan.tile.rows > 0 && repeated(args, plan.tile) <= kMostRepeated;
  plan.kernel = direct ? FlrKernel::Direct : FlrKernel::Formula;
  return plan;
}

}  // namespace lltm_jit
