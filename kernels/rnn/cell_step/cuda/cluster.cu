// The whole LLTM cell in one launch, in 16 bits, on the tensor cores and the copy engine of chips of 9.0.
//
// Note [Blocks that share a tile]
// Blocks read h, x and the weights from L2, which limits their speed. Larger tiles read less, but a
// recurrent cell has too few large tiles for the chip. So the four blocks of a cluster share a tile.
// Each multiplies a quarter of k, sends its sums through distributed shared memory (DSMEM) to the
// blocks that finish them, and finishes a quarter of the rows. In a block, one warp fetches operands as
// far ahead as there is room; the others multiply, and load the epilogue's inputs meanwhile.

#include "core/launch/launch.cuh"
#include "core/memory/boxes.cuh"
#include "core/products/wgmma.cuh"
#include "rnn/cell_step/cuda/dispatch.cuh"
#include "rnn/cell_step/cuda/finish.cuh"
#include "rnn/cell_step/kernels.h"

namespace lltm_jit {
namespace {

// A tile of kM rows and kUnits hidden units, whose three gates are neighbours. Shared memory holds
// kStages stages with 64 of k each, and the sums that the block receives.
template <typename scalar_t_, const LltmTile& kTile, int kStages_>
struct ClusterShape {
  using scalar_t = scalar_t_;
  static constexpr int kM = kTile.rows, kUnits = kTile.columns, kN = 3 * kUnits;
  static constexpr int kStages = kStages_;
  static constexpr int kMathWarps = kM / 16, kMathThreads = 32 * kMathWarps;
  static constexpr int kThreads = kMathThreads + 32;
  static constexpr int kStageElements = (kM + kN) * kSwizzledRow;
  // The layout of sums in fours (float4), as a lane has them: by sending block, by its warps that
  // have rows of this block, and by eight columns, with a four per lane.
  static constexpr int kOwnWarps = kMathWarps / kClusterBlocks;
  static constexpr int kFours = kN / 8;
  static_assert(kM % 64 == 0 && kUnits % 8 == 0 && kMathWarps % kClusterBlocks == 0);
};
// These shapes leave no room for a second block on an SM. Otherwise the next launch's clusters
// would begin before this launch's have ended, and share some SMs while others idle.
template <typename scalar_t>
using MediumCluster = ClusterShape<scalar_t, kMediumCluster, 7>;
template <typename scalar_t>
using WideCluster = ClusterShape<scalar_t, kWideCluster, 6>;
template <typename scalar_t>
using LargeCluster = ClusterShape<scalar_t, kLargeCluster, 5>;

struct OperandMaps {
  CUtensorMap old_h, input, weights_of_h, weights_of_input;
};

template <typename Shape>
struct SharedMemory {
  using scalar_t = typename Shape::scalar_t;
  scalar_t stages[Shape::kStages][Shape::kStageElements];
  float4 received[kClusterBlocks][Shape::kOwnWarps][Shape::kFours][32];
  CopyBarrier full[Shape::kStages], empty[Shape::kStages];
};

// A block's part: its tile, the quarter of the rows that it finishes, and the stages of k that it multiplies.
template <typename Shape>
struct Part {
  int rank, unit0;
  int64_t row0;
  int first_stage, stages, stages_of_h;

  LLTM_JIT_DEVICE explicit Part(const LltmCellArgs& args) {
    const int hidden = int(args.hidden_size), unit_tiles = ceil_div(hidden, Shape::kUnits);
    const int tile = int(blockIdx.x) / kClusterBlocks;
    rank = int(blockIdx.x) % kClusterBlocks;
    unit0 = tile % unit_tiles * Shape::kUnits;
    row0 = int64_t(tile / unit_tiles) * Shape::kM;
    stages_of_h = ceil_div(hidden, kSwizzledRow);
    const int all = stages_of_h + ceil_div(int(args.input_size), kSwizzledRow);
    first_stage = rank * all / kClusterBlocks;
    stages = (rank + 1) * all / kClusterBlocks - first_stage;
  }
};

// One thread fetches every stage into its slot, once the products of the slot's previous stage have ended.
template <typename Shape>
LLTM_JIT_DEVICE void bring_operands(SharedMemory<Shape>& shared, const Part<Shape>& part,
                                    const OperandMaps& maps, int hidden) {
  for (int i = 0; i < part.stages; ++i) {
    const int slot = i % Shape::kStages, round = i / Shape::kStages;
    if (round > 0) shared.empty[slot].wait((round - 1) % 2);
    auto& full = shared.full[slot];
    full.arrive_and_expect(int(sizeof shared.stages[slot]));
    const int stage = part.first_stage + i;
    const bool of_h = stage < part.stages_of_h;
    const int k = (of_h ? stage : stage - part.stages_of_h) * kSwizzledRow;
    auto* target = shared.stages[slot];
    copy_box(target, of_h ? maps.old_h : maps.input, int(part.row0), k, full);
    target += Shape::kM * kSwizzledRow;
    const auto& weights = of_h ? maps.weights_of_h : maps.weights_of_input;
    // Rows past a gate's last unit belong to the next gate; their products are ignored.
    for (int gate = 0; gate < 3; ++gate) {
      copy_box(target, weights, gate * hidden + part.unit0, k, full);
      target += Shape::kUnits * kSwizzledRow;
    }
  }
}

template <typename Shape>
LLTM_JIT_DEVICE void multiply(SharedMemory<Shape>& shared, const Part<Shape>& part,
                              float (&sums)[Shape::kN / 2]) {
  const int warpgroup = threadIdx.x / 128;
  for (int i = 0; i < part.stages; ++i) {
    const int slot = i % Shape::kStages;
    shared.full[slot].wait(i / Shape::kStages % 2);
    const auto* a = shared.stages[slot];
    begin_products<typename Shape::scalar_t, Shape::kN>(sums, a + warpgroup * 64 * kSwizzledRow,
                                                        a + Shape::kM * kSwizzledRow);
    if (i == 0) continue;
    wait_for_products<1>();  // those of the previous stage
    const bool again = i - 1 + Shape::kStages < part.stages;
    if (again && threadIdx.x % 32 == 0) shared.empty[(i - 1) % Shape::kStages].arrive();
  }
  wait_for_products<0>();
}

// The inputs and outputs of one thread's epilogue.
template <typename Shape, typename cell_t>
struct Epilogue {
  using scalar_t = typename Shape::scalar_t;
  // Two units of a row at a time.
  static constexpr int kUnitFours = Shape::kUnits / 8, kPairs = Shape::kOwnWarps * kUnitFours * 64;
  static constexpr int kPasses = ceil_div(kPairs, Shape::kMathThreads);
  struct Place {
    int own_warp, four, half, unit;
    int64_t row;
  };
  const LltmCellArgs& args;
  const Part<Shape>& part;
  scalar_t biases[kPasses][3][2];
  cell_t cells[kPasses][2];

