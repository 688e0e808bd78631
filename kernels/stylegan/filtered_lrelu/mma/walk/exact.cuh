// A walk on CUDA cores, for the results that have an outlier in their support (Note [Outliers] in
// scales.cuh), and for their signs.
//
// Rows of v are made one after another, for 32 columns of y at a time: first the row of x filtered along
// the columns, then v, then the sums that v adds to the rows of y in progress, one column per lane. An
// outlier is followed from x to y, so that all other results stay as tensor cores computed them.
#pragma once

#include "stylegan/filtered_lrelu/maths.h"
#include "stylegan/filtered_lrelu/mma/memory/row_ring.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

template <typename K>
struct ExactWalk {
  using scalar_t = typename K::scalar;
  static constexpr int kUp = K::kUp, kDown = K::kDown;
  static constexpr int kLanes = 32;

  // A number, and whether it depends on an outlier.
  struct Sample {
    float value;
    uint32_t outlier;
    LLTM_JIT_DEVICE void add(const Sample& sample, float tap) {
      value += sample.value * tap;
      outlier |= sample.outlier;
    }
  };
  // The places from `begin` to before `end`.
  struct Span {
    int begin, end;
  };

  // Rows in shared memory, which begin at the first column that a part needs.
  static constexpr int kVColumns = kDown * (kLanes - 1) + K::kDownTaps + kTile;
  static constexpr int kXColumns = (kVColumns + K::kUpTaps) / kUp + 2;
  static constexpr int kBytes = (kVColumns + kXColumns) * int(sizeof(Sample));
  static constexpr int kUnderWay = ceil_div(K::kDownTaps, kDown);

  const MmaCall& call;
  const FilteredLreluArgs& args;
  const uint32_t outliers;
  Sample* const x_row;
  Sample* const v_row;
  const Place<K> place;
  const int64_t batch, channel;
  float bias;
  Span y_rows, y_columns;  // the walk's own
  Span v_rows;             // those that the results need or whose signs are the walk's

  LLTM_JIT_DEVICE ExactWalk(const MmaCall& call_, int walk, uint32_t outliers_, char* shared)
      : call(call_),
        args(call_.args),
        outliers(outliers_),
        x_row(reinterpret_cast<Sample*>(shared)),
        v_row(x_row + kXColumns),
        place(call_, walk),
        batch(place.plane / args.channels),
        channel(place.plane % args.channels) {
    bias = args.bias ? to_opmath(static_cast<const scalar_t*>(args.bias)[channel]) : 0.f;
    const int row = args.out_h - place.part.end_row, column = args.out_w - place.part.end_column;
    y_rows = {max(row, 0), min(row + kTile * place.row_tiles, args.out_h)};
    y_columns = {max(column, 0), min(column + kSlice * K::kOutTiles, args.out_w)};
    v_rows = {first_v(y_rows.begin, args.sign_phase_y), (y_rows.end - 1) * kDown + args.fd.width};
  }

  __device__ void run() {
    if constexpr (K::kSigns == Signs::Write) flag_tiles();
    Span rows = rows_with_outliers();
    const Span results = {max(y_rows.begin, floor_div(rows.begin - args.fd.width, kDown) + 1),
                          min(y_rows.end, floor_div(rows.end - 1, kDown) + 1)};
    if (results.begin < results.end) {
      rows = {min(rows.begin, results.begin * kDown),
              max(rows.end, (results.end - 1) * kDown + args.fd.width)};
    }
    for (int column = y_columns.begin; column < y_columns.end; column += kLanes) {
      make_columns(column, rows, results);
    }
    __syncwarp();
    if (K::kSigns == Signs::Read && args.plane_sums) add_up();
  }

 private:
  // A tile of the map may begin before the first sample of v that a result needs.
  static LLTM_JIT_DEVICE int first_v(int y, int phase) {
    return max(y * kDown - (K::kSigns == Signs::Write ? phase : 0), 0);
  }

