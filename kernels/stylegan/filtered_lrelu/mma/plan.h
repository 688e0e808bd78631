// The layout of a call on tensor cores: which calls they support, where the phases of Note [Bands]
// lie, and how the work is divided. Host code.
//
// Note [Walks]
// A warp walks down a part of a plane: a block of columns of y, `out_tiles` tiles of 8, and a
// segment of its rows. Neighbouring blocks, and neighbouring segments, overlap in v by the filters'
// reach. A narrow image has one block, and many planes have one segment each.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "stylegan/filtered_lrelu/kernels.h"
#include "stylegan/filtered_lrelu/mma/tiles.h"

namespace lltm_jit {

// The constants of a variant. in_slices: slices of 8 columns of x if one block has the whole width,
// 0 if there are several blocks. warps: in a block, which fills an SM. whole: rows of x and y are
// whole tiles in accesses of 16 bytes, so that nothing is masked.
struct MmaShape {
  UpBand up;
  DownBand down;
  int out_tiles, in_slices, warps;
  bool whole;

  // Columns: tiles of v, and slices of x. Slices that are always outside of the image are left out.
  constexpr int tiles() const { return down.tiles(kSlice * out_tiles); }
  constexpr int first_column_slice() const {
    return in_slices ? larger(up.first_slice(0), 0) : up.first_slice(0);
  }
  constexpr int last_column_slice() const {
    const int last = up.last_slice(tiles() - 1);
    return in_slices ? smaller(last, in_slices - 1) : last;
  }
  constexpr int column_slices() const { return last_column_slice() - first_column_slice() + 1; }

  // Rows: a step makes one tile of v from a window of slices of x.
  constexpr int first_row_slice() const {
    int first = 0;
    for (int tile = 0; tile < up.period(); ++tile) {
      first = smaller(first, up.first_slice(tile) - up.slices_before(tile));
    }
    return first;
  }
  constexpr int row_window() const {
    int last = 0;
    for (int tile = 0; tile < up.period(); ++tile) {
      last = larger(last, up.last_slice(tile) - up.slices_before(tile));
    }
    return (last - first_row_slice() + 2) / 2 * 2;  // even, for products with k = 16
  }

  // Shared memory, in bytes. Rows of x are spaced so that lanes which load a matrix, or a column of
  // floats, touch different banks.
  // The window of a step, and the slices of the next steps: the first are inspected while the
  // others are being fetched. Rows arrive later where the memory has more to write than to read;
  // elsewhere a deeper ring is slower.
  constexpr int ring_chunks() const {
    return row_window() + (up.factor > down.factor ? 3 : 2) * (up.factor == 1 ? 2 : 1);
  }
  constexpr int ring_pitch(int element) const {
    const int pairs = (column_slices() + 1) / 2;
    return element == 2 ? 16 * (2 * pairs | 1) : 4 * (16 * pairs + 4);
  }
  // Tiles of y, of 8 rows, that begin at once, and the number of tiles of v that each depends on.
  constexpr int begun() const { return down.factor == 1 ? 2 : 1; }
  constexpr int row_tiles() const { return down.tiles(kSlice * begun()); }
  constexpr int stage_rows() const { return kSlice * begun(); }
  constexpr int stage_pitch(int element) const { return kSlice * out_tiles * element + 16; }
  constexpr int bytes_of_warp(int element) const {
    return kPlaceBytes + ring_chunks() * kSlice * ring_pitch(element) +
           stage_rows() * stage_pitch(element);
  }
  constexpr int shared_bytes(int element) const {
    return tap_bytes(element) + warps * bytes_of_warp(element);
  }
  // The part that all warps share: the filters, and the band of which a lane has two pairs per tile.
  constexpr int tap_bytes(int element) const {
    return 512 + row_tiles() * begun() * 32 * 2 * (element == 2 ? 4 : 8);
  }
  static constexpr int kPlaceBytes = 256;
};

struct AxisPlan {
  int up_phase, down_phase;
  int slice;      // of x, where slice 0 of the bands lies
  int sign_tile;  // of the sign map, where tile 0 of v lies
  int before;     // rows or columns of the tiles of y that lie before the first of y
};

struct MmaPlan {
  AxisPlan rows, columns;
  int blocks, segments, segment_tiles;

