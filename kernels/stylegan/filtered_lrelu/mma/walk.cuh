// A warp walks down a plane: y = D act(U x U') D' in products with banded matrices (Note [Bands]), all of
// it in registers.
//
// Note [The chain]
// A step makes one tile of rows of v, across the block's columns, in five moves:
//   1. U x     16 rows of v by 8 columns of x, for each slice of columns; x comes from the ring
//   2. (U x)U' 16 by 16 samples of v, a tile after another: the sums of 1 are operand A as they are
//   3. act, and its signs
//   4. v D'    16 rows of v by 8 columns of y: operand A again, summed over the tiles of v
//   5. D(v D') added to the tiles of y that these rows have a part in; the transpose is operand B
// The rows go first on the way up and last on the way down, so that there is one transpose, of the
// smallest intermediate result, and no row of v is computed twice. Warps share nothing but the taps.
#pragma once

#include "stylegan/filtered_lrelu/mma/scales.cuh"
#include "stylegan/filtered_lrelu/mma/shape.cuh"

namespace lltm_jit {

template <typename K>
struct Walk {
  using scalar_t = typename K::scalar;
  using Pair = typename K::Pair;
  using Sums = typename K::Sums;
  using Ring = RowRing<K>;
  static constexpr bool k16Bit = sizeof(scalar_t) == 2;
  static constexpr int kWindow = K::kRowWindow;
  // A slice of rows as it is read, two samples of each slice of columns: neighbours in a column.
  struct Slice {
    std::conditional_t<k16Bit, uint32_t, float2> samples[K::kColumnSlices];
  };

  const MmaCall& call;
  const typename Bands<K>::UpTaps& up_taps;
  Place<K>& shared_place;   // the warp's own
  const uint32_t zero_chunk;  // shared memory: rows above and below the image
  Ring ring;                // and 16 rows of y behind it
  Scales<scalar_t> scales;
  Bands<K> bands;
  int first_slot = 0;       // of the ring, where the walk's first chunk is

  Pair window[K::kColumnSlices][kWindow];
  float largest[kWindow];   // magnitude, of each slice of rows
  FloatSums newer[K::kOutTiles], older[K::kOutTiles];
  uint32_t negative[K::kMapTiles];  // signs that are read, of the next step
  bool clamped_next;                // a tile of this lane's has clamped samples
  float bias, inner_bias;   // the latter times the taps of a row of v all of whose taps meet the image
  float plane_sum;

  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
  static __device__ __forceinline__ int row() { return lane() / 4; }
  static __device__ __forceinline__ int column() { return lane() % 4 * 2; }

  __device__ __forceinline__ void run() {
    const Place<K>& place = shared_place;
    for (int walk = first_walk<K>(); walk < call.walks; walk += walk_step<K>()) {
      if (lane() == 0) shared_place = Place<K>(call, walk);
      __syncwarp();
      begin(place);
      for (int i = 0; i < place.steps; i += K::kPeriod) steps<0>(place, i);
      first_slot = (first_slot + place.chunks) % Ring::kChunks;
      if constexpr (K::kSigns == Signs::Read) write_plane_sum(place);
      __syncwarp();
    }
  }

 private:
  template <int kStep>
  __device__ __forceinline__ void steps(const Place<K>& place, int i) {
    if constexpr (kStep < K::kPeriod) {
      if (kStep == 0 || i + kStep < place.steps) {
        step<kStep>(place, i + kStep);
        steps<kStep + 1>(place, i);
      }
    }
  }

  __device__ __forceinline__ void begin(const Place<K>& place) {
    bias = 0;
    if (call.bias) {
      bias = to_opmath(static_cast<const scalar_t*>(call.bias)[place.plane % call.channels]);
    }
    float sum = 0;
    for (int t = positive_phase(call.plan.rows.up_phase - row()); t < K::Up::kTaps; t += K::Up::kFactor) {
      sum += up_taps(t);
    }
    inner_bias = bias * sum;
    plane_sum = 0;
#pragma unroll
    for (int j = 0; j < K::kOutTiles; ++j) newer[j] = older[j] = zero_sums<FloatSums>();
    if constexpr (K::kSigns == Signs::Read) read_signs(place, 0);
  }
  static __device__ __forceinline__ int positive_phase(int k) {
    return k & (K::Up::kFactor - 1);
  }

