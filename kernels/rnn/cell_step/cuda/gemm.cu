// The whole LLTM cell in one launch: product, bias, activations and the new state. h and x are read
// in place: no concatenation, no transposed copy, no pre-activations in memory.
#include "rnn/cell_step/cuda/columns.cuh"
#include "rnn/cell_step/cuda/dispatch.cuh"
#include "rnn/cell_step/cuda/finish.cuh"
#include "rnn/cell_step/cuda/tile_gemm.cuh"
#include "rnn/cell_step/kernels.h"

namespace lltm_jit {
namespace {

// The three gates of a hidden unit are neighbours.
template <typename scalar_t, const LltmTile& kTile, int kWarpM, int kGroups, int kStageBytes>
struct ForwardShape
    : TileShape<scalar_t, kTile.rows, 3 * kTile.columns, kWarpM, 3 * kTile.columns, kGroups,
                kStageBytes / int(sizeof(scalar_t)), kMostStages, Along::K, Along::K> {
  static constexpr int kUnits = kTile.columns;
};
template <typename scalar_t>
using MediumForward = ForwardShape<scalar_t, kMediumForward, 32, 8, 512>;
template <typename scalar_t>
using LargeForward = ForwardShape<scalar_t, kLargeForward, 32, 4, 256>;

// (__grid_constant__: lines refer to the arguments, which otherwise each thread would copy to its stack.)
template <typename Shape, typename cell_t, int kChunk>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    lltm_cell_kernel(const __grid_constant__ LltmCellArgs args) {
#if __CUDA_ARCH__ >= 800  // the plan's least architecture
  using scalar_t = typename Shape::scalar_t;
  using opmath = typename Shape::opmath;
  extern __shared__ __align__(16) char shared[];
  const int hidden = int(args.hidden_size), width = hidden + int(args.input_size);
  const int unit_tiles = ceil_div(hidden, Shape::kUnits);
  const int unit0 = int(blockIdx.x % unit_tiles) * Shape::kUnits;
  const int64_t row0 = int64_t(blockIdx.x / unit_tiles) * Shape::kM;
  const Columns<scalar_t> columns(args);
  const auto* weights = static_cast<const scalar_t*>(args.weights);

  const auto x_line = [&](int m) { return columns.row(row0 + m); };
  const auto weights_line = [&](int n) -> Line<scalar_t> {
    const int gate = n / Shape::kUnits, unit = unit0 + n % Shape::kUnits;
    const int64_t row = unit < hidden ? int64_t(gate) * hidden + unit : 0;
    return {weights + row * args.weights_stride, 1, unit < hidden};
  };
  // The epilogue's own inputs, loaded while the product is computed.
  constexpr int kItems = Shape::kM * Shape::kUnits / Shape::kThreads;
  static_assert(Shape::kM * Shape::kUnits % Shape::kThreads == 0);
  const auto* bias = static_cast<const scalar_t*>(args.bias);
  const auto* old_cells = static_cast<const cell_t*>(args.old_cell);
  scalar_t biases[kItems][3];
  cell_t cells[kItems][1];
  const auto load_inputs = [&] {
    LLTM_JIT_UNROLLED(i, kItems) {
      const int item = threadIdx.x + i * Shape::kThreads;
      const int64_t row = min(row0 + item / Shape::kUnits, args.batch_size - 1);
      const int unit = min(unit0 + item % Shape::kUnits, hidden - 1);
      cells[i][0] = old_cells[row * hidden + unit];
      LLTM_JIT_UNROLLED(gate, 3) biases[i][gate] = bias ? bias[gate * hidden + unit] : scalar_t{};
    }
  };
  const auto tile = tile_gemm<Shape, kChunk>(shared, args.plan.forward_stages, width, x_line,
                                             weights_line, load_inputs);

  LLTM_JIT_UNROLLED(i, kItems) {
    const int item = threadIdx.x + i * Shape::kThreads;
    const int m = item / Shape::kUnits, u = item % Shape::kUnits;
    const int64_t row = row0 + m;
    const int unit = unit0 + u;
    opmath pre[3][1];
    LLTM_JIT_UNROLLED(gate, 3) {
      tile.values(m, gate * Shape::kUnits + u, pre[gate]);
      pre[gate][0] += to_opmath(biases[i][gate]);
    }
    const FinishedUnits<scalar_t, cell_t, 1> units(pre, cells[i]);
    if (row < args.batch_size && unit < hidden) units.store(args, row, unit);
  }
#endif
}

// Note [Tiny cells]
// A block has one hidden unit of 16 rows, so that even 128 units spread over the chip. Eight lanes
// share a row's sum. All loads of a lane's first kBatch vectors are in flight before the first
// product, so the kernel takes one round trip to memory and a few shuffles. (The 1 in the launch
// bounds tells the compiler that it may use registers for that.) This is faster only in float,
// whose products take long on tensor cores.
constexpr int kTinyRows = kTinyForward.rows, kTinyLanes = 8;

template <int kVec>
__global__ void __launch_bounds__(kTinyRows* kTinyLanes, 1)
    lltm_tiny_cell_kernel(LltmCellArgs args) {
  constexpr int kBatch = 5;
  wait_for_predecessor();
  const int hidden = int(args.hidden_size), width = hidden + int(args.input_size);
  const int unit = int(blockIdx.x % hidden), lane = threadIdx.x % kTinyLanes;
  const int64_t row = int64_t(blockIdx.x / hidden) * kTinyRows + threadIdx.x / kTinyLanes;
  const bool row_inside = row < args.batch_size;  // else compute the last row and drop it
  const Columns<float> columns(args);
  const auto* weights =
      static_cast<const float*>(args.weights) + int64_t(unit) * args.weights_stride;
  const int64_t gate_stride = int64_t(hidden) * args.weights_stride;
  const auto* bias = static_cast<const float*>(args.bias);
  const int64_t read_row = row_inside ? row : args.batch_size - 1;
  const auto x_row = columns.row(read_row);
  const float old_cell[] = {static_cast<const float*>(args.old_cell)[read_row * hidden + unit]};
  float pre[3][1] = {};
  if (bias && lane == 0) {
    LLTM_JIT_UNROLLED(gate, 3) pre[gate][0] = bias[gate * hidden + unit];
  }

  for (int k0 = lane * kVec; k0 < width; k0 += kBatch * kTinyLanes * kVec) {
    Pack<float, kVec> x[kBatch], w[kBatch][3];
    LLTM_JIT_UNROLLED(i, kBatch) {
      const int k = k0 + i * kTinyLanes * kVec;
      const bool inside = k < width;  // else read the first column and drop it
      const int column = inside ? k : 0;
      x[i] = load_or_zero<kVec>((column < hidden ? x_row.old_h : x_row.input) + column, inside);
      LLTM_JIT_UNROLLED(gate, 3) {
        w[i][gate] = load_or_zero<kVec>(weights + gate * gate_stride + column, inside);
      }
    }
    LLTM_JIT_UNROLLED2(i, kBatch, e, kVec) {
      LLTM_JIT_UNROLLED(gate, 3) pre[gate][0] += x[i].values[e] * w[i][gate].values[e];
    }
  }
  LLTM_JIT_UNROLLED(gate, 3) {
#pragma unroll
    for (int offset = kTinyLanes / 2; offset > 0; offset /= 2) {
      pre[gate][0] += __shfl_xor_sync(0xffffffffu, pre[gate][0], offset);
    }
  }
  if (!row_inside || lane != 0) return;
  FinishedUnits<float, float, 1>(pre, old_cell).store(args, row, unit);
}

template <typename Shape, typename cell_t, int kChunk>
cudaError_t launch_cell(const LltmCellArgs& args, cudaStream_t stream) {
  static_assert(is_as_planned<Shape, kForwardStageBytes>());
  const int64_t blocks =
      ceil_div(args.batch_size, Shape::kM) * ceil_div(args.hidden_size, Shape::kUnits);
  return launch(lltm_cell_kernel<Shape, cell_t, kChunk>, unsigned(blocks), Shape::kThreads,
                Shape::shared_bytes(args.plan.forward_stages), stream, args);
}

template <int kChunk>
cudaError_t launch_tiny_cell(const LltmCellArgs& args, cudaStream_t stream) {
  const int64_t blocks = ceil_div(args.batch_size, kTinyRows) * args.hidden_size;
  return launch(lltm_tiny_cell_kernel<kChunk / int(sizeof(float))>, unsigned(blocks),
                kTinyRows * kTinyLanes, 0, stream, args);
}

template <typename scalar_t, typename cell_t, int kChunk>
cudaError_t launch_planned_cell(const LltmCellArgs& args, cudaStream_t stream) {
  switch (args.plan.forward) {
    case LltmForwardKernel::Tiny:
      if constexpr (std::is_same_v<scalar_t, float>) return launch_tiny_cell<kChunk>(args, stream);
      break;
    case LltmForwardKernel::Medium:
      return launch_cell<MediumForward<scalar_t>, cell_t, kChunk>(args, stream);
    default:
      if (const auto error = launch_lltm_cluster_cell(args, stream); !was_refused(error)) {
        return error;
      }
      [[fallthrough]];
    case LltmForwardKernel::Large:
      if constexpr (kChunk == kAccessBytes && sizeof(scalar_t) < 8) {
        return launch_cell<LargeForward<scalar_t>, cell_t, kChunk>(args, stream);
      }
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_lltm_cell(const LltmCellArgs& args, cudaStream_t stream) {
  return dispatch_lltm(args.type, args.cell_type, [&](auto scalar, auto cell) {
    using scalar_t = decltype(scalar);
    using cell_t = decltype(cell);
    if constexpr (sizeof(scalar_t) > 2) {
      if (!args.aligned)
        return launch_planned_cell<scalar_t, cell_t, sizeof(scalar_t)>(args, stream);
    }
    return launch_planned_cell<scalar_t, cell_t, kAccessBytes>(args, stream);
  });
}

}  // namespace lltm_jit