  // The number of sums per plane: FilteredLreluArgs::plane_sums.
  LLTM_JIT_HOST_DEVICE int parts() const { return blocks * segments; }
};

// Filters are padded with zeros to a class of lengths, to keep variants few. 0 if no class fits.
inline int class_taps(int factor, int taps) {
  const int most = factor == 1 || factor == 2 ? 12 : factor == 4 ? 24 : 0;
  return factor == 1 && taps == 1 ? 1 : taps <= most ? most : 0;
}

// The phases of rows or of columns; false if the bands of the shape do not support the padding.
inline bool plan_axis(const MmaShape& shape, const FilteredLreluArgs& args, bool rows,
                      AxisPlan* plan) {
  const bool reads = args.mode == Signs::Read;
  const int pad = rows ? args.pad_y : args.pad_x;
  // Where the first sample of v lies in the tiles of the map that is read.
  const int sign = rows ? args.sign_y + args.sign_phase_y : args.sign_x + args.sign_phase_x;
  const int period = kSlice * shape.up.factor, first = args.fu.width - 1;
  const int last_down = shape.down.last_phase + shape.down.taps - args.fd.width;
  // A map written at factor 1 may lie half a tile further on, and then so do the tiles of y.
  const int most_before = reads && shape.down.factor == 1 ? kSlice : 0;
  bool found = false;
  for (int phase = 0; phase <= smaller(last_down + most_before, kTile - 1); ++phase) {
    const int before = phase >= kSlice ? most_before : 0;
    if (phase - before > last_down) continue;
    const int tile = floor_div(sign - phase, kTile);
    if (reads && tile * kTile != sign - phase) continue;
    const int slices = floor_div(pad + phase - first, period);
    const int up_phase = pad + phase - slices * period;
    if (up_phase > shape.up.last_phase || (found && slices != 0)) continue;
    *plan = {up_phase, phase - before, -slices, reads ? tile : 0, before};
    if (slices == 0) return true;
    found = true;
  }
  return found;
}

// The narrowest bands that support both paddings of a call; taps 0 if none do.
inline MmaShape mma_bands(const FilteredLreluArgs& args, MmaPlan* plan) {
  constexpr int kClasses = 3;
  const UpBand up{args.up, class_taps(args.up, args.fu.width)};
  const DownBand down{args.down, class_taps(args.down, args.fd.width)};
  if (up.taps == 0 || down.taps == 0) return {};
  for (int sum = 0; sum <= 2 * (kClasses - 1); ++sum) {
    for (int share = 0; share <= sum; ++share) {
      // A wider filter up costs less, unless there is no filter down.
      const int wider_down = down.taps == 1 ? sum - share : share;
      MmaShape wide{up, down, 0, 0, 0, false};
      for (int k = wider_down; k < sum; ++k) wide.up = wide.up.wider();
      for (int k = 0; k < wider_down; ++k) wide.down = wide.down.wider();
      // A walk has at most two tiles of rows of y in progress.
      if (wide.down.tiles(kTile) > 2 * args.down) continue;
      if (plan_axis(wide, args, true, &plan->rows) && plan_axis(wide, args, false, &plan->columns))
        return wide;
    }
  }
  return {};
}

inline int element_bytes(const FilteredLreluArgs& args) {
  return args.type == ElementType::Float ? 4 : 2;
}

// The widest access to x, or to y, that its address and strides allow: 16 bytes, 4 bytes, or an element.
inline int access_bytes(const FilteredLreluArgs& args, bool to_x) {
  const int element = element_bytes(args);
  if (to_x && args.x_strides[3] != 1) return element;
  const auto address = reinterpret_cast<uintptr_t>(to_x ? args.x : args.y);
  for (int bytes : {16, 4}) {
    const auto fits = [&](int64_t elements) { return elements * element % bytes == 0; };
    const bool rows = to_x ? fits(args.in_w) && fits(args.x_strides[0]) &&
                                 fits(args.x_strides[1]) && fits(args.x_strides[2])
                           : fits(args.out_w);
    if (bytes >= element && address % bytes == 0 && rows) return bytes;
  }
  return element;
}

// See MmaShape::whole.
inline bool is_whole(const FilteredLreluArgs& args, const MmaShape& shape,
                     const AxisPlan& columns) {
  if (access_bytes(args, true) != 16 || access_bytes(args, false) != 16) return false;
  if (shape.in_slices == 0) return args.in_w % kSlice == 0 && args.out_w % kSlice == 0;
  return args.in_w == kSlice * shape.in_slices && args.out_w == kSlice * shape.out_tiles &&
         columns.before == 0;
}

// The variant for a call on a chip that gives a block `shared_bytes`; taps or warps are 0 if there
// is none.
inline MmaShape mma_shape(const FilteredLreluArgs& args, int shared_bytes) {
  MmaPlan plan{};
  MmaShape shape = mma_bands(args, &plan);
  if (shape.up.taps == 0) return shape;
  const int element = element_bytes(args);
  const bool wide = shape.up.taps != class_taps(args.up, args.fu.width) ||
                    shape.down.taps != class_taps(args.down, args.fd.width);
  // The widest tiles for which the registers suffice.
  shape.out_tiles = args.down == 1 || (args.down == 2 && args.up == 4) ? 16
                    : args.down == 2                                   ? (args.up == 1 ? 4 : 8)
                                                                       : (args.up == 4 ? 8 : 4);
  // Whether one block has the whole width; x must begin at slice 0 of the bands.
  const auto one_block = [&](int out_tiles) {
    return plan.columns.slice == 0 && args.in_w <= kSlice * (out_tiles * args.down / args.up) &&
           args.out_w + plan.columns.before <= kSlice * out_tiles;
  };
  const bool signs = args.mode != Signs::None;
  if (element == 4 && (args.up == 4 || (args.up == 1 && args.down == 1))) shape.out_tiles /= 2;
  for (;; shape.out_tiles /= 2) {
    shape.in_slices = one_block(shape.out_tiles) ? shape.out_tiles * args.down / args.up : 0;
    shape.whole = is_whole(args, shape, plan.columns);
    const bool carries_older = shape.down.tiles(kTile) > args.down + 1;
    const bool many = element == 2 && !wide && shape.out_tiles * (carries_older ? 2 : 1) <= 8;
    const int room = shared_bytes - shape.shared_bytes(element);  // without warps
    const int most = many                                                                ? 16
                     : element == 2 && !wide && !signs && args.up == 4 && args.down == 2 ? 12
                                                                                         : 8;
    shape.warps = smaller(most, larger(room, 0) / shape.bytes_of_warp(element)) & ~1;
    constexpr int kFewest = 2;
    if (shape.warps >= kFewest) return shape;
    shape.warps = 0;
    // Narrower blocks must begin at tiles of the sign map and at slices of x.
    const int next = shape.out_tiles / 2 * args.down;
    if (shape.out_tiles % 4 != 0 || next % 8 != 0 || next % args.up != 0) return shape;
  }
}

// The phases, of rows and columns, of the sign map that a call is to write: see sign_map.h.
struct SignPhases {
  int rows, columns;
};
inline SignPhases sign_phases(const FilteredLreluArgs& args) {
  MmaPlan plan{};
  if (mma_bands(args, &plan).up.taps == 0) return {0, 0};
  return {plan.rows.down_phase, plan.columns.down_phase};
}

// False if the tensor cores do not support the call.
inline bool plan_mma(const FilteredLreluArgs& args, const MmaShape& shape, MmaPlan* plan) {
  const auto power = [](int factor) { return factor == 1 || factor == 2 || factor == 4; };
  if (!power(args.up) || !power(args.down) || args.type == ElementType::Double) return false;
  if (args.fu.height != 0 || args.fd.height != 0 || !shape.up.taps || !shape.warps) return false;
  const bool reads = args.mode == Signs::Read;
  if (reads ? args.bias != nullptr : args.plane_sums != nullptr) return false;
  if (!plan_axis(shape, args, true, &plan->rows) || !plan_axis(shape, args, false, &plan->columns))
    return false;
  if (args.mode == Signs::Write && (plan->rows.down_phase != args.sign_phase_y ||
                                    plan->columns.down_phase != args.sign_phase_x)) {
    return false;
  }
  if (shape.in_slices != 0 && plan->columns.slice != 0) return false;
  if (shape.whole && !is_whole(args, shape, plan->columns)) return false;

  const int out_w = args.out_w + plan->columns.before, out_h = args.out_h + plan->rows.before;
  plan->blocks = shape.in_slices ? 1 : ceil_div(out_w, kSlice * shape.out_tiles);
  // As many walks as a large chip has warps, but none shorter than two tiles.
  constexpr int64_t kWalks = 2112;
  const int tiles = ceil_div(out_h, kTile);
  const int64_t planes = args.batch * args.channels;
  const int most = static_cast<int>(ceil_div(kWalks, planes * plan->blocks));
  plan->segment_tiles = ceil_div(ceil_div(tiles, most), 2) * 2;
  plan->segments = ceil_div(tiles, plan->segment_tiles);
  return planes * plan->parts() < (int64_t(1) << 30);
}

}  // namespace lltm_jit