  template <int kStep>
  __device__ __forceinline__ void step(const Place<K>& place, int i) {
    constexpr int kNew = K::new_slices(kStep), kOld = kWindow - kNew;
    wait_for_copies<Ring::kChunks - kWindow>();
    __syncwarp();
    if constexpr (kNew != 0) {
#pragma unroll
      for (int s = 0; s < kOld; ++s) {
        largest[s] = largest[s + kNew];
#pragma unroll
        for (int l = 0; l < K::kColumnSlices; ++l) window[l][s] = window[l][s + kNew];
      }
    }
    if (kStep == 0 && i == 0) {
#pragma unroll
      for (int s = 0; s < kOld; ++s) largest[s] = largest_of(read_slice(place, i, s));
    }
    Slice fresh[kNew == 0 ? 1 : kNew];
#pragma unroll
    for (int s = 0; s < kNew; ++s) {
      fresh[s] = read_slice(place, i, kOld + s);
      largest[kOld + s] = largest_of(fresh[s]);
    }
    bool clamps;
    const bool rescaled = settle_scales(place, i, &clamps);
    if ((kStep == 0 && i == 0) || (rescaled && !Scales<scalar_t>::kHalf)) {
#pragma unroll
      for (int s = 0; s < kOld; ++s) convert(read_slice(place, i, s), s);
    }
#pragma unroll
    for (int s = 0; s < kNew; ++s) convert(fresh[s], kOld + s);

    Pair rows[K::kColumnSlices][2];
    up_rows<kStep>(place, i, rows);
    if (clamps) {
      columns<kStep, true>(place, i, rows);
    } else {
      columns<kStep, false>(place, i, rows);
    }
    __syncwarp();
    if constexpr (kStep % K::Down::kFactor == (K::kRowTiles - 1) % K::Down::kFactor) {
      const int tile = (i - (K::kRowTiles - 1)) / K::Down::kFactor;
      if (i >= K::kRowTiles - 1) store_rows(place, tile);
      __syncwarp();
    }
    release_chunks(place, i);
  }

  // ---- The window of x ----

  __device__ __forceinline__ Slice read_slice(const Place<K>& place, int i, int position) {
    const int chunk = place.row_slice + K::Up::slices_before(i) + K::kFirstRowSlice + position -
                      place.first_chunk;
    int slot = first_slot + chunk;
    slot = slot < Ring::kChunks ? slot : slot % Ring::kChunks;
    const bool inside = static_cast<unsigned>(chunk) < static_cast<unsigned>(place.chunks);
    const uint32_t from = inside ? ring.ring + slot * Ring::kChunkBytes : zero_chunk;
    Slice slice;
    if constexpr (k16Bit) {
      const uint32_t source = from + lane() % 8 * Ring::kPitch + lane() / 8 * 16;
      constexpr int kFours = K::kColumnSlices / 4 * 4, kRest = K::kColumnSlices % 4;
#pragma unroll
      for (int l = 0; l < kFours; l += 4) {
        uint32_t four[4];
        load_transposed(four, source + l * 16);
#pragma unroll
        for (int m = 0; m < 4; ++m) slice.samples[l + m] = four[m];
      }
      if constexpr (kRest != 0) {
        uint32_t rest[kRest == 3 ? 4 : kRest];
        load_transposed(rest, source + kFours * 16);
#pragma unroll
        for (int m = 0; m < kRest; ++m) slice.samples[kFours + m] = rest[m];
      }
    } else {
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        const uint32_t at = from + column() * Ring::kPitch + (kSlice * l + row()) * 4;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(slice.samples[l].x) : "r"(at) : "memory");
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(slice.samples[l].y)
                     : "r"(at + Ring::kPitch)
                     : "memory");
      }
    }
    return slice;
  }

  // The largest magnitude that any lane has.
  __device__ __forceinline__ float largest_of(const Slice& slice) {
    float most;
    if constexpr (k16Bit) {
      uint32_t pair = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        pair = max_magnitude2<scalar_t>(pair, slice.samples[l]);
      }
      most = fmaxf(first_of<scalar_t>(pair), second_of<scalar_t>(pair));
    } else {
      most = 0;
#pragma unroll
      for (int l = 0; l < K::kColumnSlices; ++l) {
        most = fmaxf(most, fmaxf(fabsf(slice.samples[l].x), fabsf(slice.samples[l].y)));
      }
    }
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
  }

  __device__ __forceinline__ void convert(const Slice& slice, int position) {
    const float scale = scales.in_scale();
#pragma unroll
    for (int l = 0; l < K::kColumnSlices; ++l) {
      if constexpr (Scales<scalar_t>::kHalf) {
        window[l][position] = slice.samples[l];
      } else if constexpr (k16Bit) {
        window[l][position] = pack2<Half>(first_of<scalar_t>(slice.samples[l]) * scale,
                                          second_of<scalar_t>(slice.samples[l]) * scale);
      } else {
        window[l][position] =
            make_pair<Pair>(slice.samples[l].x * scale, slice.samples[l].y * scale);
      }
    }
  }

  // Note [The running exponent]: whether it has changed, and whether this step must clamp.
  __device__ __forceinline__ bool settle_scales(const Place<K>& place, int i, bool* clamps) {
    float most = largest[0];
#pragma unroll
    for (int s = 1; s < kWindow; ++s) most = fmaxf(most, largest[s]);
    const int in = scales.exponent_for(fmaxf(most, fabsf(bias)));
    int out = in;
    if constexpr (K::kSigns == Signs::Read) {
      *clamps = __any_sync(~0u, clamped_next);
    } else {
      *clamps = scales.reaches_clamp(most, bias);
      if (*clamps) out = min(in, scales.constants.clamp_exponent);
    }
    if (in == scales.in_exponent && out == scales.out_exponent) return false;
    if constexpr (Scales<scalar_t>::kHalf) {
      const float ratio = power_of_two(scales.in_exponent - in);
      const uint32_t ratios = pack2<Half>(ratio, ratio);
#pragma unroll
      for (int tile = 0; tile < Bands<K>::kPeriod; ++tile) {
#pragma unroll
        for (int s = 0; s < kWindow; ++s) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            bands.up_rows[tile][s][r] = half2_multiply(bands.up_rows[tile][s][r], ratios);
          }
        }
      }
    }
    const float factor = power_of_two(min(max(scales.out_exponent - out, -126), 126));
    scales.in_exponent = in;
    scales.out_exponent = out;