  static LLTM_JIT_DEVICE float tap(const FirFilter& filter, int place) {
    return filter.taps ? filter.taps[tap_index(place, filter.width, filter.flip)] : 1.f;
  }

  LLTM_JIT_DEVICE Sample read(int row, int column) const {
    if (row < 0 || row >= args.in_h || column < 0 || column >= args.in_w) return {0, 0};
    const float x = to_opmath(static_cast<const scalar_t*>(
        args.x)[batch * args.x_strides[0] + channel * args.x_strides[1] + row * args.x_strides[2] +
                column * args.x_strides[3]]);
    return {x + bias, __float_as_uint(fabsf(x)) >= outliers};
  }

  // The rows of v that depend on an outlier.
  __device__ Span rows_with_outliers() const {
    const int width = args.fu.width, last_column = (y_columns.end - 1) * kDown + args.fd.width - 1;
    const Phase left =
        phase_of(first_v(y_columns.begin, args.sign_phase_x), args.pad_x, kUp, width);
    const Phase right = phase_of(last_column, args.pad_x, kUp, width);
    const Phase top = phase_of(v_rows.begin, args.pad_y, kUp, width);
    const Phase bottom = phase_of(v_rows.end - 1, args.pad_y, kUp, width);
    int first = 1 << 30, last = -1;
    for (int row = max(top.first, 0); row < min(bottom.first + bottom.count, args.in_h); ++row) {
      bool any = false;
      for (int column = left.first + lane(); column < right.first + right.count; column += kLanes) {
        any |= read(row, column).outlier != 0;
      }
      if (!__any_sync(~0u, any)) continue;
      first = min(first, row);
      last = row;
    }
    if (last < 0) return {0, 0};
    return {max(v_rows.begin, first * kUp + args.pad_y - width + 1),
            min(v_rows.end, last * kUp + args.pad_y + 1)};
  }

  // Makes the results of each lane's column, `first` + lane, up to the end of the block.
  __device__ void make_columns(int first, Span rows, Span results) const {
    const int v_column = first_v(first, args.sign_phase_x);
    const int v_end = (min(first + kLanes, y_columns.end) - 1) * kDown + args.fd.width;
    const int x_column = phase_of(v_column, args.pad_x, kUp, 1).first;
    const int column = first + lane();
    Sample sums[kUnderWay];
    for (int row = rows.begin; row < rows.end; ++row) {
      __syncwarp();
      const Phase up = phase_of(row, args.pad_y, kUp, args.fu.width);
      const Phase last = phase_of(v_end - 1, args.pad_x, kUp, args.fu.width);
      for (int i = lane(); i < last.first + last.count - x_column; i += kLanes) {
        Sample sum = {0, 0};
        for (int k = 0; k < up.count; ++k) {
          sum.add(read(up.first + k, x_column + i), tap(args.fu, up.tap + k * kUp));
        }
        x_row[i] = sum;
      }
      __syncwarp();
      for (int i = lane(); i < v_end - v_column; i += kLanes) {
        const Phase across = phase_of(v_column + i, args.pad_x, kUp, args.fu.width);
        Sample sum = {0, 0};
        for (int k = 0; k < across.count; ++k) {
          sum.add(x_row[across.first - x_column + k], tap(args.fu, across.tap + k * kUp));
        }
        v_row[i] = {activated(row, v_column + i, sum), sum.outlier};
      }
      __syncwarp();
      if (column >= y_columns.end) continue;
      Sample sum = {0, 0};
      for (int t = 0; t < args.fd.width; ++t) {
        sum.add(v_row[column * kDown - v_column + t], tap(args.fd, t));
      }
      for (int t = row % kDown; t < args.fd.width; t += kDown) {
        const int y_row = (row - t) / kDown;
        if (row < t || y_row < results.begin || y_row >= results.end) continue;
        Sample& result = sums[y_row % kUnderWay];
        if (t == 0) result = {0, 0};
        result.add(sum, tap(args.fd, t));
        if (t == args.fd.width - 1 && result.outlier)
          *y(y_row, column) = from_opmath<scalar_t>(result.value);
      }
    }
  }

