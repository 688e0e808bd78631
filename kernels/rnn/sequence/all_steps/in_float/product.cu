#include "core/launch/launch.cuh"
#include "core/products/wgmma.cuh"
#include "rnn/sequence/all_steps/in_float/kernels.h"
#include "rnn/sequence/all_steps/in_float/parts.cuh"
#include "rnn/sequence/all_steps/in_float/results.cuh"
#include "rnn/sequence/all_steps/in_float/rows.cuh"

namespace lltm_jit {
namespace {

// Shared memory holds kStages stages. Two warpgroups multiply 64 rows of the tile each. The third
// one fetches the stages, and loads the factors of the columns' sums.
constexpr int kStages = 3, kGroups = 2, kBlock = 128 * (kGroups + 1);

struct Stage {
  float a[kTile * kStage];
  StageParts b;
};
struct SharedMemory {
  Stage stages[kStages];
  FourColumns columns[kTile / kWidth];
  CopyBarrier full[kStages], empty[kStages], columns_there;
};
// The layout's blocks must be aligned to 1024 bytes.
constexpr int kSharedBytes = int(sizeof(SharedMemory)) + 1024;

struct Tiles {
  int64_t across, down;

  __host__ __device__ Tiles(const FloatFactor& a, const FloatFactor& b)
      : across(ceil_div(b.vectors, kTile)), down(ceil_div(a.vectors, kTile)) {}
};

// The results of a block, and its stages of the depth.
struct Part {
  int64_t row, column, first, stages, all_stages;
  int split;

