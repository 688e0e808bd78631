#include <algorithm>

#include "core/launch/launch.cuh"
#include "core/memory/async_copy.cuh"
#include "core/memory/bulk_copy.cuh"
#include "rnn/sequence/all_steps/small/kernels.h"

namespace lltm_jit {
namespace {

constexpr int kTile = 16, kDepth = 4;  // results per block; depth that a warp multiplies at once
constexpr int kResults = kTile * kTile, kSums = kResults + kTile;
constexpr int kRows = 2, kColumns = 4;  // results per lane
constexpr int kWidth = 4;               // numbers per copy
constexpr int kStages = 4, kMostWarps = 16;
// A cluster may share a depth above kDeep; a single block takes at most kMostDepthOfBlock.
constexpr int kDeep = 512, kMostDepthOfBlock = 1024, kBlocksOfCluster = 8;

LLTM_JIT_HOST_DEVICE int64_t tiles_of(const SmallProductArgs& args) {
  return ceil_div(args.rows, int64_t(kTile)) * ceil_div(args.columns, int64_t(kTile));
}
// The number of warps per block if kBlocks blocks share a depth.
template <int kBlocks>
LLTM_JIT_HOST_DEVICE int warps_of(const SmallProductArgs& args) {
  return min(int(ceil_div(args.depth, int64_t(kStages * kDepth * kBlocks))), kMostWarps);
}
// The number of blocks. A product that shares no depth gives each block of a cluster a tile of its own.
template <int kBlocks>
LLTM_JIT_HOST_DEVICE int blocks_of(const SmallProductArgs& args) {
  const auto tiles = int(tiles_of(args));
  return kBlocks * (args.a.depth_inside ? ceil_div(tiles, kBlocks) : tiles);
}

// kDepth numbers of each of a tile's vectors, in the layout of memory.
template <typename T, bool kDepthInside>
struct Slice {
  T numbers[kTile * kDepth];

  // Reads kCount vectors from `first` on.
  template <int kCount>
  LLTM_JIT_DEVICE void read(int first, float (&values)[kCount][kDepth]) const {
    if constexpr (kDepthInside) {
      LLTM_JIT_UNROLLED(i, kCount) load_pack<kDepth>(numbers + (first + i) * kDepth, values[i]);
    } else {
      LLTM_JIT_UNROLLED(k, kDepth) {
        float of_all[kCount];
        load_pack<kCount>(numbers + k * kTile + first, of_all);
        LLTM_JIT_UNROLLED(i, kCount) values[i][k] = of_all[i];
      }
    }
  }
};

template <typename T, bool kAInside, bool kBInside>
struct Stage {
  Slice<T, kAInside> a;
  Slice<T, kBInside> b;
};

// A warp's part of shared memory.
template <typename Stage>
struct Shared {
  union {
    Stage stages[kStages];
    float sums[kSums];  // of the products, then of A's rows
  };
};

#if __CUDA_ARCH__ >= 900
// Loads four numbers at the same place in another block of the cluster.
LLTM_JIT_DEVICE void load_four(int block, const float* place, float (&four)[4]) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
               : "r"(address_in(shared_address(place), block))
               : "memory");
}
#endif

// The part of every stage that a lane copies: kWidth numbers of A or B.
template <typename T>
struct Copies {
  const T* from;           // at depth 0
  int vector, depth, end;  // of the first number; the factor's end
  int64_t of_depth;        // stride between numbers of a vector
  bool exist;

