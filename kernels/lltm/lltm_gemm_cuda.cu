// The whole LLTM cell in one launch, and its backward products in one more.
//
// Forward: pre-activations, bias, activations and the new state, with h and x read where they are;
// no concatenation, no transposed copy, no pre-activations in memory.
// Backward, from the gradients of the pre-activations dG (see lltm_cuda.cu):
//   [dh, dx] = dG W      dW = dG^T [h, x]      db = column sums of dG
// in a single launch whose blocks divide the tiles of both products.
#include "core/tile_gemm.cuh"
#include "lltm/lltm.h"
#include "lltm/lltm_dispatch.cuh"
#include "lltm/lltm_math.h"

namespace lltm_jit {
namespace {

// ------------------------------------------------------------------------------------- forward --

// kUnits hidden units of kM batch rows: the tile has the three gates of each unit side by side.
template <typename scalar_t, int kM, int kUnits_, int kThreadM, int kThreadN, int kGroups,
          int kStageBytes, int kStages, Unit kUnit = Unit::Threads>
struct ForwardShape
    : TileShape<scalar_t, kM, 3 * kUnits_, kThreadM, kThreadN, kGroups,
                kStageBytes / int(sizeof(scalar_t)), kStages, Along::K, Along::K, kUnit> {
  static constexpr int kUnits = kUnits_;
};

// Note [Shapes of the forward tile]
// Each is the largest that still gives most SMs a tile. Four warps a scheduler hide the latency of
// shared memory; that leaves 128 registers a thread, of which 24 or 48 hold sums. On tensor cores
// a warp takes the whole tile, one eighth of k each.
template <typename scalar_t>
using MediumForward =
    std::conditional_t<sizeof(scalar_t) == 2,
                       ForwardShape<scalar_t, 32, 8, 4, 6, 8, 512, 4, Unit::TensorCores>,
                       ForwardShape<scalar_t, 32, 8, 4, 6, 16, 512, 4>>;
template <typename scalar_t>
using LargeForward =
    std::conditional_t<sizeof(scalar_t) == 2,
                       ForwardShape<scalar_t, 64, 16, 8, 12, 8, 256, 4, Unit::TensorCores>,
                       ForwardShape<scalar_t, 64, 16, 8, 6, 8, 512, 3>>;

// [old_h, input] without the concatenation.
template <typename scalar_t>
struct Columns {
  const scalar_t* old_h;
  const scalar_t* input;
  int64_t old_h_stride, input_stride;
  int hidden_size, width;

  template <typename Args>
  __device__ __forceinline__ explicit Columns(const Args& args)
      : old_h(static_cast<const scalar_t*>(args.old_h)),
        input(static_cast<const scalar_t*>(args.input)),
        old_h_stride(args.old_h_stride),
        input_stride(args.input_stride),
        hidden_size(int(args.hidden_size)),
        width(int(args.hidden_size + args.input_size)) {}

  struct Row {
    const scalar_t* old_h;  // null past the batch
    const scalar_t* input;  // hidden_size before the row's first element
    int hidden_size, width;
    __device__ __forceinline__ const scalar_t* at(int column) const {
      return old_h && column < width ? (column < hidden_size ? old_h : input) + column : nullptr;
    }
  };
  __device__ __forceinline__ Row row(int64_t row, int64_t rows) const {
    return {row < rows ? old_h + row * old_h_stride : nullptr,
            input + row * input_stride - hidden_size, hidden_size, width};
  }

