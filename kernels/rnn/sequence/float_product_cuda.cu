#include "core/cuda/launch.cuh"
#include "core/cuda/wgmma.cuh"
#include "rnn/sequence/cuda/halves.cuh"
#include "rnn/sequence/float_product.h"

namespace lltm_jit {
namespace {

// A block has kTile x kTile results, a warpgroup 64 rows of them; one more asks for the right factor's parts.
// Of the depth: what an instruction multiplies, what comes to shared memory at once, and what is summed truncated.
constexpr int kTile = 128, kStep = 16, kStage = kSwizzledRow, kPiece = 128;
constexpr int kSteps = kStage / kStep, kStages = 3;
constexpr int kGroupRows = 64, kGroups = kTile / kGroupRows;
constexpr int kBlock = 128 * (kGroups + 1);
constexpr int kWidth = 4;  // numbers of one access

using Four = Pack<uint32_t, kWidth>;

__host__ __device__ int64_t stages_of(int64_t depth) { return ceil_div(depth, kStage); }

// ------------------------------------------------------------------------------------ magnitudes --

__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

// A block takes tiles by turns, a warp eight rows of each, a lane four neighbours.
constexpr int kWarps = kThreads / 32, kRowsOfWarp = 8, kTileColumns = 32 * kWidth;

__device__ __forceinline__ void find_magnitudes_of(const FloatFactor& factor, uint32_t* magnitudes,
                                                   int64_t block, int64_t blocks) {
  __shared__ uint32_t of_warps[kWarps][kTileColumns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t rows = factor.depth_inside ? factor.vectors : factor.depth;
  const int64_t columns = factor.depth_inside ? factor.depth : factor.vectors;
  const int64_t across = ceil_div(columns, kTileColumns);
  const int64_t tiles = ceil_div(rows, kWarps * kRowsOfWarp) * across;
  const auto* numbers = reinterpret_cast<const uint32_t*>(factor.numbers);
  for (int64_t tile = block; tile < tiles; tile += blocks) {
    const int64_t row = (tile / across * kWarps + warp) * kRowsOfWarp;
    const int64_t first_column = tile % across * kTileColumns, column = first_column + lane * kWidth;
    uint32_t of_columns[kWidth] = {}, of_rows[kRowsOfWarp] = {};
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const bool inside = row + i < rows && column < columns;
      const Four four = load_or_zero<kWidth>(
          numbers + (inside ? (row + i) * factor.row_stride + column : 0), inside);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const uint32_t magnitude = magnitude_of(four.values[k]);
        of_rows[i] = max(of_rows[i], magnitude);
        of_columns[k] = max(of_columns[k], magnitude);
      }
    }
    if (factor.depth_inside) {
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        const uint32_t most = warp_max(of_rows[i]);
        if (lane == 0 && row + i < rows) atomicMax(magnitudes + row + i, most);
      }
      continue;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) of_warps[warp][lane * kWidth + k] = of_columns[k];
    __syncthreads();
    if (threadIdx.x < kTileColumns && first_column + threadIdx.x < columns) {
      uint32_t most = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = max(most, of_warps[w][threadIdx.x]);
      atomicMax(magnitudes + first_column + threadIdx.x, most);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    find_magnitudes(const __grid_constant__ FloatProductArgs args) {
  wait_for_predecessor();
  const int64_t block = blockIdx.x / 2, blocks = gridDim.x / 2;
  if (blockIdx.x % 2 == 0) {
    find_magnitudes_of(args.a, args.magnitudes, block, blocks);
  } else {
    find_magnitudes_of(args.b, args.magnitudes + args.a.vectors, block, blocks);
  }
}

// ------------------------------------------------------------------------------- the right factor --

// A stage of a tile of columns, as core/cuda/wgmma.cuh describes the layout. Column x is row
// row_of_column(x) of it: four sums of a lane are next to each other then.
struct StageParts {
  Half high[kTile][kStage], low[kTile][kStage];
};

__device__ __forceinline__ int row_of_column(int x) {
  return x / 16 * 16 + x / 2 % 2 * 8 + x % 16 / 4 * 2 + x % 2;
}

template <bool kDepthInside>
__device__ __forceinline__ void load_step(const FloatFactor& factor, int64_t vector, int64_t k,
                                          uint32_t (&numbers)[kStep]) {
  const auto* source = reinterpret_cast<const uint32_t*>(factor.numbers);
  if constexpr (kDepthInside) {
#pragma unroll
    for (int i = 0; i < kStep; i += kWidth) {
      const bool inside = vector < factor.vectors && k + i < factor.depth;
      const Four four = load_or_zero<kWidth>(
          source + (inside ? vector * factor.row_stride + k + i : 0), inside);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) numbers[i + j] = four.values[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const bool inside = vector < factor.vectors && k + i < factor.depth;
      numbers[i] =
          load_or_zero<1>(source + (inside ? (k + i) * factor.row_stride + vector : 0), inside)
              .values[0];
    }
  }
}

__device__ __forceinline__ void split_eight(const uint32_t* numbers, float scale, uint4& high,
                                            uint4& low) {
  HalfParts pairs[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) pairs[j] = HalfParts(numbers[2 * j], numbers[2 * j + 1], scale);
  high = {pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
  low = {pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
}

// A block splits a stage, and a thread two steps of a column.
template <bool kDepthInside>
__global__ void __launch_bounds__(kThreads)
    split_right_factor(const __grid_constant__ FloatProductArgs args) {
#if __CUDA_ARCH__ >= 900
  __shared__ __align__(128) StageParts parts;
  wait_for_predecessor();
  const int64_t stages = stages_of(args.b.depth), all = ceil_div(args.b.vectors, kTile) * stages;
  const int x = threadIdx.x % kTile, row = row_of_column(x);
  for (int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const int64_t column = i / stages * kTile + x;
    const uint32_t magnitude =
        args.magnitudes[args.a.vectors + min(column, args.b.vectors - 1)];
    const float scale = HalfScale(magnitude).scale;
    uint32_t numbers[2][kStep];
    const int first = threadIdx.x / kTile * 2;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      load_step<kDepthInside>(args.b, column, i % stages * kStage + (first + step) * kStep,
                              numbers[step]);
    }
    if (threadIdx.x == 0) wait_for_bulk_stores();
    __syncthreads();
#pragma unroll
    for (int chunk = 0; chunk < 4; ++chunk) {
      uint4 high, low;
      split_eight(numbers[chunk / 2] + chunk % 2 * 8, scale, high, low);
      const int at = ((first * 2 + chunk) ^ (row % 8)) * 8;
      *reinterpret_cast<uint4*>(&parts.high[row][at]) = high;
      *reinterpret_cast<uint4*>(&parts.low[row][at]) = low;
    }
    publish_stores();
    __syncthreads();
    if (threadIdx.x == 0) {
      store_bulk(static_cast<StageParts*>(args.b_parts) + i, &parts, int(sizeof(StageParts)));
    }
  }
  if (threadIdx.x == 0) wait_for_bulk_stores();
#else
  __trap();  // never launched: the host asks
#endif
}

// --------------------------------------------------------------------------------------- results --

__device__ __forceinline__ float number_at(const FloatFactor& factor, int64_t vector, int64_t k) {
  return factor.numbers[factor.depth_inside ? vector * factor.row_stride + k
                                            : k * factor.row_stride + vector];
}

// What the scaled sums of four columns are multiplied by, beside their row's factor, and what is added.
struct alignas(16) FourColumns {
  float inverse[kWidth], initial[kWidth];

  FourColumns() = default;
  __device__ __forceinline__ explicit FourColumns(float factor)
      : inverse{factor, factor, factor, factor}, initial{} {}
  __device__ __forceinline__ FourColumns(const FloatProductArgs& args, int64_t column) : initial{} {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      inverse[j] = HalfScale(args.magnitudes[args.a.vectors + column + j]).inverse;
    }
    if (args.initial) load_pack<kWidth>(args.initial + column, initial);
  }
};

__device__ __forceinline__ float row_inverse(const FloatProductArgs& args, int64_t row) {
  return HalfScale(args.magnitudes[row]).inverse;
}

// Four columns' results of their sums. Returns whether these are finite.
__device__ __forceinline__ bool results_of(const float (&sums)[kWidth], float of_row,
                                           const FourColumns& columns, float (&results)[kWidth]) {
  bool finite = true;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float sum = sums[j] * (of_row * columns.inverse[j]);
    finite = finite && isfinite(sum);
    results[j] = columns.initial[j] + sum;
  }
  return finite;
}

__device__ __forceinline__ void store_results(float* target, bool adds, float (&results)[kWidth]) {
  float before[kWidth] = {};
  if (adds) load_pack<kWidth>(target, before);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) results[j] += before[j];
  store_pack<kWidth>(target, results);
}

// Stores results of which some sums are not finite: these are computed again.
__device__ __noinline__ void store_anew(const FloatProductArgs& args, int64_t row, int64_t column,
                                        const float* sums, float of_row, const FourColumns& columns) {
  float* target = args.results + row * args.b.vectors + column;
  for (int j = 0; j < kWidth; ++j) {
    float sum = sums[j] * (of_row * columns.inverse[j]);
    if (!isfinite(sum)) {
      sum = 0;
      for (int64_t k = 0; k < args.a.depth; ++k) {
        sum = fmaf(number_at(args.a, row, k), number_at(args.b, column + j, k), sum);
      }
    }
    target[j] = (args.adds ? target[j] : 0) + columns.initial[j] + sum;
  }
}

__global__ void __launch_bounds__(kThreads) add_splits(const __grid_constant__ FloatProductArgs args) {
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
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += more[j];
    }
    float results[kWidth];
    if (results_of(sums, of_row, columns, results)) {
      store_results(args.results + i, args.adds, results);
    } else {
      store_anew(args, row, column, sums, of_row, columns);
    }
  }
}

