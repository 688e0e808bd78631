// filtered_lrelu on CUDA cores, for any factors, filters and types, in one kernel.
//
// Note [Steps of a tile]
// A block makes a tile of y in one plane. All that the tile needs is in shared memory, in two buffers, a and b:
//   x -> a;  along the rows, up: a -> b;  along the columns, up, and the activation: b -> a;
//   along the columns, down: a -> b;  along the rows, down: b -> y.
// A filter that is not separable is one step: x -> b, up, activation: b -> a; down: a -> y.
// Neighbouring tiles both make the samples of v that both need; plan.cpp knows when that is too slow.
// A warp goes along a row, so that each thread computes the values of its column once.
#include "core/launch/launch.cuh"
#include "stylegan/filtered_lrelu/maths.h"
#include "stylegan/filtered_lrelu/plan.h"
#include "stylegan/filtered_lrelu/sign_map.h"

namespace lltm_jit {
namespace {

constexpr int kWarp = 32, kWarps = kThreads / kWarp;

// The tile that a block works on.
template <typename scalar_t>
struct Tile {
  using acc_t = opmath_t<scalar_t>;
  const FlrDirectArgs& args;
  const FlrTileLayout layout;
  int64_t plane;
  int y_row, y_column;  // the tile's first row and column
  int v_row, v_column;
  int x_row, x_column;
  acc_t *fu, *fd, *a, *b;

  __device__ Tile(const FlrDirectArgs& args_, unsigned char* shared)
      : args(args_), layout(flr_tile_layout(args_, args_.tile)) {
    const int across = ceil_div(args.out_w, args.tile.columns);
    const int tiles = across * ceil_div(args.out_h, args.tile.rows);
    plane = blockIdx.x / tiles;
    const int tile = blockIdx.x % tiles;
    y_row = tile / across * args.tile.rows;
    y_column = tile % across * args.tile.columns;
    v_row = y_row * args.down;
    v_column = y_column * args.down;
    x_row = phase_of(v_row, args.pad_y, args.up, 1).first;
    x_column = phase_of(v_column, args.pad_x, args.up, 1).first;
    fu = reinterpret_cast<acc_t*>(shared);
    fd = fu + layout.fu;
    a = fd + layout.fd;
    b = a + layout.a;
  }
};

// Calls function(column) for this lane's columns.
template <typename Function>
LLTM_JIT_DEVICE void for_columns(int columns, const Function& function) {
  for (int column = threadIdx.x % kWarp; column < columns; column += kWarp) function(column);
}

template <typename acc_t>
__device__ void load_taps(const FirFilter& filter, acc_t* taps) {
  const int count = flr_taps(filter);
  for (int i = threadIdx.x; i < count; i += kThreads) {
    taps[i] = filter.taps ? filter.taps[filter.flip ? i : count - 1 - i] : 1;
  }
}

template <typename scalar_t>
__device__ void load_x(const Tile<scalar_t>& tile, opmath_t<scalar_t>* target) {
  const FlrDirectArgs& args = tile.args;
  const int64_t channel = tile.plane % args.channels;
  const auto* x = static_cast<const scalar_t*>(args.x) +
                  tile.plane / args.channels * args.x_strides[0] + channel * args.x_strides[1];
  const opmath_t<scalar_t> bias =
      args.bias ? to_opmath(static_cast<const scalar_t*>(args.bias)[channel]) : 0;
  const int warp = threadIdx.x / kWarp;
  for_columns(tile.layout.x_w, [&](int i) {
    const int column = tile.x_column + i;
    const bool inside = column >= 0 && column < args.in_w;
    for (int k = warp; k < tile.layout.x_h; k += kWarps) {
      const int row = tile.x_row + k;
      target[k * tile.layout.x_w + i] =
          inside && row >= 0 && row < args.in_h
              ? to_opmath(x[row * args.x_strides[2] + column * args.x_strides[3]]) + bias
              : opmath_t<scalar_t>(0);
    }
  });
}

// The activation of a sample of v, which reads or writes its signs. Every lane of a warp calls it,
// with columns in the order of the lanes.
template <typename scalar_t>
struct Activation {
  using acc_t = opmath_t<scalar_t>;
  const Tile<scalar_t>& tile;
  SignMap<int64_t> map;
  uint32_t* signs;
  acc_t gain, slope, clamp;
  int end_row, end_column;  // where this block stops writing signs