  __device__ __forceinline__ Line<scalar_t> column(int column, int rows) const {
    if (column >= width) return {nullptr, 0, 0};
    return column < hidden_size ? Line<scalar_t>{old_h + column, old_h_stride, rows}
                                : Line<scalar_t>{input + column - hidden_size, input_stride, rows};
  }
};

// Activations, new state and stores of one unit of one row.
template <typename scalar_t, typename cell_t>
__device__ __forceinline__ void finish_unit(const LltmCellArgs& args, int64_t row, int unit,
                                            const opmath_t<scalar_t> (&pre)[3],
                                            opmath_t<scalar_t> old_cell) {
  using opmath = opmath_t<scalar_t>;
  const int64_t hidden = args.hidden_size, index = row * hidden + unit;
  const auto active = lltm_activate<opmath>({pre[0], pre[1], pre[2]});
  const auto state = lltm_new_state<opmath>(active, old_cell);
  static_cast<scalar_t*>(args.new_h)[index] = from_opmath<scalar_t>(state.h);
  static_cast<cell_t*>(args.new_cell)[index] = from_opmath<cell_t>(state.cell);
  if (args.gates) {
    auto* gates = static_cast<scalar_t*>(args.gates) + index + row * 2 * hidden;
    gates[0] = from_opmath<scalar_t>(active.input_gate);
    gates[hidden] = from_opmath<scalar_t>(active.output_gate);
    gates[2 * hidden] = from_opmath<scalar_t>(active.candidate_cell);
  }
}

template <typename Shape, typename cell_t, int kChunk>
__global__ void __launch_bounds__(Shape::kThreads) lltm_cell_kernel(LltmCellArgs args) {
  using scalar_t = typename Shape::scalar_t;
  using opmath = typename Shape::opmath;
  extern __shared__ __align__(16) char shared[];
  wait_for_predecessor();
  const int hidden = int(args.hidden_size), width = hidden + int(args.input_size);
  const int unit_tiles = (hidden + Shape::kUnits - 1) / Shape::kUnits;
  const int unit0 = int(blockIdx.x % unit_tiles) * Shape::kUnits;
  const int64_t row0 = int64_t(blockIdx.x / unit_tiles) * Shape::kM;
  const Columns<scalar_t> columns(args);
  const auto* weights = static_cast<const scalar_t*>(args.weights);

  tile_gemm<Shape, kChunk>(
      shared, width, [&](int m) { return columns.row(row0 + m, args.batch_size); },
      [&](int n) -> Line<scalar_t> {
        const int gate = n / Shape::kUnits, unit = unit0 + n % Shape::kUnits;
        const int64_t row = int64_t(gate) * hidden + unit;
        return {gate < 3 && unit < hidden ? weights + row * args.weights_stride : nullptr, 1,
                width};
      });

  const auto* bias = static_cast<const scalar_t*>(args.bias);
  for (int i = threadIdx.x; i < Shape::kM * Shape::kUnits; i += Shape::kThreads) {
    const int m = i / Shape::kUnits, u = i % Shape::kUnits;
    const int64_t row = row0 + m;
    const int unit = unit0 + u;
    if (row >= args.batch_size || unit >= hidden) continue;
    opmath pre[3];
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      pre[gate] = tile_value<Shape>(shared, m, gate * Shape::kUnits + u);
      if (bias) pre[gate] += to_opmath(bias[gate * hidden + unit]);
    }
    const auto* old_cell = static_cast<const cell_t*>(args.old_cell) + row * hidden + unit;
    finish_unit<scalar_t, cell_t>(args, row, unit, pre, to_opmath(*old_cell));
  }
}

// Note [Tiny cells]
// One hidden unit of 16 rows a block, so that even 128 units spread over the chip. Eight lanes
// share a row's sum; every load of a lane's first kBatch vectors is under way before the first
// product, so the kernel takes one round trip to memory and a few shuffles. (The 1 in the launch
// bounds tells the compiler that registers are to spare for that; it would save them otherwise.)
constexpr int kTinyRows = 16, kTinyLanes = 8;

template <typename scalar_t, typename cell_t, int kVec>
__global__ void __launch_bounds__(kTinyRows* kTinyLanes, 1)
    lltm_tiny_cell_kernel(LltmCellArgs args) {
  using opmath = opmath_t<scalar_t>;
  constexpr int kBatch = sizeof(scalar_t) == 2 ? 3 : 5;
  wait_for_predecessor();
  const int hidden = int(args.hidden_size), width = hidden + int(args.input_size);
  const int unit = int(blockIdx.x % hidden), lane = threadIdx.x % kTinyLanes;
  const int64_t row = int64_t(blockIdx.x / hidden) * kTinyRows + threadIdx.x / kTinyLanes;
  const bool row_inside = row < args.batch_size;  // else compute the last row, for nothing
  const Columns<scalar_t> columns(args);
  const auto* weights =
      static_cast<const scalar_t*>(args.weights) + int64_t(unit) * args.weights_stride;
  const int64_t gate_stride = int64_t(hidden) * args.weights_stride;
  const auto* bias = static_cast<const scalar_t*>(args.bias);
  const int64_t read_row = row_inside ? row : args.batch_size - 1;
  const auto x_row = columns.row(read_row, args.batch_size);
  const opmath old_cell =
      to_opmath(static_cast<const cell_t*>(args.old_cell)[read_row * hidden + unit]);
  opmath pre[3] = {};
  if (bias && lane == 0) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) pre[gate] = to_opmath(bias[gate * hidden + unit]);
  }

  for (int k0 = lane * kVec; k0 < width; k0 += kBatch * kTinyLanes * kVec) {
    Pack<scalar_t, kVec> x[kBatch], w[kBatch][3];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int k = k0 + i * kTinyLanes * kVec;
      const bool inside = k < width;  // else read the first column, for nothing
      const int column = inside ? k : 0;
      x[i] = load_or_zero<kVec>((column < hidden ? x_row.old_h : x_row.input) + column, inside);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        w[i][gate] = load_or_zero<kVec>(weights + gate * gate_stride + column, inside);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
#pragma unroll
        for (int gate = 0; gate < 3; ++gate) {
          pre[gate] += to_opmath(x[i].values[e]) * to_opmath(w[i][gate].values[e]);
        }
      }
    }
  }
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) {
#pragma unroll
    for (int offset = kTinyLanes / 2; offset > 0; offset /= 2) {
      pre[gate] += __shfl_xor_sync(0xffffffffu, pre[gate], offset);
    }
  }
  if (row_inside && lane == 0) finish_unit<scalar_t, cell_t>(args, row, unit, pre, old_cell);
}