// ------------------------------------------------------------------------------------ the product --

struct Stage {
  float a[kTile * kStage];
  StageParts b;
};
struct SharedMemory {
  Stage stages[kStages];
  FourColumns columns[kTile / kWidth];
  CopyBarrier full[kStages], empty[kStages], columns_there;
};
constexpr int kSharedBytes = int(sizeof(SharedMemory)) + 1024;  // the blocks of the layout are aligned to it

struct Tiles {
  int64_t across, down;

  __host__ __device__ Tiles(int64_t rows, int64_t columns)
      : across(ceil_div(columns, kTile)), down(ceil_div(rows, kTile)) {}
};

// Which results a block has, and which stages of the depth.
struct Part {
  int64_t row, column, first, stages, all_stages;
  int split;

  __device__ __forceinline__ explicit Part(const FloatProductArgs& args) {
    const Tiles tiles(args.a.vectors, args.b.vectors);
    column = blockIdx.x % tiles.across * kTile;
    row = blockIdx.x / tiles.across % tiles.down * kTile;
    split = int(blockIdx.x / tiles.across / tiles.down);
    all_stages = stages_of(args.b.depth);
    first = all_stages * split / args.splits;
    stages = all_stages * (split + 1) / args.splits - first;
  }
};

// Other threads' meanwhile.
__device__ __forceinline__ void bring_columns(SharedMemory& shared, const FloatProductArgs& args,
                                              const Part& part) {
  const int64_t column = part.column + threadIdx.x % 32 * kWidth;
  if (column < args.b.vectors) {
    shared.columns[threadIdx.x % 32] = args.splits > 1 ? FourColumns(1) : FourColumns(args, column);
  }
  shared.columns_there.arrive();
}