  LLTM_JIT_DEVICE scalar_t* y(int row, int column) const {
    return static_cast<scalar_t*>(args.y) + (int64_t(place.plane) * args.out_h + row) * args.out_w +
           column;
  }

  LLTM_JIT_DEVICE float activated(int row, int column, const Sample& sum) const {
    const float u = float(args.gain) * sum.value, slope = float(args.slope);
    if constexpr (K::kSigns == Signs::Read) {
      return u * derivative_at(args, call.map, plane_of_map(), row, column, slope);
    } else {
      const Activated<float> result = activate(u, slope, float(args.clamp));
      if (K::kSigns == Signs::Write && sum.outlier) {
        keep_signs(row, column, result.negative, result.clamped);
      }
      return result.value;
    }
  }

  // ---- The sign map ----

  LLTM_JIT_DEVICE uint32_t* plane_of_map() const {
    return call.args.signs + int64_t(place.plane) * call.map.words_per_plane();
  }
  // Only in the walk's own tiles: neighbours make the same samples.
  LLTM_JIT_DEVICE void keep_signs(int row, int column, bool negative, bool clamped) const {
    const SignMap<int>& map = call.map;
    const int tile_row = (row + map.phase_y) / map.kTileRows;
    const int tile = map.flag_column(column) + place.first_map_tile;
    if (tile_row < place.map_row || tile_row >= place.end_map_row) return;
    if (tile < 0 || tile >= min(K::kMapTiles, place.end_map_tile)) return;
    uint32_t* word = plane_of_map() + map.row_word(row) + map.column_word(column);
    const uint32_t bit = 1u << (map.row_bit(row) + map.column_bit(column));
    const auto set = [&](uint32_t* to, bool value) {
      if (value) {
        atomicOr(to, bit);
      } else {
        atomicAnd(to, ~bit);
      }
    };
    set(word, negative);
    set(word + map.clamped_words(), clamped);
  }
  // Any of the walk's own tiles may have clamped samples, so their words must be initialised.
  __device__ void flag_tiles() const {
    const int first = max(place.first_map_tile, 0), end = min(K::kMapTiles, place.end_map_tile);
    for (int i = 0; i < place.steps && place.map_row + i < place.end_map_row; ++i) {
      for (int tile = first; tile < end; ++tile) {
        const int64_t of_map = int64_t(i) * call.map.tile_columns + tile;
        uint32_t* flag = call.args.signs + place.map_flags + of_map;
        const bool flagged = *flag != 0;
        __syncwarp();
        if (flagged) continue;
        call.args.signs[place.map_words + of_map * SignMap<int>::kTileWords +
                        call.map.clamped_words() + lane()] = 0;
        if (lane() == 0) *flag = 1;
      }
    }
    __syncwarp();
  }

  // Sums the walk's results again.
  __device__ void add_up() const {
    float sum = 0;
    for (int row = y_rows.begin; row < y_rows.end; ++row) {
      for (int column = y_columns.begin + lane(); column < y_columns.end; column += kLanes) {
        sum += to_opmath(*y(row, column));
      }
    }
    write_plane_sum(call, place, sum);
  }
};

// Finishes a walk that has left out numbers. Not inline, so that it takes no registers from other walks.
template <typename K>
__device__ __noinline__ void repeat_exactly(const MmaCall& call, int walk, uint32_t outliers,
                                            char* shared) {
  static_assert(ExactWalk<K>::kBytes <= RowRing<K>::kBytes + K::kStageRows * K::kStagePitch);
  ExactWalk<K>(call, walk, outliers, shared).run();
}

}  // namespace lltm_jit