  LLTM_JIT_DEVICE Place place(int pass) const {
    const int pair = min(int(threadIdx.x) + pass * Shape::kMathThreads, kPairs - 1);
    const int lane = pair % 32, half = pair / 32 % 2, four = pair / 64 % kUnitFours;
    const int own_warp = pair / 64 / kUnitFours;
    return {own_warp, four, half, part.unit0 + four * 8 + lane % 4 * 2,
            part.row0 + (part.rank * Shape::kOwnWarps + own_warp) * 16 + half * 8 + lane / 4};
  }

  LLTM_JIT_DEVICE Epilogue(const LltmCellArgs& args, const Part<Shape>& part)
      : args(args), part(part) {
    const int hidden = int(args.hidden_size);
    // Without a bias, any readable elements will do: they are ignored.
    const auto* bias = static_cast<const scalar_t*>(args.bias ? args.bias : args.weights);
    const auto* old_cell = static_cast<const cell_t*>(args.old_cell);
    LLTM_JIT_UNROLLED(pass, kPasses) {
      const Place to = place(pass);
      const int unit = min(to.unit, hidden - 2);
      const int64_t row = min(to.row, args.batch_size - 1);
      LLTM_JIT_UNROLLED(e, 2) {  // one by one, because neither must be aligned
        cells[pass][e] = old_cell[row * hidden + unit + e];
        LLTM_JIT_UNROLLED(gate, 3) biases[pass][gate][e] = bias[gate * hidden + unit + e];
      }
    }
  }

  // Adds the four blocks' sums, always in the same order.
  LLTM_JIT_DEVICE void finish(const SharedMemory<Shape>& shared) const {
    float pre[kPasses][3][2];
    LLTM_JIT_UNROLLED(pass, kPasses) {
      const Place from = place(pass);
      LLTM_JIT_UNROLLED(gate, 3) {
        auto& sum = pre[pass][gate];
        LLTM_JIT_UNROLLED(e, 2) sum[e] = args.bias ? to_opmath(biases[pass][gate][e]) : 0.0f;
        const int four = gate * kUnitFours + from.four;
        LLTM_JIT_UNROLLED(block, kClusterBlocks) {
          const auto& sums = shared.received[block][from.own_warp][four][threadIdx.x % 32];
          const float2 two = reinterpret_cast<const float2*>(&sums)[from.half];
          sum[0] += two.x;
          sum[1] += two.y;
        }
      }
    }
    LLTM_JIT_UNROLLED(pass, kPasses) {
      const Place to = place(pass);
      const FinishedUnits<scalar_t, cell_t, 2> units(pre[pass], cells[pass]);
      if (int(threadIdx.x) + pass * Shape::kMathThreads < kPairs && to.unit < args.hidden_size &&
          to.row < args.batch_size) {
        units.store(args, to.row, to.unit);
      }
    }
  }
};

// Code without wgmma allows one thread, which tells the host.
template <typename Shape, typename cell_t>
__global__ void __launch_bounds__(LLTM_JIT_HAS_WGMMA ? Shape::kThreads : 1, 1)
    lltm_cluster_cell_kernel(LltmCellArgs args, const __grid_constant__ OperandMaps maps) {
#if LLTM_JIT_HAS_WGMMA
  extern __shared__ __align__(1024) char shared_bytes[];
  auto& shared = *reinterpret_cast<SharedMemory<Shape>*>(shared_bytes);
  const Part<Shape> part(args);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < Shape::kStages; ++slot) {
      shared.full[slot].init(1);
      shared.empty[slot].init(Shape::kMathWarps);
    }
    publish_barriers();
  }
  __cluster_barrier_arrive();
  if (warp == Shape::kMathWarps) {
    if (lane == 0) {
      prefetch_map(maps.old_h);
      prefetch_map(maps.input);
      prefetch_map(maps.weights_of_h);
      prefetch_map(maps.weights_of_input);
    }
    __cluster_barrier_wait();
    wait_for_predecessor();
    if (lane == 0) bring_operands(shared, part, maps, int(args.hidden_size));
    __syncwarp();
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    return;
  }
  __cluster_barrier_wait();  // all blocks have begun: their shared memory is valid
  wait_for_predecessor();
  const Epilogue<Shape, cell_t> epilogue(args, part);
  float sums[Shape::kN / 2] = {};
  multiply(shared, part, sums);
  // All 16 rows of a warp are finished by one block.
  auto* mine = shared.received[part.rank][warp % Shape::kOwnWarps][0] + lane;
  auto* to = static_cast<float4*>(__cluster_map_shared_rank(mine, warp / Shape::kOwnWarps));
  LLTM_JIT_UNROLLED(four, Shape::kFours) {
    const float* sum = sums + four * 4;
    to[four * 32] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  }
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  epilogue.finish(shared);
#endif
}