  __device__ explicit Activation(const Tile<scalar_t>& tile_) : tile(tile_) {
    const FlrDirectArgs& args = tile.args;
    gain = static_cast<acc_t>(args.gain);
    slope = static_cast<acc_t>(args.slope);
    clamp = static_cast<acc_t>(args.clamp);
    if (args.mode == Signs::None) return;
    map = {args.sign_h, args.sign_w, args.sign_phase_y, args.sign_phase_x};
    signs = args.signs + tile.plane * map.words_per_plane();
    const bool last_row = tile.y_row + args.tile.rows >= args.out_h;
    const bool last_column = tile.y_column + args.tile.columns >= args.out_w;
    end_row = last_row ? args.mid_h : tile.v_row + args.tile.rows * args.down;
    end_column = last_column ? args.mid_w : tile.v_column + args.tile.columns * args.down;
  }

  // The column at which a row's first lane begins, so that the 32 columns of a warp lie in one map tile.
  __device__ int first_column() const {
    return tile.args.mode == Signs::Write ? -((tile.v_column + map.phase_x) % kWarp) : 0;
  }

  __device__ acc_t operator()(int row, int column, bool inside, acc_t sum) const {
    const FlrDirectArgs& args = tile.args;
    const acc_t u = gain * sum;
    if (args.mode == Signs::Read) {
      return u * derivative_at(args, map, signs, tile.v_row + row, tile.v_column + column, slope);
    }
    const Activated<acc_t> result = activate(u, slope, clamp);
    if (args.mode == Signs::Write) {
      row += tile.v_row;
      column += tile.v_column;
      const bool own = inside && row < end_row && column < end_column;
      write(row, column, own && result.negative, own && result.clamped);
    }
    return result.value;
  }

 private:
  // Combines the bits of a word, which neighbouring lanes and lanes 8 or 16 apart have.
  __device__ static uint32_t gathered(uint32_t bits) {
    for (const int lanes : {1, 8, 16}) bits |= __shfl_xor_sync(~0u, bits, lanes);
    return bits;
  }