  LLTM_JIT_DEVICE explicit Part(const FloatProductArgs& args) {
    const Tiles tiles(args.a, args.b);
    column = blockIdx.x % tiles.across * kTile;
    row = blockIdx.x / tiles.across % tiles.down * kTile;
    split = int(blockIdx.x / tiles.across / tiles.down);
    all_stages = stages_of(args.b.depth);
    first = all_stages * split / args.splits;
    stages = all_stages * (split + 1) / args.splits - first;
  }
};

// One thread loads every stage into its slot, once the products of the slot's previous stage have freed it.
template <bool kDepthInside>
LLTM_JIT_DEVICE void bring_stages(SharedMemory& shared, const Part& part, const CUtensorMap& a,
                                  const void* b_parts) {
  const auto* source =
      static_cast<const StageParts*>(b_parts) + part.column / kTile * part.all_stages + part.first;
  for (int i = 0; i < part.stages; ++i) {
    const int slot = i % kStages, round = i / kStages;
    if (round > 0) shared.empty[slot].wait((round - 1) % 2);
    auto& stage = shared.stages[slot];
    auto& full = shared.full[slot];
    full.arrive_and_expect(int(sizeof(stage.a) + sizeof(StageParts)));
    Rows<kDepthInside>::bring(stage.a, a, part.row, (part.first + i) * kStage, full);
    copy_bulk(shared_address(&stage.b), source + i, int(sizeof(StageParts)), full);
  }
}

using Sums = float[kTile / 2];

template <bool kDepthInside>
LLTM_JIT_DEVICE void multiply(SharedMemory& shared, const FloatProductArgs& args, const Part& part,
                              int64_t row, Sums& sums) {
  const Rows<kDepthInside> rows(int(row - part.row));
  float scales[2];
  LLTM_JIT_UNROLLED(i, 2) {
    scales[i] = HalfScale(args.magnitudes[min(row + i, args.a.vectors - 1)]).scale;
  }
  constexpr int kPiece = 128;  // of the depth, per truncated sum
  StepParts parts[2];
  Sums truncated = {};
  const auto move_sums = [&] {
    wait_for_products<0>();
    LLTM_JIT_UNROLLED(i, kTile / 2) {
      sums[i] += truncated[i];
      truncated[i] = 0;
    }
  };
  for (int i = 0; i < part.stages; ++i) {
    const int slot = i % kStages;
    shared.full[slot].wait(i / kStages % 2);
    const auto& stage = shared.stages[slot];
    const uint32_t a = shared_address(stage.a);
    const uint64_t high = matrix_descriptor(stage.b.high[0]);
    const uint64_t low = matrix_descriptor(stage.b.low[0]);
    LLTM_JIT_UNROLLED(step, kSteps) {
      StepParts& own = parts[step % 2];
      uint32_t numbers[2][kWidth];
      rows.load(a, step, numbers);
      own.split(numbers, scales);
      fence_products();
      constexpr int kChunks = kStep * int(sizeof(Half)) / 16;
      wgmma_of_registers<kTile>(truncated, own.low, high + step * kChunks);
      wgmma_of_registers<kTile>(truncated, own.high, low + step * kChunks);
      wgmma_of_registers<kTile>(truncated, own.high, high + step * kChunks);
      commit_products();
      // Then the other parts are free and, after the first step, so is the previous stage.
      wait_for_products<1>();
      if (step == 0 && i > 0 && threadIdx.x % 32 == 0) {
        shared.empty[(i - 1) % kStages].arrive();
      }
    }
    if (i % (kPiece / kStage) == kPiece / kStage - 1) move_sums();
  }
  move_sums();
}

template <bool kDepthInside>
LLTM_JIT_DEVICE void compute(SharedMemory& shared, const FloatProductArgs& args, const Part& part) {
  const int64_t row = part.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 * 2;
  Sums sums = {};
  multiply<kDepthInside>(shared, args, part, row, sums);
  shared.columns_there.wait(0);
  constexpr int kFours = kTile / 16;  // per row
  const auto column_of = [&](int four) { return four * 16 + int(threadIdx.x) % 4 * kWidth; };
  const auto sum_of = [](int i, int four, int j) { return (four * 2 + j / 2) * 4 + i * 2 + j % 2; };
  const bool whole = args.splits == 1;  // else the sums are results for add_splits()
  float* target = whole ? args.results : args.sums + part.split * args.a.vectors * args.b.vectors;
  LLTM_JIT_UNROLLED(i, 2) {
    if (row + i >= args.a.vectors) break;
    const float of_row = whole ? row_inverse(args, row + i) : 1;
    LLTM_JIT_UNROLLED(four, kFours) {
      const int64_t column = part.column + column_of(four);
      if (column >= args.b.vectors) break;
      float own[kWidth], results[kWidth];
      LLTM_JIT_UNROLLED(j, kWidth) own[j] = sums[sum_of(i, four, j)];
      if (results_of(own, of_row, shared.columns[column_of(four) / kWidth], results) || !whole) {
        store_results(target + (row + i) * args.b.vectors + column, whole && args.adds, results);
      } else {
        store_anew(args, row + i, column, {own[0], own[1], own[2], own[3]}, of_row,
                   shared.columns[column_of(four) / kWidth]);
      }
    }
  }
}

// Code without wgmma allows one thread, which tells the host.
template <bool kDepthInside>
__global__ void __launch_bounds__(LLTM_JIT_HAS_WGMMA ? kBlock : 1, 1)
    multiply_floats(const __grid_constant__ FloatProductArgs args,
                    const __grid_constant__ CUtensorMap a) {
#if LLTM_JIT_HAS_WGMMA
  constexpr int kMathWarps = 4 * kGroups;
  extern __shared__ char dynamic[];
  auto& shared = *reinterpret_cast<SharedMemory*>(dynamic + (-shared_address(dynamic) & 1023));
  const Part part(args);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(kMathWarps);
    }
    shared.columns_there.init(32);
    publish_barriers();
  }
  __syncthreads();
  wait_without_starting_successor();
  const int warp = threadIdx.x / 32;
  if (warp >= kMathWarps) {
    give_registers<40>();
    if (warp == kMathWarps && threadIdx.x % 32 == 0) {
      bring_stages<kDepthInside>(shared, part, a, args.b_parts);
    }
    if (warp == kMathWarps + 1) {
      const int lane = threadIdx.x % 32;
      const int64_t column = part.column + lane * kWidth;
      if (column < args.b.vectors) {
        shared.columns[lane] = args.splits > 1 ? FourColumns(1) : FourColumns(args, column);
      }
      shared.columns_there.arrive();
    }
  } else {
    take_registers<232>();
    compute<kDepthInside>(shared, args, part);
  }
#else
  __trap();  // never launched, because the host asks first
#endif
}