  LLTM_JIT_DEVICE Copies(const SmallFactor& factor, int lane, int first, int64_t vectors,
                         int64_t end)
      : end(int(end)) {
    const bool inside = factor.depth_inside;
    vector = first + (inside ? lane : lane % (kTile / kWidth) * kWidth);
    depth = inside ? 0 : lane / (kTile / kWidth);
    of_depth = inside ? 1 : factor.row_stride;
    exist = vector < vectors;
    from = static_cast<const T*>(factor.numbers) + vector * (inside ? factor.row_stride : 1);
  }
  LLTM_JIT_DEVICE void copy(uint32_t to, int k, const SmallRows& rows) const {
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

// Computes a tile, whose depth kBlocks blocks share.
template <typename T, bool kAInside, bool kBInside, int kBlocks = 1>
LLTM_JIT_DEVICE void multiply_tile(const SmallProductArgs& args, int tile, int block,
                                   char* all_shared) {
  auto* shared = reinterpret_cast<Shared<Stage<T, kAInside, kBInside>>*>(all_shared);
  const int across = int(ceil_div(args.columns, int64_t(kTile)));
  const int first_row = tile / across * kTile, first_column = tile % across * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // As many as if launched alone, whatever the launch's other products need, so that the sums are the same.
  const int warps = warps_of<kBlocks>(args), shares = kBlocks * warps;
  const int share = warp < warps ? block * warps + warp : int(args.depth);  // past the end: nothing
  const int row = lane / 4 * kRows, column = lane % 4 * kColumns;
  const bool of_b = lane >= kTile;
  Copies<T> copies(of_b ? args.b : args.a, lane % kTile, of_b ? first_column : first_row,
                   of_b ? args.columns : args.rows, args.depth);
  auto& stages = shared[warp].stages;
  const auto bring = [&](int step) {
    const int k = (step * shares + share) * kDepth;
    const uint32_t to = shared_address(&stages[step % kStages]) + lane * kWidth * sizeof(T);
    if (k < args.depth) copies.copy(to, k, of_b ? args.rows_of_b : SmallRows{});
    commit_copies();
  };
  wait_for_predecessor();
  LLTM_JIT_UNROLLED(step, kStages) bring(step);
  float sums[kRows][kColumns] = {}, of_rows[kRows] = {};
  for (int step = 0; (step * shares + share) * kDepth < args.depth; ++step) {
    wait_for_copies<kStages - 1>();
    __syncwarp();
    const auto& stage = stages[step % kStages];
    float a[kRows][kDepth], b[kColumns][kDepth];
    stage.a.read(row, a);
    stage.b.read(column, b);
    LLTM_JIT_UNROLLED2(k, kDepth, r, kRows) {
      of_rows[r] += a[r][k];
      LLTM_JIT_UNROLLED(c, kColumns) sums[r][c] += a[r][k] * b[c][k];
    }
    __syncwarp();
    bring(step + kStages);
  }
  wait_for_copies<0>();
  __syncwarp();
  LLTM_JIT_UNROLLED(r, kRows) {
    store_pack<kColumns>(shared[warp].sums + (row + r) * kTile + column, sums[r]);
    if (column == 0) shared[warp].sums[kResults + row + r] = of_rows[r];
  }
  __syncthreads();
  // Writes four sums, which begin at place i of a warp's sums.
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
      LLTM_JIT_UNROLLED(c, kWidth) {
        if (c < there) four[c] += to_opmath(initial[c]);
      }
    }
    if (args.columns % kWidth == 0 && there == kWidth) {
      store_pack<kWidth>(to, four);
    } else {
      LLTM_JIT_UNROLLED(c, kWidth) {
        if (c < there) to[c] = from_opmath<T>(four[c]);
      }
    }
  };
  const auto add = [](float (&four)[kWidth], const float (&more)[kWidth]) {
    LLTM_JIT_UNROLLED(c, kWidth) four[c] += more[c];
  };
  for (int i = int(threadIdx.x) * kWidth; i < kSums; i += int(blockDim.x) * kWidth) {
    float four[kWidth] = {}, more[kWidth];
    for (int other = 0; other < warps; ++other) {
      load_pack<kWidth>(shared[other].sums + i, more);
      add(four, more);
    }
    if constexpr (kBlocks == 1) {
      write(i, four);
    } else {
      store_pack<kWidth>(shared[0].sums + i, four);
    }
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    __syncwarp();
    synchronize_cluster();
    const int i = (int(threadIdx.x) * kBlocks + block) * kWidth;
    if (i < kSums) {
      float four[kWidth] = {}, more[kWidth];
      for (int other = 0; other < kBlocks; ++other) {
        load_four(other, shared[0].sums + i, more);
        add(four, more);
      }
      write(i, four);
    }
    synchronize_cluster();  // others read this block's memory until here
  }
#endif
}