// Where a lane finds its two rows of A, as boxes of 128 bytes of memory's rows have them.
template <bool kDepthInside>
class Rows {
  static constexpr int kBoxRows = kDepthInside ? kTile : kStage, kRowBytes = 128;
  static constexpr int kBoxBytes = kBoxRows * kRowBytes, kBoxColumns = kRowBytes / int(sizeof(float));

 public:
  static constexpr int kBoxes = (kDepthInside ? kStage : kTile) / kBoxColumns;

  // row: the first of the two, in the tile.
  __device__ __forceinline__ explicit Rows(int row) {
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = kDepthInside ? row + i : 2 * c + i;  // of memory, in the box
      const int column = kDepthInside ? 2 * c : row % kBoxColumns;
      const int box = kDepthInside ? 0 : row / kBoxColumns;
      addresses_[i] = box * kBoxBytes + r * kRowBytes + ((column / 4) ^ (r % 8)) * 16 + column % 4 * 4;
    }
  }

  static __device__ __forceinline__ void bring(float* target, const CUtensorMap& map, int64_t row,
                                               int64_t k, CopyBarrier& barrier) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int64_t first = kDepthInside ? row : k, column = (kDepthInside ? k : row) + box * kBoxColumns;
      copy_box(target + box * kBoxBytes / 4, map, int(first), int(column), barrier);
    }
  }

  // Of each row the numbers 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 of the step for lane c of four.
  __device__ __forceinline__ void load(uint32_t tile, int step, uint32_t (&numbers)[2][kWidth]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (kDepthInside) {
          const int in_box = (step % 2 * 4 + half * 2) * 16;
          const auto pair = load_shared<2>(tile + step / 2 * kBoxBytes + (addresses_[i] ^ in_box));
          numbers[i][2 * half] = pair.value[0];
          numbers[i][2 * half + 1] = pair.value[1];
        } else {
          const auto pair =
              load_shared<2>(tile + addresses_[i] + (step * kStep + half * 8) * kRowBytes);
          numbers[0][2 * half + i] = pair.value[0];
          numbers[1][2 * half + i] = pair.value[1];
        }
      }
    }
  }

 private:
  uint32_t addresses_[2];
};