#pragma unroll
    for (int j = 0; j < K::kOutTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) newer[j].value[e] *= factor, older[j].value[e] *= factor;
    }
    return true;
  }

  // Gives chunks that no later step needs back to the ring, which fetches others.
  __device__ __forceinline__ void release_chunks(const Place<K>& place, int i) {
    const auto done = [&](int next) {
      const int chunk =
          place.row_slice + K::Up::slices_before(next) + K::kFirstRowSlice - place.first_chunk;
      return next == place.steps ? place.chunks : min(max(chunk, 0), place.chunks);
    };
    for (int chunk = i == 0 ? 0 : done(i), end = done(i + 1); chunk < end; ++chunk) ring.fetch();
  }

  // ---- The products ----

  // Move 1 of Note [The chain], for the whole block. The bias enters as what the sums begin with.
  template <int kStep>
  __device__ __forceinline__ void up_rows(const Place<K>& place, int i,
                                          Pair (&rows)[K::kColumnSlices][2]) {
    Sums start;
    const int first = kTile * i - call.plan.rows.up_phase;  // t = 0 is at x of (first + row) / up
    start = bias_of_rows(place, first);
    const bool whole = bias == 0 || (place.column_slice >= 0 &&
                                     kSlice * (place.column_slice + K::kColumnSlices) <= call.in_w);
    if (whole) {
      multiply_rows<kStep, false>(start, 0, rows);
    } else {
      multiply_rows<kStep, true>(start, kSlice * place.column_slice + column(), rows);
    }
  }

  template <int kStep, bool kMasked>
  __device__ __forceinline__ void multiply_rows(const Sums& start, int first_column,
                                                Pair (&rows)[K::kColumnSlices][2]) {
    constexpr int kTileOfPeriod = kStep % K::Up::kPeriod;
#pragma unroll
    for (int l = 0; l < K::kColumnSlices; ++l) {
      Sums sums = start;
      if constexpr (kMasked) {
        const int x = first_column + kSlice * l;
        mask_columns(sums, static_cast<unsigned>(x) < static_cast<unsigned>(call.in_w),
                     static_cast<unsigned>(x + 1) < static_cast<unsigned>(call.in_w));
      }
#pragma unroll
      for (int s = 0; s < kWindow; s += 2) {
        const auto& band = bands.up_rows[kTileOfPeriod];
        const Pair a[4] = {band[s][0], band[s][1], band[s + 1][0], band[s + 1][1]};
        const Pair b[2] = {window[l][s], window[l][s + 1]};
        sums = multiply_add(a, b, sums);
      }
      rows[l][0] = to_pair<Pair>(sums, 0);
      rows[l][1] = to_pair<Pair>(sums, 1);
    }
  }

  // What the bias adds to U x: times the taps of a row that meet the image.
  __device__ __forceinline__ Sums bias_of_rows(const Place<K>& place, int first) {
    constexpr int kUpFactor = K::Up::kFactor;
    const int above = kSlice * place.row_slice;  // rows of the image above the bands' row 0
    float top = inner_bias, bottom = inner_bias;
    if (floor_div(first + kUpFactor - 1, kUpFactor) + above < 0 ||
        floor_div(first + kTile + K::Up::kTaps - 2, kUpFactor) + above >= call.in_h) {
      top = bias * taps_inside(first + row(), above);
      bottom = bias * taps_inside(first + row() + 8, above);
    }
    const float scale = scales.in_scale();
    Sums start;
    fill_rows(start, top * scale, bottom * scale);
    return start;
  }
  // The sum of those taps t whose sample (first + t) / up + above of x is in the image.
  __device__ __forceinline__ float taps_inside(int first, int above) {
    float sum = 0;
    for (int t = positive_phase(-first); t < K::Up::kTaps; t += K::Up::kFactor) {
      const int x = floor_div(first + t, K::Up::kFactor) + above;
      if (static_cast<unsigned>(x) < static_cast<unsigned>(call.in_h)) sum += up_taps(t);
    }
    return sum;
  }

  // Move 2: two halves of a tile of v, each 16 rows by 8 columns.
  __device__ __forceinline__ void up_columns(int tile, const Pair (&rows)[K::kColumnSlices][2],
                                             Sums (&v)[2]) {
    constexpr int kUpFactor = K::Up::kFactor;
    const auto& band = bands.up_columns[tile % K::Up::kPeriod];
    const int begin = K::Up::first_slice(tile);
    const int first = larger(begin, K::kFirstColumnSlice);
    const int last = smaller(K::Up::last_slice(tile), K::kLastColumnSlice);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      v[half] = zero_sums<Sums>();
      int s = first;
#pragma unroll
      for (int turn = 0; turn < K::kColumnWindow; ++turn) {
        const int distance = kSlice * kUpFactor * s - kTile * tile;
        if (s > last) continue;
        const int l = s - K::kFirstColumnSlice;
        if (!K::Up::touches(distance - 8 * half)) {
          ++s;
        } else if (s < last && K::Up::touches(distance + kSlice * kUpFactor - 8 * half)) {
          const Pair a[4] = {rows[l][0], rows[l][1], rows[l + 1][0], rows[l + 1][1]};
          const Pair b[2] = {band[s - begin][half], band[s - begin + 1][half]};
          v[half] = multiply_add(a, b, v[half]);
          s += 2;
        } else {
          const Pair a[2] = {rows[l][0], rows[l][1]};
          v[half] = multiply_add(a, band[s - begin][half], v[half]);
          ++s;
        }
      }
    }
  }

  // Moves 2 to 5, a tile of v after another.
  template <int kStep, bool kClamp>
  __device__ __forceinline__ void columns(const Place<K>& place, int i,
                                          const Pair (&rows)[K::kColumnSlices][2]) {
    constexpr int kAge = kStep % K::Down::kFactor;  // of the newer tile of y, in steps
    typename K::RowSums sums[K::kOutTiles];
    Activation<scalar_t, K::kSigns> activation(call.slope, call.pass);
    if constexpr (kClamp) activation.set_clamp(scales.clamp(), scales.doublings());
    MapWords map(*this, place, i, kClamp);
    Staged staged{scales.out_scale()};
#pragma unroll
    for (int tile = 0; tile < K::kTiles; ++tile) {
      Sums v[2];
      up_columns(tile, rows, v);
      Pair a[4];
      map.begin(tile);
      activation.template apply<kClamp>(v, tile % 4, map.negative, map.clamped, a);
      map.end(tile);
#pragma unroll
      for (int j = 0; j < K::kOutTiles; ++j) {
        constexpr int kFactor = K::Down::kFactor;
        const int distance = kTile * tile - 8 * kFactor * j;
        if (!K::Down::touches(distance, 8)) continue;
        const bool first = tile == 0 || !K::Down::touches(distance - kTile, 8);
        const bool last = tile == K::kTiles - 1 || !K::Down::touches(distance + kTile, 8);
        if (first) sums[j] = zero_sums<typename K::RowSums>();
        sums[j] = multiply_add(a, bands.down_columns[distance / 8 + 1], sums[j]);
        if (!last) continue;
        const Pair b[2] = {transpose_pair(to_pair<Pair>(sums[j], 0)),
                           transpose_pair(to_pair<Pair>(sums[j], 1))};
        if constexpr (kAge + kFactor < K::kRowTiles) {
          older[j] = multiply_add(bands.down_rows[kAge + kFactor], b, kAge == 0 ? newer[j] : older[j]);
          if (kAge + kFactor == K::kRowTiles - 1) stage_tile(place, older[j], j, staged);
        }
        if constexpr (kAge < K::kRowTiles) {
          newer[j] = multiply_add(bands.down_rows[kAge], b,
                                  kAge == 0 ? zero_sums<FloatSums>() : newer[j]);
          if (kAge == K::kRowTiles - 1) stage_tile(place, newer[j], j, staged);
        }
      }
    }
    if constexpr (K::kSigns == Signs::Read) {
      if (i + 1 < place.steps) read_signs(place, i + 1);
      constexpr int kLast = K::kRowTiles - 1;
      const int y = kTile * (i - kLast) / K::Down::kFactor + row();
      if (kAge == kLast % K::Down::kFactor && i >= kLast && call.plane_sums) {
        const int rows_left = call.out_h - kTile * place.first_row_tile - y;
        if (rows_left > 0) plane_sum += staged.sums[0];
        if (rows_left > 8) plane_sum += staged.sums[1];
      }
    }
  }

  // ---- Results ----

  // What one step has ready: the tile that waits for its neighbour, and the sums of rows and rows + 8.
  struct Staged {
    const float scale;
    uint32_t pair[2] = {};
    float sums[2] = {0, 0};
    __device__ __forceinline__ explicit Staged(float scale_) : scale(scale_) {}
  };

  // A finished tile of y, 16 rows by the 8 columns from 8 j on, to the stage.
  __device__ __forceinline__ void stage_tile(const Place<K>& place, const FloatSums& tile, int j,
                                             Staged& staged) {
    float y[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) y[e] = tile.value[e] * staged.scale;
    if constexpr (K::kSigns == Signs::Read) {
      const int columns_left = call.out_w - 8 * (place.block * K::kOutTiles + j) - column();
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (columns_left > e % 2) staged.sums[e / 2] += y[e];
      }
    }
    const uint32_t target = ring.ring + Ring::kBytes;
    if constexpr (k16Bit) {
      const uint32_t top = pack2<scalar_t>(y[0], y[1]), bottom = pack2<scalar_t>(y[2], y[3]);
      if (j % 2 == 0) {
        staged.pair[0] = top, staged.pair[1] = bottom;
      } else {
        store_matrices(target + lane() % 16 * K::kStagePitch + (lane() / 16 + j - 1) * 16,
                       {staged.pair[0], staged.pair[1], top, bottom});
      }
    } else {
      const uint32_t at = target + row() * K::kStagePitch + (8 * j + column()) * 4;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(y[0]), "f"(y[1]) : "memory");
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + 8 * K::kStagePitch), "f"(y[2]),
                   "f"(y[3])
                   : "memory");
    }
  }

  // The stage's rows to memory, those of y from 16 `tile` on.
  __device__ __forceinline__ void store_rows(const Place<K>& place, int tile) {
    const int first = kTile * (place.first_row_tile + tile);
    const int first_column = 8 * K::kOutTiles * place.block;
    const int rows_left = call.out_h - first, columns_left = call.out_w - first_column;
    auto* target = static_cast<scalar_t*>(call.y) +
                   (int64_t(place.plane) * call.out_h + first) * call.out_w + first_column;
    if (call.store_bytes == 16) {
      store_pieces<uint4>(target, rows_left, columns_left);
    } else if (call.store_bytes == 4) {
      store_pieces<uint32_t>(target, rows_left, columns_left);
    } else {
      store_pieces<uint16_t>(target, rows_left, columns_left);
    }
  }
  template <typename Piece>
  __device__ __forceinline__ void store_pieces(scalar_t* target, int rows_left, int columns_left) {
    if constexpr (sizeof(Piece) >= sizeof(scalar_t)) {
      constexpr int kElements = sizeof(Piece) / sizeof(scalar_t);
      constexpr int kPieces = 8 * K::kOutTiles / kElements;
      constexpr int kUnroll = sizeof(Piece) == 16 ? kTile * kPieces / 32 : 4;
#pragma unroll kUnroll
      for (int p = lane(); p < kTile * kPieces; p += 32) {
        const int y = p / kPieces, x = p % kPieces * kElements;
        if (y >= rows_left || x >= columns_left) continue;
        const uint32_t from =
            ring.ring + Ring::kBytes + y * K::kStagePitch + x * int(sizeof(scalar_t));
        __stcs(reinterpret_cast<Piece*>(target + int64_t(y) * call.out_w + x),
               *static_cast<const Piece*>(__cvta_shared_to_generic(from)));
      }
    }
  }

  __device__ __forceinline__ void write_plane_sum(const Place<K>& place) {
    if (!call.plane_sums) return;
    float sum = plane_sum;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
    const int part = place.segment * call.plan.blocks + place.block;
    if (lane() == 0) call.plane_sums[int64_t(place.plane) * call.plan.parts() + part] = sum;
  }

  // ---- Signs ----

  // The tiles of the sign map that a step meets, from the first of the block on.
  struct MapRow {
    uint32_t* words;
    uint32_t* flags;
    int first, end;  // tiles that are in the map (when read), or this walk's to write
    __device__ __forceinline__ bool has(int tile) const { return tile >= first && tile < end; }
  };
  __device__ __forceinline__ MapRow map_row(const Place<K>& place, int i) const {
    constexpr bool kRead = K::kSigns == Signs::Read;
    const SignMap<int>& map = call.map;
    const int step = K::Down::kFactor * place.first_row_tile + i;
    const int map_row = step + call.plan.rows.sign_tile;
    const int map_column = place.block * K::kMapTilesOfBlock + call.plan.columns.sign_tile / 4;
    const int64_t plane = int64_t(place.plane) * map.words_per_plane();
    const int tile = map_row * map.tile_columns + map_column;
    MapRow result;
    result.words = call.signs + plane + int64_t(tile) * SignMap<int>::kTileWords + lane();
    result.flags = call.signs + plane + map.flag_words() + tile;
    result.first = -map_column;
    result.end = map.tile_columns - map_column;
    bool rows_in = map_row >= 0 && map_row < map.tile_rows;
    if constexpr (!kRead) {  // what walks share is one's to write
      if (place.block + 1 < call.plan.blocks) result.end = min(result.end, K::kMapTilesOfBlock);
      const bool last = place.segment + 1 == call.plan.segments;
      rows_in &= last || i < K::Down::kFactor * place.row_tiles;
    }
    if (!rows_in) result.end = result.first;
    return result;
  }

  __device__ __forceinline__ void read_signs(const Place<K>& place, int i) {
    const MapRow map = map_row(place, i);
#pragma unroll
    for (int m = 0; m < K::kMapTiles; ++m) {
      negative[m] = map.has(m) ? __ldcs(map.words + m * SignMap<int>::kTileWords) : 0;
    }
    const bool mine = lane() < K::kMapTiles && map.has(lane());
    clamped_next = mine && map.flags[lane()];
  }

  // The words of the sign map that a step has at hand: four tiles of v at a time.
  struct MapWords {
    Walk& walk;
    MapRow map;
    uint32_t negative, clamped;
    const bool kClamped;

    __device__ __forceinline__ MapWords(Walk& walk_, const Place<K>& place, int i, bool clamps)
        : walk(walk_), negative(0), clamped(0), kClamped(clamps) {
      if constexpr (K::kSigns == Signs::Write) {
        map = walk.map_row(place, i);
        if (map.has(lane()) && lane() < K::kMapTiles) map.flags[lane()] = clamps;
      } else if constexpr (K::kSigns == Signs::Read) {
        if (clamps) map = walk.map_row(place, i);
      }
    }
    __device__ __forceinline__ void begin(int tile) {
      if (tile % 4 != 0) return;
      negative = clamped = 0;
      if constexpr (K::kSigns == Signs::Read) {
        const int m = tile / 4;
        negative = walk.negative[m];
        if (kClamped && map.has(m)) {
          clamped = __ldcs(map.words + walk.call.map.clamped_words() + m * SignMap<int>::kTileWords);
        }
      }
    }
    __device__ __forceinline__ void end(int tile) {
      if constexpr (K::kSigns == Signs::Write) {
        const int m = tile / 4;
        if ((tile % 4 != 3 && tile != K::kTiles - 1) || !map.has(m)) return;
        uint32_t* word = map.words + m * SignMap<int>::kTileWords;
        __stcs(word, negative ^ (walk.call.flip_negatives ? ~0u : 0u));
        if (kClamped) __stcs(word + walk.call.map.clamped_words(), clamped);
      }
    }
  };
};

}  // namespace lltm_jit