// ------------------------------------------------------------------------------------ backward --

// Both shapes make 256 threads. [dh, dx] = dG W: dG runs along k, W along n.
template <typename scalar_t, int kT = std::max<int>(4, kAccessBytes / sizeof(scalar_t))>
using InputGradient =
    TileShape<scalar_t, 32, 4 * kT, 8, kT, 16, 512 / int(sizeof(scalar_t)), 3, Along::K, Along::MN>;
// dW = dG^T [h, x]: both run along the tile's sides, k is the batch.
template <typename scalar_t, int kT = std::max<int>(4, kAccessBytes / sizeof(scalar_t))>
using WeightGradient = TileShape<scalar_t, 64, 64, 8, kT, kT / 2, 32, 3, Along::MN, Along::MN>;

template <typename Shape, int kChunk>
__device__ void input_gradient_tile(const LltmProductsArgs& args, int64_t tile, char* shared) {
  using scalar_t = typename Shape::scalar_t;
  const int hidden = int(args.hidden_size);
  const int first = args.grad_old_h ? 0 : hidden;  // columns that somebody asked for
  const int last = args.grad_input ? hidden + int(args.input_size) : hidden;
  const int column_tiles = (last - first + Shape::kN - 1) / Shape::kN;
  const int64_t row0 = tile / column_tiles * Shape::kM;
  const int column0 = first + int(tile % column_tiles) * Shape::kN;
  const auto* grad_pre = static_cast<const scalar_t*>(args.grad_pre);
  const auto* weights = static_cast<const scalar_t*>(args.weights);

  tile_gemm<Shape, kChunk>(
      shared, 3 * hidden,
      [&](int m) -> Line<scalar_t> {
        const int64_t row = row0 + m;
        return {row < args.batch_size ? grad_pre + row * 3 * hidden : nullptr, 1, 3 * hidden};
      },
      [&](int n) -> Line<scalar_t> {
        return {column0 + n < last ? weights + column0 + n : nullptr, args.weights_stride,
                3 * hidden};
      });

  store_tile<Shape, kChunk / int(sizeof(scalar_t))>(shared, [&](int m, int n) -> scalar_t* {
    const int64_t row = row0 + m;
    const int column = column0 + n;
    if (row >= args.batch_size || column >= last) return nullptr;
    return column < hidden
               ? static_cast<scalar_t*>(args.grad_old_h) + row * hidden + column
               : static_cast<scalar_t*>(args.grad_input) + row * args.input_size + column - hidden;
  });
}

