// The host side of the strip kernels: the division into strips, and the choice of a kernel.
#pragma once

#include "stylegan/upfirdn2d/upfirdn2d_strip.cuh"

namespace lltm_jit {

// What a thread owns, of tensors whose columns lie side by side, and whose channels do. With twelve taps
// eight columns leave few registers, which pays where half of the taps meet zeros.
template <typename scalar_t, int kTaps, int kUp, int kDown>
struct PlaneShape {
  static constexpr int kVec = 1;
  static constexpr int kWide = sizeof(scalar_t) == 2 && kTaps <= (kUp == 2 ? 12 : 8) ? 8 : 4;
};
template <typename scalar_t, int kTaps, int kUp, int kDown>
struct PixelShape {
  static constexpr int kVec = kTaps <= 8 ? 4 : 2;
  static constexpr int kWide = 2;
};

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

// The rows of a strip: many, since each strip reads some kTaps rows more than it writes, while there are
// enough threads for the chip; fewer threads where it reads the most beside what it writes.
template <typename S>
int rows_of_strip(const StripArgs& args, int64_t strips_across) {
  constexpr bool kPixels = S::kVec > 1;
  constexpr bool kFewer =
      kPixels ? S::kDown == 2 || (S::kTaps > 8 && S::kUp == 1) : S::kDown == 2 && S::kTaps <= 8;
  constexpr int64_t kWantedThreads = 132 * (kPixels ? (kFewer ? 960 : 1024) : kFewer ? 400 : 512);
  constexpr int kMostRows = 128, kLeastRows = 4 * S::kUp;
  int rows = kMostRows;
  while (rows > kLeastRows &&
         (rows / 2 >= args.vertical.out ||
          strips_across * ceil_div(args.vertical.out, rows) * args.lanes < kWantedThreads)) {
    rows /= 2;
  }
  return rows;
}

// cudaErrorInvalidConfiguration, and nothing is launched, where the chip has too little shared memory or
// there are too many strips.
template <typename S>
cudaError_t launch_strips(const Upfirdn2dArgs& call, cudaStream_t stream) {
  using scalar_t = typename S::scalar_t;
  StripArgs args{};
  args.call = call;
  args.horizontal = strip_axis(call.horizontal);
  args.vertical = strip_axis(call.vertical);
  args.exact = call.horizontal.taps == S::kTaps && call.vertical.taps == S::kTaps &&
               args.horizontal.shift == 0 && args.vertical.shift == 0;
  const bool pixels = S::kVec > 1;
  args.channels = pixels ? static_cast<int>(call.channels) : 1;
  args.x_plane = call.vertical.in * call.horizontal.in * args.channels;
  args.y_plane = call.vertical.out * call.horizontal.out * args.channels;
  args.wide_stores = call.horizontal.out % S::kWide == 0 &&
                     aligned(min(S::kWide * int(sizeof(scalar_t)), kAccessBytes), call.y);
  args.async = aligned(4, call.x) && call.horizontal.in * sizeof(scalar_t) % 4 == 0;
  // Of few taps, 128 bytes of channels a group. With more, 64: then more of the columns that a group
  // reads are its own.
  constexpr int kMostChannelLanes = (S::kTaps <= 8 ? 128 : 64) / (sizeof(scalar_t) * S::kVec);
  args.channel_lanes =
      pixels ? round_up_to_power(ceil_div(args.channels, S::kVec), kMostChannelLanes) : 1;
  const int most_lanes_x = pixels ? kStripThreads / args.channel_lanes : 32;
  // Narrow images leave some lanes idle: groups of fewer have more columns of others to copy.
  const int least_lanes_x = pixels ? max(32 / args.channel_lanes, 1) : 4;
  const int lanes_x =
      max(least_lanes_x, round_up_to_power(ceil_div(call.horizontal.out, S::kWide), most_lanes_x));
  args.lanes = lanes_x * args.channel_lanes;
  const int columns = (lanes_x - 1) * S::kStep + S::kWindow;
  constexpr int kEach = S::kPiece / sizeof(scalar_t);
  int read = 0;  // bytes, of which the last may be of no use
  if (pixels) {
    args.row_pieces = columns * args.channel_lanes * S::kVec / kEach;
    args.piece_step = args.lanes / (args.channel_lanes * S::kVec / kEach) * args.channels;
  } else {
    args.row_pieces = ceil_div(columns + 1, kEach);
    args.piece_step = args.lanes * kEach;
    read = (lanes_x - 1) * S::kStep * int(sizeof(scalar_t)) + S::kLoads * S::kLoadBytes;
  }
  args.lane_pieces = ceil_div(args.row_pieces, args.lanes);
  args.row_bytes = ceil_div(max(args.lane_pieces * args.lanes * S::kPiece, read), 16) * 16;
  args.tiles_c = pixels ? ceil_div(args.channels, args.channel_lanes * S::kVec) : 1;
  args.tiles_x = static_cast<int>(ceil_div(call.horizontal.out, int64_t(lanes_x) * S::kWide));
  const int64_t planes = pixels ? call.batch : call.batch * call.channels;
  const int64_t across = planes * args.tiles_c * args.tiles_x;
  args.rows = rows_of_strip<S>(args, across);
  args.tiles_y = static_cast<int>(ceil_div(call.vertical.out, int64_t(args.rows)));
  const int64_t jobs = across * args.tiles_y;
  if (jobs >= int64_t(1) << 31) return cudaErrorInvalidConfiguration;
  args.jobs = static_cast<int>(jobs);
  const int groups = kStripThreads / args.lanes;
  int shared = groups * kStripStages * kStripRows * args.row_bytes;
  // The taps stand in shared memory too, and both together need asking for beyond 48 KB, which launch()
  // does for this part alone.
  constexpr int kUnasked = 48 * 1024;
  if (shared + int(sizeof(FilterTaps<S::kTaps>)) > kUnasked) shared = max(shared, kUnasked + 16);
  int most_shared = 0;
  const auto ask = [](int device, int* bytes) {
    return cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  };
  if (const cudaError_t error = ask_once(ask, &most_shared); error != cudaSuccess) return error;
  if (shared + int(sizeof(FilterTaps<S::kTaps>)) > most_shared) {
    return cudaErrorInvalidConfiguration;
  }
  return launch(strip_kernel<S>, static_cast<unsigned>(ceil_div(jobs, int64_t(groups))),
                kStripThreads, shared, stream, args);
}

// The kernel whose taps are the fewest that suffice. kVec and kWide are those of `Choose`.
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

}  // namespace lltm_jit
