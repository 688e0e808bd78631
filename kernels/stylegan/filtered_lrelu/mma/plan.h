// How a call is laid out for the tensor cores: which calls they take, where the phases of Note [Bands]
// lie, and how the work is shared out. For the host.
//
// Note [Walks]
// A warp walks down a part of a plane: a block of columns of y, `out_tiles` tiles of 8, and a segment of
// its rows. The blocks overlap in v by what the filters reach, the segments likewise; there is one block
// where the image is narrow, and one segment where there are many planes.
#pragma once

#include <cstdint>

#include "stylegan/filtered_lrelu/filtered_lrelu.h"
#include "stylegan/filtered_lrelu/mma/tiles.h"

namespace lltm_jit {

// What a variant is compiled for. in_slices: slices of 8 columns of x where one block has the whole
// width, 0 where there are several blocks.
struct MmaShape {
  int up, down, up_taps, down_taps, out_tiles, in_slices;

  constexpr UpBand up_band() const { return {up, up_taps}; }
  constexpr DownBand down_band() const { return {down, down_taps}; }
};

struct AxisPlan {
  int up_phase, down_phase;
  int slice;      // of x, where slice 0 of the bands is
  int sign_tile;  // of the sign map, where tile 0 of v is
};

struct MmaPlan {
  AxisPlan rows, columns;
  int blocks, segments, segment_tiles;

  // Sums of y of each plane: FilteredLreluArgs::plane_sums.
  LLTM_JIT_HOST_DEVICE int parts() const { return blocks * segments; }
};

// Filters are brought to a class of lengths by zeros, so that variants are few. 0 for none.
inline int class_taps(int factor, int taps) {
  const int most = factor == 1 || factor == 2 ? 12 : factor == 4 ? 24 : 0;
  return factor == 1 && taps == 1 ? 1 : taps <= most ? most : 0;
}

inline MmaShape mma_shape(const FilteredLreluArgs& args) {
  MmaShape shape{args.up, args.down, class_taps(args.up, args.fu.width),
                 class_taps(args.down, args.fd.width), 0, 0};
  // As wide as the registers allow.
  shape.out_tiles = args.down == 1 || (args.down == 2 && args.up == 4) ? 16
                    : args.down == 2 ? (args.up == 1 ? 4 : 8)
                                     : (args.up == 4 ? 8 : 4);
  const int slices = shape.out_tiles * args.down / args.up;
  if (args.out_w <= kSlice * shape.out_tiles && args.in_w <= kSlice * slices) {
    shape.in_slices = slices;
  }
  return shape;
}

// The phases for a padding; false if no tile fits. `sign_offset` is where the first sample of v lies in
// the tiles of a sign map that is read, and has no meaning otherwise.
inline bool plan_axis(const MmaShape& shape, int pad, bool reads_signs, int sign_offset,
                      AxisPlan* plan) {
  const UpBand up = shape.up_band();
  const int period = kSlice * up.factor;
  bool found = false;
  for (int phase = 0; phase <= shape.down_band().last_phase(); ++phase) {
    if (reads_signs && floor_div(sign_offset - phase, kTile) * kTile != sign_offset - phase) continue;
    const int slices = floor_div(pad + phase - up.first_phase(), period);
    const int up_phase = pad + phase - slices * period;
    if (up_phase > up.last_phase() || (found && slices != 0)) continue;
    *plan = {up_phase, phase, -slices, reads_signs ? (sign_offset - phase) / kTile : 0};
    if (slices == 0) return true;
    found = true;
  }
  return found;
}

// The phase of the sign map of a call that writes it, for one axis: see sign_map.h.
inline int sign_phase(const MmaShape& shape, int pad) {
  AxisPlan plan{};
  return shape.up_taps && shape.down_taps && plan_axis(shape, pad, false, 0, &plan)
             ? plan.down_phase
             : 0;
}

// False: the call is not one for the tensor cores.
inline bool plan_mma(const FilteredLreluArgs& args, const MmaShape& shape, MmaPlan* plan) {
  const auto power = [](int factor) { return factor == 1 || factor == 2 || factor == 4; };
  if (!power(args.up) || !power(args.down) || args.type == ElementType::Double) return false;
  if (args.fu.height != 0 || args.fd.height != 0 || !shape.up_taps || !shape.down_taps) return false;
  const bool reads = args.mode == Signs::Read;
  if (args.plane_sums && !reads) return false;
  if (!plan_axis(shape, args.pad_y, reads, args.sign_y + args.sign_phase_y, &plan->rows) ||
      !plan_axis(shape, args.pad_x, reads, args.sign_x + args.sign_phase_x, &plan->columns)) {
    return false;
  }
  if (args.mode == Signs::Write && (plan->rows.down_phase != args.sign_phase_y ||
                                    plan->columns.down_phase != args.sign_phase_x)) {
    return false;
  }
  constexpr int kMapTile = 4;  // tiles of a tile of the map
  if (plan->columns.sign_tile % kMapTile != 0) return false;
  if (shape.in_slices != 0 && plan->columns.slice != 0) return false;

  const auto divide_up = [](int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); };
  plan->blocks = shape.in_slices ? 1 : divide_up(args.out_w, kSlice * shape.out_tiles);
  // As many walks as there are warps on a large chip, but none shorter than two tiles.
  constexpr int64_t kWalks = 2112;
  const int tiles = divide_up(args.out_h, kTile);
  const int64_t planes = args.batch * args.channels;
  const int most = divide_up(kWalks, planes * plan->blocks);
  plan->segment_tiles = divide_up(divide_up(tiles, most), 2) * 2;
  plan->segments = divide_up(tiles, plan->segment_tiles);
  return planes * plan->parts() < (int64_t(1) << 30);
}

}  // namespace lltm_jit