template <typename scalar_t>
bool encode_maps(OperandMaps* maps, const LltmCellArgs& args, int rows, int units) {
  const int64_t hidden = args.hidden_size;
  const auto* weights = static_cast<const scalar_t*>(args.weights);
  const auto encode = [&](CUtensorMap* of_x, CUtensorMap* of_weights, const void* x,
                          int64_t x_stride, int64_t column, int64_t columns) {
    return encode_map<scalar_t>(of_x, x, args.batch_size, columns, x_stride, rows) &&
           encode_map<scalar_t>(of_weights, weights + column, 3 * hidden, columns,
                                args.weights_stride, units);
  };
  return encode(&maps->old_h, &maps->weights_of_h, args.old_h, args.old_h_stride, 0, hidden) &&
         (args.input_size == 0 || encode(&maps->input, &maps->weights_of_input, args.input,
                                         args.input_stride, hidden, args.input_size));
}

template <typename Shape, typename cell_t>
cudaError_t launch_cell(const LltmCellArgs& args, cudaStream_t stream) {
  OperandMaps maps{};
  if (!encode_maps<typename Shape::scalar_t>(&maps, args, Shape::kM, Shape::kUnits)) {
    return cudaErrorNotSupported;
  }
  const int64_t clusters =
      ceil_div(args.batch_size, Shape::kM) * ceil_div(args.hidden_size, Shape::kUnits);
  return launch<kClusterBlocks>(lltm_cluster_cell_kernel<Shape, cell_t>,
                                unsigned(clusters * kClusterBlocks), Shape::kThreads,
                                int(sizeof(SharedMemory<Shape>)), stream, args, maps);
}

cudaError_t ask_gpu(int device, LltmGpu* gpu) {
  using Shape = LargeCluster<Half>;  // all shapes run one block per SM
  const auto kernel = lltm_cluster_cell_kernel<Shape, Half>;
  cudaFuncAttributes code{};
  LLTM_JIT_TRY(cudaFuncGetAttributes(&code, kernel));
  gpu->architecture = code.ptxVersion;
  gpu->wgmma = code.maxThreadsPerBlock > 1;
  LLTM_JIT_TRY(
      cudaDeviceGetAttribute(&gpu->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  LLTM_JIT_TRY(cudaDeviceGetAttribute(&gpu->sms, cudaDevAttrMultiProcessorCount, device));
  gpu->clusters = 0;
  if (!gpu->wgmma) return cudaSuccess;
  LLTM_JIT_TRY(allow_all_shared_memory(kernel));
  gpu->clusters =
      clusters_at_once(kernel, kClusterBlocks, Shape::kThreads, int(sizeof(SharedMemory<Shape>)));
  return cudaSuccess;
}

}  // namespace

cudaError_t lltm_describe_gpu(LltmGpu* gpu) { return ask_once(ask_gpu, gpu); }

cudaError_t launch_lltm_cluster_cell(const LltmCellArgs& args, cudaStream_t stream) {
  return dispatch_lltm(args.type, args.cell_type, [&](auto scalar, auto cell) {
    using scalar_t = decltype(scalar);
    using cell_t = decltype(cell);
    if constexpr (sizeof(scalar_t) == 2) {
      switch (args.plan.forward) {
        case LltmForwardKernel::MediumCluster:
          return launch_cell<MediumCluster<scalar_t>, cell_t>(args, stream);
        case LltmForwardKernel::WideCluster:
          return launch_cell<WideCluster<scalar_t>, cell_t>(args, stream);
        case LltmForwardKernel::LargeCluster:
          return launch_cell<LargeCluster<scalar_t>, cell_t>(args, stream);
        default:
          break;
      }
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace lltm_jit
