// The LLTM cell's backward products in one launch, from the pre-activations' gradients dG (see
// pointwise.cu):
//   [dh, dx] = dG W      dW = dG^T [h, x]      db = column sums of dG
// The blocks divide the tiles of both products among them.
#include "rnn/cell_step/cuda/columns.cuh"
#include "rnn/cell_step/cuda/tile_gemm.cuh"
#include "rnn/cell_step/kernels.h"

namespace lltm_jit {
namespace {

constexpr int kProductThreads = 256;  // of all shapes here
// [dh, dx] = dG W: dG runs along k, W along n.
template <typename scalar_t, const LltmTile& kTile, int kGroups, int kStageBytes>
using InputGradient =
    TileShape<scalar_t, kTile.rows, kTile.columns, 32, kTile.columns, kGroups,
              kStageBytes / int(sizeof(scalar_t)), kMostStages, Along::K, Along::MN>;
template <typename scalar_t>
using MediumInputGradient = InputGradient<scalar_t, kMediumBackward, 8, 512>;
template <typename scalar_t>
using LargeInputGradient = InputGradient<scalar_t, kLargeBackward, 4, 256>;
// dW = dG^T [h, x]: both operands run along the tile's sides, and k is the batch.
template <typename scalar_t>
using WeightGradient =
    TileShape<scalar_t, kWeightGradient.rows, kWeightGradient.columns, 32, 16, 1,
              sizeof(scalar_t) == 8 ? 16 : 32, kMostStages, Along::MN, Along::MN>;

template <typename Shape, int kChunk>
__device__ void input_gradient_tile(const LltmProductsArgs& args, int64_t index, char* shared) {
  using scalar_t = typename Shape::scalar_t;
  const int hidden = int(args.hidden_size);
  const int first = args.grad_old_h ? 0 : hidden;  // columns that were asked for
  const int last = args.grad_input ? hidden + int(args.input_size) : hidden;
  const int column_tiles = ceil_div(last - first, Shape::kN);
  const int64_t row0 = index / column_tiles * Shape::kM;
  const int column0 = first + int(index % column_tiles) * Shape::kN;
  const auto* grad_pre = static_cast<const scalar_t*>(args.grad_pre);
  const auto* weights = static_cast<const scalar_t*>(args.weights);

  const auto grad_line = [&](int m) -> Line<scalar_t> {
    const bool inside = row0 + m < args.batch_size;
    return {grad_pre + (inside ? row0 + m : 0) * 3 * hidden, 1, inside};
  };
  const auto weights_line = [&](int n) -> Line<scalar_t> {
    const bool inside = column0 + n < last;
    return {weights + (inside ? column0 + n : 0), args.weights_stride, inside};
  };
  const auto tile = tile_gemm<Shape, kChunk>(shared, args.plan.backward_stages, 3 * hidden,
                                             grad_line, weights_line, [] {});

  tile.template store<kChunk / int(sizeof(scalar_t))>([&](int m, int n) -> scalar_t* {
    const int64_t row = row0 + m;
    const int column = column0 + n;
    if (row >= args.batch_size || column >= last) return nullptr;
    return column < hidden
               ? static_cast<scalar_t*>(args.grad_old_h) + row * hidden + column
               : static_cast<scalar_t*>(args.grad_input) + row * args.input_size + column - hidden;
  });
}

template <typename Shape, int kChunk>
__device__ void weight_gradient_tile(const LltmProductsArgs& args, int64_t index, char* shared) {
  using scalar_t = typename Shape::scalar_t;
  const int hidden = int(args.hidden_size), width = hidden + int(args.input_size);
  const int batch = int(args.batch_size);
  const int column_tiles = ceil_div(width, Shape::kN);
  const int row0 = int(index / column_tiles) * Shape::kM;  // of the weights
  const int column0 = int(index % column_tiles) * Shape::kN;
  const auto* grad_pre = static_cast<const scalar_t*>(args.grad_pre);
  const Columns<scalar_t> columns(args);

  const auto grad_line = [&](int m) -> Line<scalar_t> {
    const bool inside = row0 + m < 3 * hidden;
    return {grad_pre + (inside ? row0 + m : 0), 3 * hidden, inside};
  };
  const auto x_line = [&](int n) { return columns.column(column0 + n); };
  const auto tile =
      tile_gemm<Shape, kChunk>(shared, args.plan.backward_stages, batch, grad_line, x_line, [] {});

  tile.template store<kChunk / int(sizeof(scalar_t))>([&](int m, int n) -> scalar_t* {
    const int64_t row = row0 + m;
    if (row >= 3 * hidden || column0 + n >= width) return nullptr;
    return static_cast<scalar_t*>(args.grad_weights) + row * width + column0 + n;
  });
}

// A block sums 32 columns; each warp reads every eighth row of the batch.
template <typename scalar_t>
__device__ void bias_gradient_tile(const LltmProductsArgs& args, int64_t index, char* shared) {
  using opmath = opmath_t<scalar_t>;
  constexpr int kWarps = kProductThreads / 32;
  const int columns = 3 * int(args.hidden_size);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = int(index) * 32 + lane;
  const auto* grad_pre = static_cast<const scalar_t*>(args.grad_pre) + column;
  auto* partial = reinterpret_cast<opmath*>(shared);
  wait_for_predecessor();
  opmath sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int row = warp; row < args.batch_size; row += kWarps) {
      sum += to_opmath(grad_pre[int64_t(row) * columns]);
    }
  }
  partial[warp * 32 + lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (int other = 1; other < kWarps; ++other) sum += partial[other * 32 + lane];
  static_cast<scalar_t*>(args.grad_bias)[column] = from_opmath<scalar_t>(sum);
}

// The work of each block: first the tiles of [dh, dx], which take longest, then those of db and dW.
struct ProductTiles {
  int64_t input, bias, weight;
};

template <typename InputShape, typename WeightShape, int kChunk>
__global__ void __launch_bounds__(kProductThreads, 2)
    lltm_products_kernel(const __grid_constant__ LltmProductsArgs args, ProductTiles tiles) {
#if __CUDA_ARCH__ >= 800  // the plan's least architecture
  extern __shared__ __align__(16) char shared[];
  int64_t index = blockIdx.x;
  if (index < tiles.input) return input_gradient_tile<InputShape, kChunk>(args, index, shared);
  index -= tiles.input;
  if (index < tiles.bias) {
    return bias_gradient_tile<typename InputShape::scalar_t>(args, index, shared);
  }
  weight_gradient_tile<WeightShape, kChunk>(args, index - tiles.bias, shared);
#endif
}

template <typename InputShape, int kStageBytes, int kChunk>
cudaError_t launch_products(const LltmProductsArgs& args, cudaStream_t stream) {
  using WeightShape = WeightGradient<typename InputShape::scalar_t>;
  static_assert(is_as_planned<InputShape, kStageBytes>() &&
                is_as_planned<WeightShape, kStageBytes>());
  static_assert(InputShape::kThreads == kProductThreads &&
                WeightShape::kThreads == kProductThreads);
  const int64_t rows = 3 * args.hidden_size, width = args.hidden_size + args.input_size;
  const ProductTiles count{
      .input =
          ceil_div(args.batch_size, InputShape::kM) * ceil_div(args.grad_columns, InputShape::kN),
      .bias = args.grad_bias ? ceil_div(rows, 32) : 0,
      .weight = args.grad_weights
                    ? ceil_div(rows, WeightShape::kM) * ceil_div(width, WeightShape::kN)
                    : 0,
  };
  const int64_t blocks = count.input + count.bias + count.weight;
  if (blocks == 0) return cudaSuccess;
  const int stages = args.plan.backward_stages;
  const int input_bytes = count.input > 0 ? InputShape::shared_bytes(stages) : 0;
  return launch(lltm_products_kernel<InputShape, WeightShape, kChunk>, unsigned(blocks),
                kProductThreads, std::max(input_bytes, WeightShape::shared_bytes(stages)), stream,
                args, count);
}

template <typename scalar_t, int kChunk>
cudaError_t launch_planned_products(const LltmProductsArgs& args, cudaStream_t stream) {
  switch (args.plan.backward) {
    case LltmBackwardKernel::Medium:
      return launch_products<MediumInputGradient<scalar_t>, kMediumBackwardStageBytes, kChunk>(
          args, stream);
    case LltmBackwardKernel::Large:
      if constexpr (kChunk == kAccessBytes) {
        return launch_products<LargeInputGradient<scalar_t>, kLargeBackwardStageBytes, kChunk>(
            args, stream);
      }
      break;
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_lltm_products(const LltmProductsArgs& args, cudaStream_t stream) {
  return dispatch_floating(args.type, [&](auto scalar) {
    using scalar_t = decltype(scalar);
    if constexpr (sizeof(scalar_t) > 2) {
      if (!args.aligned) return launch_planned_products<scalar_t, sizeof(scalar_t)>(args, stream);
    }
    return launch_planned_products<scalar_t, kAccessBytes>(args, stream);
  });
}

}  // namespace lltm_jit