// One thread's work: every stage into its slot, once the products of the stage before have let go of it.
template <bool kDepthInside>
__device__ __forceinline__ void bring_stages(SharedMemory& shared, const Part& part,
                                             const CUtensorMap& a, const void* b_parts) {
  const auto* source =
      static_cast<const StageParts*>(b_parts) + part.column / kTile * part.all_stages + part.first;
  for (int i = 0; i < part.stages; ++i) {
    const int slot = i % kStages, round = i / kStages;
    if (round > 0) shared.empty[slot].wait((round - 1) % 2);
    auto& stage = shared.stages[slot];
    auto& full = shared.full[slot];
    full.arrive_and_expect(int(sizeof(Stage)));
    Rows<kDepthInside>::bring(stage.a, a, part.row, (part.first + i) * kStage, full);
    copy_bulk(shared_address(&stage.b), source + i, int(sizeof(StageParts)), full);
  }
}

// A step of A, as instructions take it.
struct StepParts {
  uint32_t high[4], low[4];

  __device__ __forceinline__ void split(const uint32_t (&numbers)[2][kWidth], const float (&scales)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i % 2, at = i / 2 * 2;
      const HalfParts pair(numbers[row][at], numbers[row][at + 1], scales[row]);
      high[i] = pair.high;
      low[i] = pair.low;
    }
  }
};

using Sums = float[kTile / 2];

__device__ __forceinline__ void move_sums(Sums& from, Sums& to) {
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    to[i] += from[i];
    from[i] = 0;
  }
}

