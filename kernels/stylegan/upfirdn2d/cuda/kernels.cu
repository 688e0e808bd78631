// The CUDA kernels of upfirdn2d for any factors, filters and types, and the choice among all kernels.
#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
#include "stylegan/upfirdn2d/cuda/direct.cuh"

namespace lltm_jit {

// Defined in planes.cu, pixels.cu and bands.cu. They launch nothing and return
// cudaErrorInvalidConfiguration if the kernel does not fit.
cudaError_t launch_planes(const Upfirdn2dArgs& call, cudaStream_t stream);
cudaError_t launch_pixels(const Upfirdn2dArgs& call, cudaStream_t stream);
cudaError_t launch_bands(const Upfirdn2dArgs& call, cudaStream_t stream);

namespace {

// Note [Which kernel]
// Strips run if both axes have the factors (1, 1), (2, 1) or (1, 2) and at most 8 taps, or 24 if the filter
// is separable; not in double. An image or plane must be below 2^31 elements, with padding and inserted
// zeros, so that its offsets have 32 bits; tensors may be larger. Of these calls, planes of the 16-bit
// types without upsampling run on tensor cores if the operands fit: Note [Bands]. Any other separable
// filter is applied in tiles, one axis after the other. All other filters are applied directly, one result
// per thread.

bool has_strip_kernel(const Upfirdn2dArgs& args) {
  const UpfirdnAxis &x = args.horizontal, &y = args.vertical;
  if (args.type == ElementType::Double || x.up != y.up || x.down != y.down || x.up * x.down > 2) {
    return false;
  }
  const auto taps = [](const UpfirdnAxis& axis) {
    return axis.taps + (axis.up == 2 ? axis.pad & 1 : 0);
  };
  if (max(taps(x), taps(y)) > (args.separable ? 24 : 8)) return false;
  constexpr int64_t kMost = int64_t(1) << 31;
  const auto reach = [](const UpfirdnAxis& axis) {
    const int64_t pad = axis.pad < 0 ? -axis.pad : axis.pad;
    return max(axis.in * axis.up, axis.out * axis.down) + pad + 4096;
  };
  if (reach(x) >= kMost || reach(y) >= kMost) return false;
  if (!args.channels_last) return x.in * y.in < kMost && x.out * y.out < kMost;
  const int64_t of_piece = args.type == ElementType::Float ? 4 : 8;
  return args.channels % of_piece == 0 && aligned(kAccessBytes, args.x, args.y) &&
         x.in * y.in * args.channels < kMost && x.out * y.out * args.channels < kMost &&
         reach(x) * args.channels < kMost;
}

// The place of a result, in rows of `width` elements: pixels of `inner` channels.
struct Places {
  Divisor width, height, inner;
  Places(const Upfirdn2dArgs& args, int64_t inner_, int64_t numbers)
      : width(args.horizontal.out * inner_, numbers),
        height(args.vertical.out, numbers),
        inner(inner_, numbers) {}
};

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads)
    direct_kernel(const __grid_constant__ Upfirdn2dArgs args, const __grid_constant__ Places places,
                  int64_t numel) {
  wait_for_predecessor();
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += step) {
    int64_t place = i;
    int64_t row = places.width.divide(place);
    const int64_t plane = places.height.divide(row);
    const int64_t ox = places.inner.divide(place);
    static_cast<scalar_t*>(args.y)[i] =
        from_opmath<scalar_t>(direct_sum<scalar_t>(args, plane, place, row, ox));
  }
}