  __device__ void write(int row, int column, bool negative, bool clamped) const {
    const int bit = map.row_bit(row) + map.column_bit(column);
    const uint32_t all_negative = gathered(uint32_t(negative) << bit);
    const uint32_t all_clamped = __any_sync(~0u, clamped) ? gathered(uint32_t(clamped) << bit) : 0;
    if ((threadIdx.x % kWarp & 25) != 0) return;  // lanes 0, 2, 4 and 6 go on
    uint32_t* word = signs + map.row_word(int64_t(row)) + map.column_word(column);
    if (all_negative) atomicOr(word, all_negative);
    if (!all_clamped) return;
    atomicOr(word + map.clamped_words(), all_clamped);
    signs[map.flag_words() + map.flag_row(int64_t(row)) + map.flag_column(column)] = 1;
  }
};

// Along the rows, up: [x_h, x_w] to [x_h, v_w].
template <typename scalar_t>
__device__ void up_along_rows(const Tile<scalar_t>& tile, const opmath_t<scalar_t>* source,
                              opmath_t<scalar_t>* target) {
  const FlrTileLayout& l = tile.layout;
  const FlrDirectArgs& args = tile.args;
  for_columns(l.v_w, [&](int column) {
    const Phase phase = phase_of(tile.v_column + column, args.pad_x, args.up, args.fu.width);
    const auto* taps = tile.fu + phase.tap;
    for (int row = threadIdx.x / kWarp; row < l.x_h; row += kWarps) {
      const auto* x = source + row * l.x_w + phase.first - tile.x_column;
      opmath_t<scalar_t> sum = 0;
      for (int k = 0; k < phase.count; ++k) sum += x[k] * taps[k * args.up];
      target[row * l.v_w + column] = sum;
    }
  });
}

// Along the columns, up, or on both axes, and the activation: [x_h, v_w] or [x_h, x_w] to [v_h, v_w].
template <bool kBoth, typename scalar_t>
__device__ void up_and_activate(const Tile<scalar_t>& tile, const opmath_t<scalar_t>* source,
                                opmath_t<scalar_t>* target) {
  const FlrTileLayout& l = tile.layout;
  const FlrDirectArgs& args = tile.args;
  const Activation<scalar_t> act(tile);
  const int lane = threadIdx.x % kWarp;
  for (int begin = act.first_column(); begin < l.v_w; begin += kWarp) {  // the same for all lanes
    const int column = begin + lane;
    const bool inside = column >= 0 && column < l.v_w;
    const Phase across = phase_of(tile.v_column + column, args.pad_x, args.up, args.fu.width);
    for (int row = threadIdx.x / kWarp; row < l.v_h; row += kWarps) {
      const Phase phase = phase_of(tile.v_row + row, args.pad_y, args.up, height_of(args.fu));
      const int x_row = phase.first - tile.x_row;
      opmath_t<scalar_t> sum = 0;
      if (inside && kBoth) {
        for (int k = 0; k < phase.count; ++k) {
          const auto* x = source + (x_row + k) * l.x_w + across.first - tile.x_column;
          const auto* taps = tile.fu + (phase.tap + k * args.up) * args.fu.width + across.tap;
          for (int i = 0; i < across.count; ++i) sum += x[i] * taps[i * args.up];
        }
      } else if (inside) {
        const auto* x = source + x_row * l.v_w + column;
        const auto* taps = tile.fu + phase.tap;
        for (int k = 0; k < phase.count; ++k) sum += x[k * l.v_w] * taps[k * args.up];
      }
      const auto value = act(row, column, inside, sum);
      if (inside) target[row * l.v_w + column] = value;
    }
  }
}

// Along the columns, down: [v_h, v_w] to [rows, v_w].
template <typename scalar_t>
__device__ void down_along_columns(const Tile<scalar_t>& tile, const opmath_t<scalar_t>* source,
                                   opmath_t<scalar_t>* target) {
  const int v_w = tile.layout.v_w;
  for_columns(v_w, [&](int column) {
    for (int row = threadIdx.x / kWarp; row < tile.args.tile.rows; row += kWarps) {
      const auto* v = source + row * tile.args.down * v_w + column;
      opmath_t<scalar_t> sum = 0;
      for (int k = 0; k < tile.layout.fd; ++k) sum += v[k * v_w] * tile.fd[k];
      target[row * v_w + column] = sum;
    }
  });
}

// Along the rows, down, or on both axes: [rows, v_w] or [v_h, v_w] to y.
template <bool kBoth, typename scalar_t>
__device__ void down_to_y(const Tile<scalar_t>& tile, const opmath_t<scalar_t>* source) {
  const FlrDirectArgs& args = tile.args;
  const int v_w = tile.layout.v_w, width = args.fd.width, height = kBoth ? args.fd.height : 1;
  const int rows = min(args.tile.rows, args.out_h - tile.y_row);
  auto* y = static_cast<scalar_t*>(args.y) + (tile.plane * args.out_h + tile.y_row) * args.out_w +
            tile.y_column;
  for_columns(min(args.tile.columns, args.out_w - tile.y_column), [&](int column) {
    for (int row = threadIdx.x / kWarp; row < rows; row += kWarps) {
      const auto* v = source + row * (kBoth ? args.down : 1) * v_w + column * args.down;
      opmath_t<scalar_t> sum = 0;
      for (int i = 0; i < height; ++i) {
        for (int k = 0; k < width; ++k) sum += v[i * v_w + k] * tile.fd[i * width + k];
      }
      y[int64_t(row) * args.out_w + column] = from_opmath<scalar_t>(sum);
    }
  });
}

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads) filtered_lrelu_kernel(FlrDirectArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Tile<scalar_t> tile(args, shared);
  wait_for_predecessor();
  load_taps(args.fu, tile.fu);
  load_taps(args.fd, tile.fd);
  if (args.fu.height == 0) {
    load_x(tile, tile.a);
    __syncthreads();
    up_along_rows(tile, tile.a, tile.b);
    __syncthreads();
    up_and_activate<false>(tile, tile.b, tile.a);
  } else {
    load_x(tile, tile.b);
    __syncthreads();
    up_and_activate<true>(tile, tile.b, tile.a);
  }
  __syncthreads();
  if (args.fd.height == 0) {
    down_along_columns(tile, tile.a, tile.b);
    __syncthreads();
    down_to_y<false>(tile, tile.b);
  } else {
    down_to_y<true>(tile, tile.a);
  }
}

}  // namespace

cudaError_t launch_filtered_lrelu(const FlrDirectArgs& args, cudaStream_t stream) {
  const int64_t tiles =
      ceil_div(args.out_h, args.tile.rows) * int64_t(ceil_div(args.out_w, args.tile.columns));
  const int64_t blocks = args.batch * args.channels * tiles;
  return dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    const int64_t bytes = flr_tile_layout(args, args.tile).total() * sizeof(opmath_t<scalar_t>);
    return launch(filtered_lrelu_kernel<scalar_t>, static_cast<unsigned>(blocks), kThreads,
                  static_cast<int>(bytes), stream, args);
  });
}

cudaError_t flr_describe_gpu(FlrGpu* gpu) {
  const auto ask = [](int device, FlrGpu* value) {
    LLTM_JIT_TRY(cudaDeviceGetAttribute(&value->shared_bytes,
                                        cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    LLTM_JIT_TRY(cudaDeviceGetAttribute(&value->sms, cudaDevAttrMultiProcessorCount, device));
    return code_architecture(filtered_lrelu_kernel<float>, &value->architecture);
  };
  return ask_once(ask, gpu);
}

}  // namespace lltm_jit