template <typename T, int kBlocks>
__global__ void __launch_bounds__(32 * kMostWarps)
    multiply_small(const __grid_constant__ SmallProducts all) {
  extern __shared__ __align__(16) char shared[];
  int i = 0, block = int(blockIdx.x);
  for (; block >= blocks_of<kBlocks>(all.each[i]); ++i) block -= blocks_of<kBlocks>(all.each[i]);
  const SmallProductArgs& args = all.each[i];
  if (!args.a.depth_inside) {
    multiply_tile<T, false, false, kBlocks>(args, block / kBlocks, block % kBlocks, shared);
  } else if (block >= tiles_of(args)) {
    return;
  } else if (args.b.depth_inside) {
    multiply_tile<T, true, true>(args, block, 0, shared);
  } else {
    multiply_tile<T, true, false>(args, block, 0, shared);
  }
}

template <typename T>
constexpr int kSharedBytes = int(sizeof(Shared<Stage<T, false, false>>));

template <typename T, int kBlocks>
cudaError_t launch_as(const SmallProducts& all, cudaStream_t stream) {
  int warps = 1;
  unsigned blocks = 0;
  for (int i = 0; i < all.count; ++i) {
    const SmallProductArgs& args = all.each[i];
    warps = max(warps, args.a.depth_inside ? warps_of<1>(args) : warps_of<kBlocks>(args));
    blocks += blocks_of<kBlocks>(args);
  }
  return launch<kBlocks>(multiply_small<T, kBlocks>, blocks, 32 * warps, warps * kSharedBytes<T>,
                         stream, all);
}

// Calls function(T) for 16-bit types and floats.
template <typename Function>
auto of_type(ElementType type, const Function& function) {
  return type == ElementType::Half       ? function(Half())
         : type == ElementType::BFloat16 ? function(BFloat16())
                                         : function(float());
}

// Whether clusters can share a depth on this GPU.
bool clusters_run(ElementType type) {
  return of_type(type, [](auto one) {
    using T = decltype(one);
    const auto ask = [](int, bool* run) {
      const auto kernel = multiply_small<T, kBlocksOfCluster>;
      int architecture = 0;
      const cudaError_t error = code_architecture(kernel, &architecture);
      *run = error == cudaSuccess && architecture >= 90 &&
             clusters_at_once(kernel, kBlocksOfCluster, 32 * kMostWarps,
                              kMostWarps * kSharedBytes<T>) > 0;
      return error;
    };
    bool run = false;
    return ask_once(ask, &run) == cudaSuccess && run;
  });
}

// Whether a cluster is faster than a single block and than the library.
bool is_deep(const SmallProductArgs& args) {
  constexpr int64_t kMostProducts = int64_t(1) << 24;
  return !args.a.depth_inside && args.depth > kDeep &&
         args.rows * args.columns * args.depth <= kMostProducts;
}

bool is_whole(const SmallFactor& factor, int64_t vectors, int64_t depth, int bytes) {
  return (factor.depth_inside ? depth : vectors) % kWidth == 0 && factor.row_stride % kWidth == 0 &&
         aligned(kWidth * bytes, static_cast<const char*>(factor.numbers));
}

}  // namespace

bool small_product_pays(const SmallProductArgs& args) {
  // About one block or cluster per SM.
  constexpr int64_t kMostTiles = 160;
  const int bytes = args.type == ElementType::Float ? 4 : 2;
  const bool pays = args.rows * args.columns * args.depth > 0 && tiles_of(args) <= kMostTiles &&
                    (args.a.depth_inside || !args.b.depth_inside) &&
                    is_whole(args.a, args.rows, args.depth, bytes) &&
                    is_whole(args.b, args.columns, args.depth, bytes) &&
                    is_whole({args.rows_of_b.numbers, args.rows_of_b.row_stride, false},
                             args.columns, args.depth, bytes);
  return pays && (args.depth <= kMostDepthOfBlock ||
                  (is_deep(args) && args.depth <= kMostSmallDepth && clusters_run(args.type)));
}

cudaError_t launch_small_products(const SmallProducts& all, cudaStream_t stream) {
  const bool deep = std::any_of(all.each, all.each + all.count, is_deep);
  const ElementType type = all.each[0].type;
  return of_type(type, [&](auto one) {
    using T = decltype(one);
    return deep && clusters_run(type) ? launch_as<T, kBlocksOfCluster>(all, stream)
                                      : launch_as<T, 1>(all, stream);
  });
}

}  // namespace lltm_jit