template <typename Shape, int kChunk>
__device__ void weight_gradient_tile(const LltmProductsArgs& args, int64_t tile, char* shared) {
  using scalar_t = typename Shape::scalar_t;
  using opmath = typename Shape::opmath;
  const int hidden = int(args.hidden_size), width = hidden + int(args.input_size);
  const int batch = int(args.batch_size);
  // Without grad_weights only the bias is wanted: the first column of tiles.
  const int column_tiles = args.grad_weights ? (width + Shape::kN - 1) / Shape::kN : 1;
  const int row0 = int(tile / column_tiles) * Shape::kM;  // of the weights
  const int column0 = int(tile % column_tiles) * Shape::kN;
  const auto* grad_pre = static_cast<const scalar_t*>(args.grad_pre);
  const Columns<scalar_t> columns(args);
  if (args.grad_weights) {
    tile_gemm<Shape, kChunk>(
        shared, batch,
        [&](int m) -> Line<scalar_t> {
          return {row0 + m < 3 * hidden ? grad_pre + row0 + m : nullptr, 3 * hidden, batch};
        },
        [&](int n) { return columns.column(column0 + n, batch); });
    store_tile<Shape, kChunk / int(sizeof(scalar_t))>(shared, [&](int m, int n) -> scalar_t* {
      const int64_t row = row0 + m;
      if (row >= 3 * hidden || column0 + n >= width) return nullptr;
      return static_cast<scalar_t*>(args.grad_weights) + row * width + column0 + n;
    });
  }
  const int m = row0 + threadIdx.x;
  if (args.grad_bias && column0 == 0 && threadIdx.x < Shape::kM && m < 3 * hidden) {
    opmath sum = 0;
    for (int k = 0; k < batch; ++k) sum += to_opmath(grad_pre[int64_t(k) * 3 * hidden + m]);
    static_cast<scalar_t*>(args.grad_bias)[m] = from_opmath<scalar_t>(sum);
  }
}

// Two blocks an SM, so that one computes while the other waits for memory; the fragments of other
// types than float leave no registers for that.
template <typename scalar_t, int kChunk>
__global__ void __launch_bounds__(256, std::is_same_v<scalar_t, float> ? 2 : 1)
    lltm_products_kernel(LltmProductsArgs args, int64_t input_tiles) {
  extern __shared__ __align__(16) char shared[];
  wait_for_predecessor();
  if (blockIdx.x < input_tiles) {
    input_gradient_tile<InputGradient<scalar_t>, kChunk>(args, blockIdx.x, shared);
  } else {
    weight_gradient_tile<WeightGradient<scalar_t>, kChunk>(args, blockIdx.x - input_tiles, shared);
  }
}

// ----------------------------------------------------------------------------------- launchers --

int64_t tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

