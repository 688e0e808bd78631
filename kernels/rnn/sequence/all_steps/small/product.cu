#include "core/launch/launch.cuh"
#include "core/memory/async_copy.cuh"
#include "core/memory/bulk_copy.cuh"
#include "rnn/sequence/all_steps/small/kernels.h"

namespace lltm_jit {
namespace {

constexpr int kTile = 16, kDepth = 4;  // results of a block, and what a warp multiplies at once
constexpr int kResults = kTile * kTile, kSums = kResults + kTile;
constexpr int kRows = 2, kColumns = 4;  // results of a lane
constexpr int kWidth = 4;               // numbers of a copy
constexpr int kStages = 4, kMostWarps = 16;

int64_t tiles_of(int64_t size) { return ceil_div(size, int64_t(kTile)); }

// kDepth numbers of each of a tile's vectors, as they lie in memory.
template <typename T, bool kDepthInside>
struct Slice {
  T numbers[kTile * kDepth];

  // Of kCount vectors from `first` on.
  template <int kCount>
  __device__ __forceinline__ void read(int first, float (&values)[kCount][kDepth]) const {
    if constexpr (kDepthInside) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) load_pack<kDepth>(numbers + (first + i) * kDepth, values[i]);
    } else {
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        float of_all[kCount];
        load_pack<kCount>(numbers + k * kTile + first, of_all);
#pragma unroll
        for (int i = 0; i < kCount; ++i) values[i][k] = of_all[i];
      }
    }
  }
};

template <typename T, bool kAInside, bool kBInside>
struct Stage {
  Slice<T, kAInside> a;
  Slice<T, kBInside> b;
};

// A warp's.
template <typename Stage>
struct Shared {
  union {
    Stage stages[kStages];
    float sums[kSums];  // of the products, and of A's rows
  };
};

// What a lane copies of every stage: kWidth numbers of A or B.
template <typename T>
struct Copies {
  const T* from;           // at depth 0
  int vector, depth, end;  // of the first number, and the factor's end
  int64_t of_depth;        // from a number to the next one of its vector
  bool exist;

  __device__ __forceinline__ Copies(const SmallFactor& factor, int lane, int first, int64_t vectors,
                                    int64_t end)
      : end(int(end)) {
    const bool inside = factor.depth_inside;
    vector = first + (inside ? lane : lane % (kTile / kWidth) * kWidth);
    depth = inside ? 0 : lane / (kTile / kWidth);
    of_depth = inside ? 1 : factor.row_stride;
    exist = vector < vectors;
    from = static_cast<const T*>(factor.numbers) + vector * (inside ? factor.row_stride : 1);
  }
  __device__ __forceinline__ void copy(uint32_t to, int k, const SmallRows& rows) const {
    k += depth;
    const bool elsewhere = k >= rows.begin && k < rows.end;
    const bool there = exist && k < end && !(elsewhere && !rows.numbers);
    const T* place = from + k * of_depth;
    if (elsewhere) {
      place = static_cast<const T*>(rows.numbers) + vector + (k - rows.begin) * rows.row_stride;
    }
    copy_async<kWidth * sizeof(T)>(to, there ? place : from, there ? kWidth * sizeof(T) : 0);
  }
};

template <typename T, bool kAInside, bool kBInside>
__global__ void __launch_bounds__(32 * kMostWarps)
    multiply_small(const __grid_constant__ SmallProductArgs args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) char all_shared[];
  auto* shared = reinterpret_cast<Shared<Stage<T, kAInside, kBInside>>*>(all_shared);
  const int across = int(ceil_div(args.columns, int64_t(kTile)));
  const int first_row = int(blockIdx.x) / across * kTile;
  const int first_column = int(blockIdx.x) % across * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int row = lane / 4 * kRows, column = lane % 4 * kColumns;
  const bool of_b = lane >= kTile;
  Copies<T> copies(of_b ? args.b : args.a, lane % kTile, of_b ? first_column : first_row,
                   of_b ? args.columns : args.rows, args.depth);
  auto& stages = shared[warp].stages;
  const auto bring = [&](int step) {
    const int k = (step * warps + warp) * kDepth;
    const uint32_t to = shared_address(&stages[step % kStages]) + lane * kWidth * sizeof(T);
    if (k < args.depth) copies.copy(to, k, of_b ? args.rows_of_b : SmallRows{});
    commit_copies();
  };
  wait_for_predecessor();