// Note [Tiles]
// A tile is kTileWidth neighbouring results of each of `rows` rows. The horizontal sums of its
// input rows are computed into shared memory, in the arithmetic type; the vertical sums follow.
constexpr int kTileWidth = 32;
constexpr int kTileBytes = 48 * 1024;

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads)
    tile_kernel(const __grid_constant__ Upfirdn2dArgs args, const __grid_constant__ Places places,
                int64_t tiles, int64_t tiles_x, int rows) {
  using opmath = opmath_t<scalar_t>;
  extern __shared__ __align__(16) char shared[];
  auto* sums = reinterpret_cast<opmath*>(shared);
  wait_for_predecessor();
  const int lane = threadIdx.x % kTileWidth, warp = threadIdx.x / kTileWidth;
  constexpr int kWarps = kThreads / kTileWidth;
  const int64_t inner = places.inner.divisor, width = places.width.divisor;
  const UpfirdnAxis& y = args.vertical;
  const int64_t tiles_y = ceil_div(y.out, rows);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t place = tile % tiles_x * kTileWidth + lane;
    const int64_t first = tile / tiles_x % tiles_y * rows;
    const int64_t plane = tile / tiles_x / tiles_y;
    const int64_t last = min(first + rows, y.out) - 1;
    const TapRange top(y, first), bottom(y, last);
    const int64_t end = min(bottom.index + max(bottom.count, int64_t(0)), y.in);
    const int64_t channel = place % inner;
    const TapRange x(args.horizontal, place / inner);
    const scalar_t* source = plane_of<scalar_t>(args, plane, channel);
    if (place < width) {
      for (int64_t i = top.index + warp; i < end; i += kWarps) {
        sums[(i - top.index) * kTileWidth + lane] =
            row_sum(args, source + i * args.horizontal.in * inner, inner, x, 0);
      }
    }
    __syncthreads();
    if (place < width) {
      for (int64_t oy = first + warp; oy <= last; oy += kWarps) {
        const TapRange taps(y, oy);
        opmath sum = 0;
        for (int64_t k = 0; k < taps.count; ++k) {
          sum += vertical_tap<opmath>(args, taps.first + k * y.up) *
                 sums[(taps.index - top.index + k) * kTileWidth + lane];
        }
        static_cast<scalar_t*>(args.y)[(plane * y.out + oy) * width + place] =
            from_opmath<scalar_t>(sum);
      }
    }
    __syncthreads();
  }
}

// The most output rows of a tile whose input rows fit in shared memory, up to 32; 0 if not one fits.
int rows_of_tile(const UpfirdnAxis& y, int64_t row_bytes) {
  for (int rows = 32; rows > 0; rows /= 2) {
    const int64_t input_rows = ((rows - 1) * y.down + y.taps - 1) / y.up + 2;
    if (input_rows * row_bytes <= kTileBytes) return rows;
  }
  return 0;
}

template <typename scalar_t>
cudaError_t launch_general(const Upfirdn2dArgs& args, cudaStream_t stream) {
  const int64_t inner = args.channels_last ? args.channels : 1;
  const int64_t planes = args.channels_last ? args.batch : args.batch * args.channels;
  const UpfirdnAxis& y = args.vertical;
  const int64_t width = args.horizontal.out * inner, numel = planes * y.out * width;
  const Places places(args, inner, numel);
  constexpr int64_t kMostBlocks = 148 * 32;
  const int64_t row_bytes = kTileWidth * sizeof(opmath_t<scalar_t>);
  const int rows = args.separable && y.taps > 1 ? rows_of_tile(y, row_bytes) : 0;
  if (rows == 0) {
    const int64_t blocks = min(ceil_div(numel, int64_t(kThreads)), kMostBlocks);
    return launch(direct_kernel<scalar_t>, static_cast<unsigned>(blocks), kThreads, 0, stream, args,
                  places, numel);
  }
  const int64_t tiles_x = ceil_div(width, int64_t(kTileWidth));
  const int64_t tiles = tiles_x * ceil_div(y.out, int64_t(rows)) * planes;
  const int64_t input_rows = ((rows - 1) * y.down + y.taps - 1) / y.up + 2;
  return launch(tile_kernel<scalar_t>, static_cast<unsigned>(min(tiles, kMostBlocks)), kThreads,
                static_cast<int>(input_rows * row_bytes), stream, args, places, tiles, tiles_x,
                rows);
}

}  // namespace

cudaError_t launch_upfirdn2d(const Upfirdn2dArgs& args, cudaStream_t stream) {
  if (has_strip_kernel(args)) {
    cudaError_t error = launch_bands(args, stream);
    if (error == cudaErrorInvalidConfiguration) {
      error = args.channels_last ? launch_pixels(args, stream) : launch_planes(args, stream);
    }
    if (error != cudaErrorInvalidConfiguration) return error;
  }
  return dispatch_floating(
      args.type, [&](auto scalar) { return launch_general<decltype(scalar)>(args, stream); });
}

}  // namespace lltm_jit