template <bool kDepthInside>
__device__ __forceinline__ void multiply(SharedMemory& shared, const FloatProductArgs& args,
                                         const Part& part, int64_t row, Sums& sums) {
  const Rows<kDepthInside> rows(int(row - part.row));
  float scales[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scales[i] = HalfScale(args.magnitudes[min(row + i, args.a.vectors - 1)]).scale;
  }
  StepParts parts[2];
  Sums truncated = {};
  for (int i = 0; i < part.stages; ++i) {
    const int slot = i % kStages;
    shared.full[slot].wait(i / kStages % 2);
    const auto& stage = shared.stages[slot];
    const uint32_t a = shared_address(stage.a);
    const uint64_t high = matrix_descriptor(stage.b.high[0]);
    const uint64_t low = matrix_descriptor(stage.b.low[0]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      StepParts& own = parts[step % 2];
      uint32_t numbers[2][kWidth];
      rows.load(a, step, numbers);
      own.split(numbers, scales);
      fence_products();
      constexpr int kChunks = kStep * int(sizeof(Half)) / 16;
      wgmma_of_registers(truncated, own.low, high + step * kChunks);
      wgmma_of_registers(truncated, own.high, low + step * kChunks);
      wgmma_of_registers(truncated, own.high, high + step * kChunks);
      commit_products();
      wait_for_products<1>();  // the other parts are free, and after the first step the stage before
      if (step == 0 && i > 0 && threadIdx.x % 32 == 0) {
        shared.empty[(i - 1) % kStages].arrive();
      }
    }
    if (i % (kPiece / kStage) == kPiece / kStage - 1) {
      wait_for_products<0>();
      move_sums(truncated, sums);
    }
  }
  wait_for_products<0>();
  move_sums(truncated, sums);
}

template <bool kDepthInside>
__device__ __forceinline__ void compute(SharedMemory& shared, const FloatProductArgs& args,
                                        const Part& part) {
  const int64_t row = part.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 * 2;
  Sums sums = {};
  multiply<kDepthInside>(shared, args, part, row, sums);
  shared.columns_there.wait(0);
  constexpr int kFours = kTile / 16;  // of a row
  const auto column_of = [&](int four) { return four * 16 + int(threadIdx.x) % 4 * kWidth; };
  const auto sum_of = [](int i, int four, int j) { return (four * 2 + j / 2) * 4 + i * 2 + j % 2; };
  const bool whole = args.splits == 1;  // else the sums themselves are results, for add_splits()
  float* target = whole ? args.results : args.sums + part.split * args.a.vectors * args.b.vectors;
  uint32_t not_finite = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + i >= args.a.vectors) break;
    const float of_row = whole ? row_inverse(args, row + i) : 1;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const int64_t column = part.column + column_of(four);
      if (column >= args.b.vectors) break;
      float own[kWidth], results[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) own[j] = sums[sum_of(i, four, j)];
      if (results_of(own, of_row, shared.columns[column_of(four) / kWidth], results) || !whole) {
        store_results(target + (row + i) * args.b.vectors + column, whole && args.adds, results);
      } else {
        not_finite |= 1u << (i * kFours + four);
      }
    }
  }
  if (not_finite == 0) return;
  float copy[kTile / 2];
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) copy[i] = sums[i];
  for (; not_finite != 0; not_finite &= not_finite - 1) {
    const int at = __ffs(int(not_finite)) - 1, i = at / kFours, four = at % kFours;
    const float own[kWidth] = {copy[sum_of(i, four, 0)], copy[sum_of(i, four, 1)],
                               copy[sum_of(i, four, 2)], copy[sum_of(i, four, 3)]};
    store_anew(args, row + i, part.column + column_of(four), own, row_inverse(args, row + i),
               shared.columns[column_of(four) / kWidth]);
  }
}

// Where the code has no wgmma the kernel takes one thread, by which the host knows.
template <bool kDepthInside>
__global__ void __launch_bounds__(LLTM_JIT_HAS_WGMMA ? kBlock : 1, 1)
    multiply_floats(const __grid_constant__ FloatProductArgs args,
                    const __grid_constant__ CUtensorMap a) {
#if LLTM_JIT_HAS_WGMMA
  extern __shared__ char dynamic[];
  auto& shared = *reinterpret_cast<SharedMemory*>(dynamic + (-shared_address(dynamic) & 1023));
  const Part part(args);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(kGroups * 4);
    }
    shared.columns_there.init(32);
    publish_barriers();
  }
  __syncthreads();
  wait_for_predecessor_alone();
  const int warp = threadIdx.x / 32;
  if (warp >= kGroups * 4) {
    give_registers<24>();
    if (warp == kGroups * 4 && threadIdx.x % 32 == 0) {
      bring_stages<kDepthInside>(shared, part, a, args.b_parts);
    }
    if (warp == kGroups * 4 + 1) bring_columns(shared, args, part);
  } else {
    take_registers<240>();
    compute<kDepthInside>(shared, args, part);
  }