template <typename Shape, typename cell_t, int kChunk>
cudaError_t launch_cell(const LltmCellArgs& args, cudaStream_t stream) {
  const int64_t blocks = tiles(args.batch_size, Shape::kM) * tiles(args.hidden_size, Shape::kUnits);
  return launch(lltm_cell_kernel<Shape, cell_t, kChunk>, unsigned(blocks), Shape::kThreads,
                Shape::kSharedBytes, stream, args);
}

template <typename scalar_t, typename cell_t, int kChunk>
cudaError_t launch_cell_by_size(const LltmCellArgs& args, cudaStream_t stream) {
  // See Note [Shapes of the forward tile]; 96 blocks occupy three quarters of a large chip.
  constexpr int64_t kEnoughBlocks = 96;
  const auto blocks = [&](int64_t rows, int64_t units) {
    return tiles(args.batch_size, rows) * tiles(args.hidden_size, units);
  };
  if constexpr (sizeof(scalar_t) < 8) {
    if constexpr (kChunk == kAccessBytes) {
      if (blocks(64, 16) >= kEnoughBlocks) {
        return launch_cell<LargeForward<scalar_t>, cell_t, kChunk>(args, stream);
      }
    }
    if (blocks(32, 8) >= kEnoughBlocks) {
      return launch_cell<MediumForward<scalar_t>, cell_t, kChunk>(args, stream);
    }
  }
  return launch(lltm_tiny_cell_kernel<scalar_t, cell_t, kChunk / int(sizeof(scalar_t))>,
                unsigned(blocks(kTinyRows, 1)), kTinyRows * kTinyLanes, 0, stream, args);
}

template <typename scalar_t, int kChunk>
cudaError_t launch_products(const LltmProductsArgs& args, cudaStream_t stream) {
  using ForInput = InputGradient<scalar_t>;
  using ForWeights = WeightGradient<scalar_t>;
  static_assert(ForInput::kThreads == 256 && ForWeights::kThreads == 256);
  const int64_t width = args.hidden_size + args.input_size;
  const int64_t columns =
      (args.grad_old_h ? args.hidden_size : 0) + (args.grad_input ? args.input_size : 0);
  const int64_t input_tiles = tiles(args.batch_size, ForInput::kM) * tiles(columns, ForInput::kN);
  const int64_t weight_columns = args.grad_weights ? width : (args.grad_bias ? 1 : 0);
  const int64_t weight_tiles =
      tiles(3 * args.hidden_size, ForWeights::kM) * tiles(weight_columns, ForWeights::kN);
  if (input_tiles + weight_tiles == 0) return cudaSuccess;
  return launch(lltm_products_kernel<scalar_t, kChunk>, unsigned(input_tiles + weight_tiles), 256,
                std::max(ForInput::kSharedBytes, ForWeights::kSharedBytes), stream, args,
                input_tiles);
}

}  // namespace

cudaError_t launch_lltm_cell(const LltmCellArgs& args, cudaStream_t stream) {
  return dispatch_lltm(args.type, args.cell_type, [&](auto scalar, auto cell) {
    using scalar_t = decltype(scalar);
    using cell_t = decltype(cell);
    if constexpr (sizeof(scalar_t) > 2) {
      if (!args.aligned)
        return launch_cell_by_size<scalar_t, cell_t, sizeof(scalar_t)>(args, stream);
    }
    return launch_cell_by_size<scalar_t, cell_t, kAccessBytes>(args, stream);
  });
}

cudaError_t launch_lltm_products(const LltmProductsArgs& args, cudaStream_t stream) {
  return dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    if constexpr (sizeof(scalar_t) > 2) {
      if (!args.aligned) return launch_products<scalar_t, sizeof(scalar_t)>(args, stream);
    }
    return launch_products<scalar_t, kAccessBytes>(args, stream);
  });
}

bool lltm_products_fit_device() {
  // The tiles' stages are laid out for the 227 KB a block of Hopper's and Blackwell's large chips.
  constexpr int kSharedBytes = 200 * 1024;
  int device = 0, bytes = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         bytes >= kSharedBytes;
}

}  // namespace lltm_jit
