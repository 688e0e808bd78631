// The host side of the strip kernels: the division into strips, and the choice of a kernel.
#pragma once

#include "stylegan/upfirdn2d/cuda/strip.cuh"

namespace lltm_jit {

inline int round_up_to_power(int64_t n, int most) {
  int power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

inline StripAxis strip_axis(const UpfirdnAxis& axis) {
  // Note [Phases of two]
  const int shift = axis.up == 2 ? static_cast<int>(axis.pad & 1) : 0;
  return {static_cast<int>(axis.in), static_cast<int>(axis.out),
          static_cast<int>(-(axis.pad + shift) / axis.up), shift, static_cast<int>(axis.taps)};
}

// The arguments that follow from the call alone. False if there are too many planes.
inline bool begin_args(const Upfirdn2dArgs& call, StripArgs* args) {
  args->call = call;
  args->horizontal = strip_axis(call.horizontal);
  args->vertical = strip_axis(call.vertical);
  args->channels = call.channels_last ? static_cast<int>(call.channels) : 1;
  args->x_plane = call.vertical.in * call.horizontal.in * args->channels;
  args->y_plane = call.vertical.out * call.horizontal.out * args->channels;
  const int64_t planes = call.channels_last ? call.batch : call.batch * call.channels;
  args->planes = static_cast<int>(planes);
  return planes < int64_t(1) << 31;
}

// The number of rows of a strip: half of `most` until the strips, of which `across` are side by side, are as
// many as are wanted.
inline int fewest_rows(int most, int least, int64_t height, int64_t across, int64_t wanted) {
  int rows = most;
  while (rows > least &&
         (rows / 2 >= height || across * ceil_div(height, int64_t(rows)) < wanted)) {
    rows /= 2;
  }
  return rows;
}

// Divides the columns into strips of `rows` rows. False if there are too many.
inline bool divide_rows(StripArgs* args, int64_t across, int rows) {
  args->rows = rows;
  args->tiles_y = static_cast<int>(ceil_div(args->call.vertical.out, int64_t(rows)));
  const int64_t jobs = across * args->tiles_y;
  args->jobs = static_cast<int>(jobs);
  return jobs < int64_t(1) << 31;
}

// Note [Waves]
// All blocks do the same work, so the chip idles while a last wave of few blocks runs. With many
// taps, each strip reads and filters about kTaps rows more than it writes. So strips are then as
// high as leaves work for the whole chip, and at (16, 512, 64, 64) the registers are limited so
// that one wave, or two full ones, take all blocks. With few taps there are many blocks.
template <typename S>
int rows_of_strip(const StripArgs& args, int64_t teams_across) {
  constexpr bool kManyPixels = S::kVec > 1 && S::kTaps > 8;
  constexpr int64_t kWantedThreads = 132 * (kManyPixels ? 240 : 480);
  constexpr bool kLarge = sizeof(typename S::scalar_t) == 2 || S::kUp * S::kDown == 2;
  constexpr int kMostRows = S::kTaps > 8 ? 128 : kLarge ? 32 : 16;
  return fewest_rows(kMostRows, 4 * S::kUp, args.vertical.out, teams_across * args.team,
                     kWantedThreads);
}

// Whether a block has room for `shared` bytes beside its kernel's static ones. More than 48 KB together
// must be requested, which launch() does if `shared` alone is more: so it may raise `shared`.
inline bool fit_shared_memory(int of_kernel, int* shared) {
  constexpr int kUnasked = 48 * 1024;
  if (*shared + of_kernel <= kUnasked) return true;
  *shared = max(*shared, kUnasked + 16);
  int most = 0;
  const auto ask = [](int device, int* bytes) {
    return cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  };
  return ask_once(ask, &most) == cudaSuccess && *shared + of_kernel <= most;
}

// Extends rows to the length that boxes need, and makes the map of x. Note [Rows in boxes]
template <typename S>
bool make_boxes(CUtensorMap* map, StripArgs* args) {
  using scalar_t = typename S::scalar_t;
  const Upfirdn2dArgs& call = args->call;
  const int pixel = S::kVec > 1 ? args->channel_lanes * S::kVec : 1;  // elements
  const int pixel_bytes = pixel * int(sizeof(scalar_t)), step = kBoxAlignment / S::kRows;
  args->row_bytes = ceil_div(args->row_bytes, step) * step;
  while (args->row_bytes % pixel_bytes != 0) args->row_bytes += step;
  const int columns = args->row_bytes / pixel_bytes, groups = args->team / args->lanes;
  const int64_t width = call.horizontal.in, height = call.vertical.in;
  if constexpr (S::kVec > 1) {
    return encode_dense_map<scalar_t, 4>(map, call.x, {call.channels, width, height, args->planes},
                                         {pixel, columns, S::kRows, 1});
  } else {
    return encode_dense_map<scalar_t, 3>(map, call.x, {width, height, args->planes},
                                         {columns, S::kRows, groups});
  }
}

// How rows of x get into shared memory, and where a window begins in a row there.
template <typename S>
void choose_loads(StripArgs& args, int architecture) {
  using scalar_t = typename S::scalar_t;
  const int64_t row_bytes = args.call.horizontal.in * args.channels * sizeof(scalar_t);
  args.boxes = S::kBoxes && architecture >= 90 && row_bytes % 16 == 0 && aligned(16, args.call.x) &&
               map_encoder();
  args.async = aligned(4, args.call.x) && row_bytes % 4 == 0;
  if (S::kVec > 1) return;
  // The copy engine's boxes begin at multiples of 16 bytes, copies by threads at whole words.
  const int grain = args.boxes ? 16 : args.async ? 4 : sizeof(scalar_t);
  const int lead = (args.horizontal.start & 15) * int(sizeof(scalar_t)) & (grain - 1);
  args.lead = lead / int(sizeof(scalar_t));
  args.odd = lead % 4 != 0;
  args.skip = lead / S::kLoadBytes * S::kLoadBytes;
  args.words = (lead - args.skip) / 4;
}

// The columns of x that a group of this many lanes along a row reads.
template <typename S>
int columns_of(int lanes_x) {
  return (lanes_x - 1) * S::kStep + S::kWindow;
}

// The threads of groups and teams.
template <typename S>
void choose_lanes(StripArgs& args) {
  constexpr bool kPixels = S::kVec > 1;
  // The channels of a group. With fewer channels it has more columns, and shares fewer with its neighbours.
  constexpr int kMostChannelLanes =
      (S::kTaps <= 8 ? 256 : 128) / (sizeof(typename S::scalar_t) * S::kVec);
  args.channel_lanes =
      kPixels ? round_up_to_power(ceil_div(args.channels, S::kVec), kMostChannelLanes) : 1;
  int most_lanes_x = kPixels ? kStripThreads / args.channel_lanes : 32;
  constexpr int kMostOfBox = 256 - 32;  // elements on an axis, less the rounding
  while (args.boxes && columns_of<S>(most_lanes_x) > kMostOfBox) most_lanes_x /= 2;
  // In narrow images some lanes idle, because smaller groups would copy more of their neighbours' columns.
  const int least_lanes_x = kPixels ? max(32 / args.channel_lanes, 1) : 4;
  const int lanes_x =
      max(least_lanes_x, round_up_to_power(ceil_div(args.horizontal.out, S::kWide), most_lanes_x));
  args.lanes = lanes_x * args.channel_lanes;
  args.team = max(args.lanes, 32);
  // Boxes of few taps are so small that the engine's time per box counts, so a block's boxes are one.
  if (args.boxes && !kPixels && S::kTaps <= 8 && args.planes >= 8 * kStripThreads / args.lanes) {
    args.team = kStripThreads;
  }
}

// The layout of a stage, and the map of x if there are boxes. False if the engine cannot take them.
template <typename S>
bool lay_out_stage(StripArgs& args, CUtensorMap* map) {
  constexpr int kBytes = sizeof(typename S::scalar_t), kEach = S::kPiece / kBytes;
  const int lanes_x = args.lanes / args.channel_lanes, columns = columns_of<S>(lanes_x);
  const int pixel = args.channel_lanes * S::kVec;  // elements
  int read = 0;                                    // bytes; the last ones may not be needed
  if (S::kVec > 1) {
    args.row_pieces = columns * pixel / kEach;
    args.piece_step = args.lanes / (pixel / kEach) * args.channels;
  } else {
    args.row_pieces = ceil_div(columns + 1, kEach);
    args.piece_step = args.lanes * kEach;
    read = (lanes_x - 1) * S::kStep * kBytes + S::kLoads * S::kLoadBytes + args.skip;
  }
  args.lane_pieces = ceil_div(args.row_pieces, args.lanes);
  if (args.boxes) {
    args.row_bytes = max((columns + args.lead) * pixel * kBytes, read);
    if (!make_boxes<S>(map, &args)) return false;
  } else {
    args.row_bytes = ceil_div(max(args.lane_pieces * args.lanes * S::kPiece, read), 16) * 16;
  }
  args.stage_bytes = args.team / args.lanes * S::kRows * args.row_bytes;
  return true;
}

// Divides the images into strips. False if there are too many.
template <typename S>
bool divide_into_strips(StripArgs& args) {
  const int64_t columns = int64_t(args.lanes / args.channel_lanes) * S::kWide;
  const int64_t groups = args.team / args.lanes;  // per team
  args.tiles_c = S::kVec > 1 ? ceil_div(args.channels, args.channel_lanes * S::kVec) : 1;
  args.tiles_x = static_cast<int>(ceil_div(args.call.horizontal.out, columns));
  const int64_t across = ceil_div(int64_t(args.planes), groups) * args.tiles_c * args.tiles_x;
  return divide_rows(&args, across, rows_of_strip<S>(args, across));
}

// Launches nothing and returns cudaErrorInvalidConfiguration if the chip has too little shared
// memory or there are too many strips.
template <typename S>
cudaError_t launch_strips(const Upfirdn2dArgs& call, cudaStream_t stream) {
  StripArgs args{};
  if (!begin_args(call, &args)) return cudaErrorInvalidConfiguration;
  args.exact = call.horizontal.taps == S::kTaps && call.vertical.taps == S::kTaps &&
               args.horizontal.shift == 0 && args.vertical.shift == 0;
  args.wide_stores =
      call.horizontal.out % S::kWide == 0 &&
      aligned(min(S::kWide * int(sizeof(typename S::scalar_t)), kAccessBytes), call.y);
  int architecture = 0;
  LLTM_JIT_TRY(code_architecture(strip_kernel<S>, &architecture));
  CUtensorMap map{};
  choose_loads<S>(args, architecture);
  choose_lanes<S>(args);
  if (!lay_out_stage<S>(args, &map) || !divide_into_strips<S>(args)) {
    return cudaErrorInvalidConfiguration;
  }
  const int teams = kStripThreads / args.team;
  int shared = teams * S::kStages * args.stage_bytes;
  constexpr int kStatic =
      sizeof(FilterTaps<S::kTaps>) + sizeof(CopyBarrier) * S::kBarriers + kBoxAlignment;
  if (!fit_shared_memory(kStatic, &shared)) return cudaErrorInvalidConfiguration;
  return launch(strip_kernel<S>,
                static_cast<unsigned>(ceil_div(int64_t(args.jobs), int64_t(teams))), kStripThreads,
                shared, stream, args, map);
}

// Launches the kernel with the fewest taps that suffice; `Choose` gives kVec and kWide.
template <typename scalar_t, int kUp, int kDown, template <typename, int, int, int> class Choose>
cudaError_t launch_strips_by_taps(const Upfirdn2dArgs& call, cudaStream_t stream) {
  const StripAxis x = strip_axis(call.horizontal), y = strip_axis(call.vertical);
  const int taps = max(x.taps + x.shift, y.taps + y.shift);
  const auto run = [&](auto taps_) {
    constexpr int kTaps = decltype(taps_)::value;
    using Shape = Choose<scalar_t, kTaps, kUp, kDown>;
    return launch_strips<Strip<scalar_t, kUp, kDown, kTaps, Shape::kVec, Shape::kWide>>(call,
                                                                                        stream);
  };
  using std::integral_constant;
  if (taps <= 4) return run(integral_constant<int, 4>{});
  if (taps <= 8) return run(integral_constant<int, 8>{});
  if (taps <= 12) return run(integral_constant<int, 12>{});
  return run(integral_constant<int, 24>{});
}

template <typename scalar_t, template <typename, int, int, int> class Choose>
cudaError_t launch_strips_as(const Upfirdn2dArgs& call, cudaStream_t stream) {
  if (call.horizontal.up == 2) return launch_strips_by_taps<scalar_t, 2, 1, Choose>(call, stream);
  if (call.horizontal.down == 2) return launch_strips_by_taps<scalar_t, 1, 2, Choose>(call, stream);
  return launch_strips_by_taps<scalar_t, 1, 1, Choose>(call, stream);
}

template <template <typename, int, int, int> class Choose>
cudaError_t launch_strips_by_type(const Upfirdn2dArgs& call, cudaStream_t stream) {
  switch (call.type) {
    case ElementType::Half:
      return launch_strips_as<Half, Choose>(call, stream);
    case ElementType::BFloat16:
      return launch_strips_as<BFloat16, Choose>(call, stream);
    default:
      return launch_strips_as<float, Choose>(call, stream);
  }
}

}  // namespace lltm_jit