#else
  __trap();  // never launched: the host asks
#endif
}

}  // namespace

int64_t float_parts_bytes(const FloatFactor& b) {
  return ceil_div(b.vectors, kTile) * stages_of(b.depth) * int64_t(sizeof(StageParts));
}

cudaError_t float_product_runs(const FloatFactor& a, const FloatFactor& b, bool* runs) {
  *runs = false;
  for (const auto& factor : {a, b}) {
    const int64_t width = factor.depth_inside ? factor.depth : factor.vectors;
    if (width % kWidth != 0 || factor.row_stride % kWidth != 0 || factor.row_stride < width ||
        !aligned(kAccessBytes, factor.numbers) || max(factor.vectors, factor.depth) > INT32_MAX) {
      return cudaSuccess;
    }
  }
  if (b.vectors % kWidth != 0) return cudaSuccess;
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
  const cudaError_t error = ask_once(ask, &multiprocessors);
  if (error != cudaSuccess) return error;
  const Tiles tiles(a.vectors, b.vectors);
  double least = 0;
  for (int64_t count = 1; count <= min(max(a.depth / kLeastDepth, int64_t(1)), kMost); ++count) {
    // In us, on an H200: of blocks, one after the other on each SM, and of adding what they have.
    constexpr double kOfBlock = 4, kOfStage = 1.2, kOfAdding = 3, kBytes = 3e6;
    const int64_t waves = ceil_div(tiles.across * tiles.down * count, int64_t(multiprocessors));
    const int64_t stages = ceil_div(stages_of(a.depth), count);
    double time = double(waves) * (kOfBlock + kOfStage * double(stages));
    if (count > 1) {
      const auto sums = double(a.vectors * b.vectors) * sizeof(float);
      time += kOfAdding + sums * double(2 * count) / kBytes;
    }
    if (count == 1 || time < least) *splits = int(count), least = time;
  }
  return cudaSuccess;
}

cudaError_t launch_float_product(const FloatProductArgs& args, cudaStream_t stream) {
  const FloatFactor &a = args.a, &b = args.b;
  const int64_t numbers = max(a.vectors * a.depth, b.vectors * b.depth);
  cudaError_t error = launch(find_magnitudes, 2 * blocks_for(numbers / (kRowsOfWarp * kWidth)), kThreads,
                             0, stream, args);
  if (error != cudaSuccess) return error;
  const unsigned split_blocks = blocks_for(float_parts_bytes(b) / int(sizeof(StageParts)) * kThreads);
  error = launch(b.depth_inside ? split_right_factor<true> : split_right_factor<false>, split_blocks,
                 kThreads, 0, stream, args);
  if (error != cudaSuccess) return error;
  CUtensorMap map;
  if (!encode_map<float>(&map, a.numbers, a.depth_inside ? a.vectors : a.depth,
                         a.depth_inside ? a.depth : a.vectors, a.row_stride,
                         a.depth_inside ? kTile : kStage)) {
    return cudaErrorInvalidValue;
  }
  const Tiles tiles(a.vectors, b.vectors);
  error = launch(a.depth_inside ? multiply_floats<true> : multiply_floats<false>,
                 unsigned(tiles.across * tiles.down * args.splits),
                 kBlock, kSharedBytes, stream, args, map);
  if (error != cudaSuccess || args.splits == 1) return error;
  return launch(add_splits, blocks_for(a.vectors * b.vectors / kWidth), kThreads, 0, stream, args);
}

}  // namespace lltm_jit