#pragma unroll
  for (int step = 0; step < kStages; ++step) bring(step);
  float sums[kRows][kColumns] = {}, of_rows[kRows] = {};
  for (int step = 0; (step * warps + warp) * kDepth < args.depth; ++step) {
    wait_for_copies<kStages - 1>();
    __syncwarp();
    const auto& stage = stages[step % kStages];
    float a[kRows][kDepth], b[kColumns][kDepth];
    stage.a.read(row, a);
    stage.b.read(column, b);
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        of_rows[r] += a[r][k];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[r][c] += a[r][k] * b[c][k];
      }
    }
    __syncwarp();
    bring(step + kStages);
  }
  wait_for_copies<0>();
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    store_pack<kColumns>(shared[warp].sums + (row + r) * kTile + column, sums[r]);
    if (column == 0) shared[warp].sums[kResults + row + r] = of_rows[r];
  }
  __syncthreads();
  // From place i of a warp's sums.
  const auto write = [&](int i, float (&four)[kWidth]) {
    if (i >= kResults) {
      const int64_t to = first_row + i - kResults;
      if (args.sums && first_column == 0 && to < args.rows) {
        store_pack<kWidth>(static_cast<T*>(args.sums) + to, four);
      }
      return;
    }
    const int64_t to_row = first_row + i / kTile, to_column = first_column + i % kTile;
    if (to_row >= args.rows) return;
    T* to = static_cast<T*>(args.results) + to_row * args.columns + to_column;
    const int there = int(min(args.columns - to_column, int64_t(kWidth)));
    if (args.initial) {
      const T* initial = static_cast<const T*>(args.initial) + to_column;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        if (c < there) four[c] += to_opmath(initial[c]);
      }
    }
    if (args.columns % kWidth == 0 && there == kWidth) {
      store_pack<kWidth>(to, four);
    } else {
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        if (c < there) to[c] = from_opmath<T>(four[c]);
      }
    }
  };
  for (int i = int(threadIdx.x) * kWidth; i < kSums; i += int(blockDim.x) * kWidth) {
    float four[kWidth] = {}, more[kWidth];
    for (int other = 0; other < warps; ++other) {
      load_pack<kWidth>(shared[other].sums + i, more);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) four[c] += more[c];
    }
    write(i, four);
  }
#endif
}

template <typename T, bool kAInside, bool kBInside>
cudaError_t launch_as(const SmallProductArgs& args, cudaStream_t stream) {
  const int warps = int(min(ceil_div(args.depth, int64_t(kStages * kDepth)), int64_t(kMostWarps)));
  const auto blocks = static_cast<unsigned>(tiles_of(args.rows) * tiles_of(args.columns));
  const int bytes = warps * int(sizeof(Shared<Stage<T, kAInside, kBInside>>));
  return launch(multiply_small<T, kAInside, kBInside>, blocks, 32 * warps, bytes, stream, args);
}

template <typename T>
cudaError_t launch_as(const SmallProductArgs& args, cudaStream_t stream) {
  return !args.a.depth_inside  ? launch_as<T, false, false>(args, stream)
         : args.b.depth_inside ? launch_as<T, true, true>(args, stream)
                               : launch_as<T, true, false>(args, stream);
}

bool is_whole(const SmallFactor& factor, int64_t vectors, int64_t depth, int bytes) {
  return (factor.depth_inside ? depth : vectors) % kWidth == 0 && factor.row_stride % kWidth == 0 &&
         aligned(kWidth * bytes, static_cast<const char*>(factor.numbers));
}

}  // namespace

bool small_product_pays(const SmallProductArgs& args) {
  // About a block for each SM.
  constexpr int64_t kMostTiles = 160;
  const int bytes = args.type == ElementType::Float ? 4 : 2;
  return args.rows * args.columns * args.depth > 0 && args.depth <= kMostSmallDepth &&
         tiles_of(args.rows) * tiles_of(args.columns) <= kMostTiles &&
         (args.a.depth_inside || !args.b.depth_inside) &&
         is_whole(args.a, args.rows, args.depth, bytes) &&
         is_whole(args.b, args.columns, args.depth, bytes) &&
         is_whole({args.rows_of_b.numbers, args.rows_of_b.row_stride, false}, args.columns,
                  args.depth, bytes);
}

cudaError_t launch_small_product(const SmallProductArgs& args, cudaStream_t stream) {
  switch (args.type) {
    case ElementType::Half:
      return launch_as<Half>(args, stream);
    case ElementType::BFloat16:
      return launch_as<BFloat16>(args, stream);
    default:
      return launch_as<float>(args, stream);
  }
}

}  // namespace lltm_jit