__global__ void __launch_bounds__(kThreads)
    add_splits(const __grid_constant__ FloatProductArgs args) {
  wait_for_predecessor();
  const int64_t size = args.a.vectors * args.b.vectors;
  for (int64_t i = (blockIdx.x * int64_t(kThreads) + threadIdx.x) * kWidth; i < size;
       i += int64_t(gridDim.x) * kThreads * kWidth) {
    const int64_t row = i / args.b.vectors, column = i % args.b.vectors;
    const FourColumns columns(args, column);
    const float of_row = row_inverse(args, row);
    float sums[kWidth] = {}, more[kWidth];
#pragma unroll 4
    for (int split = 0; split < args.splits; ++split) {
      load_pack<kWidth>(args.sums + split * size + i, more);
      LLTM_JIT_UNROLLED(j, kWidth) sums[j] += more[j];
    }
    float results[kWidth];
    if (results_of(sums, of_row, columns, results)) {
      store_results(args.results + i, args.adds, results);
    } else {
      store_anew(args, row, column, {sums[0], sums[1], sums[2], sums[3]}, of_row, columns);
    }
  }
}

}  // namespace

cudaError_t float_product_runs(const FloatFactor& a, const FloatFactor& b, bool* runs) {
  *runs = false;
  for (const auto& factor : {a, b}) {
    const int64_t width = factor.depth_inside ? factor.depth : factor.vectors;
    if (width % kWidth != 0 || factor.row_stride % kWidth != 0 || factor.row_stride < width ||
        !aligned(kAccessBytes, factor.numbers) || max(factor.vectors, factor.depth) > INT32_MAX) {
      return cudaSuccess;
    }
  }
  if (b.vectors % kWidth != 0) return cudaSuccess;  // because of the results' rows
  const auto ask = [](int, bool* has_wgmma) {
    cudaFuncAttributes code{};
    const cudaError_t error = cudaFuncGetAttributes(&code, multiply_floats<true>);
    *has_wgmma = code.maxThreadsPerBlock > 1;
    return error;
  };
  return ask_once(ask, runs);
}

cudaError_t float_product_splits(const FloatFactor& a, const FloatFactor& b, int* splits) {
  constexpr int64_t kLeastDepth = 256, kMost = 16;
  int multiprocessors = 0;
  const auto ask = [](int device, int* count) {
    return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
  };
  LLTM_JIT_TRY(ask_once(ask, &multiprocessors));
  const Tiles tiles(a, b);
  double least = 0;
  for (int64_t count = 1; count <= min(max(a.depth / kLeastDepth, int64_t(1)), kMost); ++count) {
    // Times in us, measured on an H200: of a block, of a stage, and of the kernel that adds splits.
    constexpr double kOfBlock = 4, kOfStage = 1.2, kOfAdding = 3, kBytesPerUs = 3e6;
    const int64_t waves = ceil_div(tiles.across * tiles.down * count, int64_t(multiprocessors));
    const int64_t stages = ceil_div(stages_of(a.depth), count);
    double time = double(waves) * (kOfBlock + kOfStage * double(stages));
    if (count > 1) {
      const auto sums = double(a.vectors * b.vectors) * sizeof(float);
      time += kOfAdding + sums * double(2 * count) / kBytesPerUs;
    }
    if (count == 1 || time < least) *splits = int(count), least = time;
  }
  return cudaSuccess;
}

cudaError_t launch_float_product(const FloatProductArgs& args, cudaStream_t stream) {
  const FloatFactor &a = args.a, &b = args.b;
  CUtensorMap map;
  if (!encode_map<float>(&map, a.numbers, a.depth_inside ? a.vectors : a.depth,
                         a.depth_inside ? a.depth : a.vectors, a.row_stride,
                         a.depth_inside ? kTile : kStage)) {
    return cudaErrorInvalidValue;
  }
  const Tiles tiles(a, b);
  LLTM_JIT_TRY(launch_split_factors(args, stream));
  const auto kernel = a.depth_inside ? multiply_floats<true> : multiply_floats<false>;
  LLTM_JIT_TRY(launch(kernel, unsigned(tiles.across * tiles.down * args.splits), kBlock,
                      kSharedBytes, stream, args, map));
  if (args.splits == 1) return cudaSuccess;
  return launch(add_splits, blocks_for(a.vectors * b.vectors / kWidth), kThreads, 0, stream, args);
}

}  // namespace lltm_jit
