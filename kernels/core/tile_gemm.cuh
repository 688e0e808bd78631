// A block's share of a small matrix product: C = A B for one tile of C, in registers and shared
// memory, with the sum over k split among the groups of threads of the block.
//
// Note [Small products]
// A recurrent cell's products are small: a library GEMM tiles them into a handful of blocks and
// leaves most of the chip idle, or splits k over blocks and pays for a second pass. Here tiles of C
// are as small as it takes to give every SM one, and each tile's k range is divided among kGroups
// thread groups of one block, whose partial sums meet in shared memory, in a fixed order. The
// epilogue finds the finished tile there, so activations cost no further launch.
//
// Operands come through cp.async in kStages stages of kStageK each; rows are padded by 16 bytes, so
// that the eight threads of an LDS.128 phase touch different banks.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "core/launch.cuh"

namespace lltm_jit {

// How an operand lies in memory: its rows run along k, or along m (A) or n (B).
enum class Along { K, MN };

// How a tile is summed up: by each thread for itself, or by warps with tensor cores (16-bit types,
// operands along k; a group is a warp).
enum class Unit { Threads, TensorCores };

// kM x kN: the tile of C. kThreadM x kThreadN: what one thread accumulates. kGroups: shares of k.
// kStageK: k of one stage. kChunk: bytes of one copy, 16 or one element.
template <typename scalar_t_, int kM_, int kN_, int kThreadM_, int kThreadN_, int kGroups_,
          int kStageK_, int kStages_, Along kAlongA_, Along kAlongB_, Unit kUnit_ = Unit::Threads>
struct TileShape {
  using scalar_t = scalar_t_;
  using opmath = opmath_t<scalar_t>;
  static constexpr int kM = kM_, kN = kN_, kThreadM = kThreadM_, kThreadN = kThreadN_;
  static constexpr int kGroups = kGroups_, kStageK = kStageK_, kStages = kStages_;
  static constexpr Along kAlongA = kAlongA_, kAlongB = kAlongB_;
  static constexpr Unit kUnit = kUnit_;
  static constexpr int kVec = kAccessBytes / sizeof(scalar_t);
  static constexpr int kStepK = kUnit == Unit::TensorCores ? 16 : kVec;  // k of one inner step
  static constexpr int kLanesM = kM / kThreadM, kLanesN = kN / kThreadN;
  static constexpr int kThreads = kLanesM * kLanesN * kGroups;
  // Elements of one padded row of each operand in shared memory, and of one stage.
  static constexpr int kRowA = (kAlongA == Along::K ? kStageK : kM) + kVec;
  static constexpr int kRowB = (kAlongB == Along::K ? kStageK : kN) + kVec;
  static constexpr int kRowsA = kAlongA == Along::K ? kM : kStageK;
  static constexpr int kRowsB = kAlongB == Along::K ? kN : kStageK;
  static constexpr int kStageElements = kRowsA * kRowA + kRowsB * kRowB;
  static constexpr int kSharedBytes = std::max<int>(kStages * kStageElements * sizeof(scalar_t),
                                                    kGroups * kM * kN * sizeof(opmath));
  static_assert(kM % kThreadM == 0 && kN % kThreadN == 0 && kStageK % kStepK == 0);
  static_assert(kAlongA == Along::K || kThreadM % kVec == 0);
  static_assert(kAlongB == Along::K || kThreadN % kVec == 0);
};

// One row of A or one column of B: element k, and what follows it in the operand's own direction.
template <typename scalar_t>
struct Line {
  const scalar_t* base;  // null past the operand's edge
  int64_t stride;        // from one k to the next
  int size;              // of k
  __device__ __forceinline__ const scalar_t* at(int k) const {
    return base && k < size ? base + k * stride : nullptr;
  }
};

// Copies 16 bytes or one element to shared memory; zeros where `from` is null.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* target, const void* from) {
#if __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(target));
  const int bytes = from ? kBytes : 0;
  if constexpr (kBytes == 16) {  // past L1: no other block of the SM reads the same
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes),
                 "n"(kBytes));
  }
#else
  __trap();  // never launched: see lltm_products_fit_device
#endif
}

// One operand's copies to shared memory: a thread's lines are found once for all stages.
template <Along kAlong, int kLines, int kStageK, int kRowElements, int kChunk, int kThreads,
          typename scalar_t, typename LineType>
struct StageCopy {
  static constexpr int kElements = kChunk / int(sizeof(scalar_t));
  static constexpr bool kAlongK = kAlong == Along::K;
  static constexpr int kRows = kAlongK ? kLines : kStageK;
  static constexpr int kChunks = (kAlongK ? kStageK : kLines) / kElements;  // of a row
  static constexpr int kRowStep = kThreads / kChunks;
  static constexpr int kCopies = (kRows + kRowStep - 1) / kRowStep;
  static_assert(kThreads % kChunks == 0);
  const int row = threadIdx.x / kChunks, column = threadIdx.x % kChunks * kElements;
  LineType lines[kAlongK ? kCopies : 1];

  template <typename LineOf>
  __device__ __forceinline__ explicit StageCopy(const LineOf& line_of) {
    if constexpr (kAlongK) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) lines[i] = line_of(row + i * kRowStep);
    } else {
      lines[0] = line_of(column);
    }
  }

  __device__ __forceinline__ void fetch(scalar_t* target, int k0) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int r = row + i * kRowStep;
      if (kRows % kRowStep != 0 && r >= kRows) continue;
      copy_async<kChunk>(target + r * kRowElements + column,
                         kAlongK ? lines[kAlongK ? i : 0].at(k0 + column) : lines[0].at(k0 + r));
    }
  }
};

// One thread's kCount rows of an operand, for kVec consecutive k. Row r of the result is row
// lane + r * kLanes of the tile (along k), or element r % kVec of its r / kVec-th vector (along mn).
template <Along kAlong, int kCount, int kLanes, int kRowElements, int kVec, typename scalar_t>
__device__ __forceinline__ void load_fragment(const scalar_t* tile, int lane, int k,
                                              opmath_t<scalar_t> (&values)[kCount][kVec]) {
  if constexpr (kAlong == Along::K) {
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      load_pack<kVec>(tile + (lane + r * kLanes) * kRowElements + k, values[r]);
    }
  } else {
#pragma unroll
    for (int kk = 0; kk < kVec; ++kk) {
#pragma unroll
      for (int v = 0; v < kCount / kVec; ++v) {
        opmath_t<scalar_t> vector[kVec];
        load_pack<kVec>(tile + (k + kk) * kRowElements + (lane + v * kLanes) * kVec, vector);
#pragma unroll
        for (int e = 0; e < kVec; ++e) values[v * kVec + e][kk] = vector[e];
      }
    }
  }
}

// The tile's row or column that register r of a thread holds.
template <Along kAlong, int kLanes, int kVec>
__device__ __forceinline__ int fragment_index(int lane, int r) {
  return kAlong == Along::K ? lane + r * kLanes : (lane + r / kVec * kLanes) * kVec + r % kVec;
}

// One group's partial sums, in the registers of its threads.
template <typename Shape, Unit kUnit = Shape::kUnit>
struct GroupSums {
  using scalar_t = typename Shape::scalar_t;
  using opmath = typename Shape::opmath;
  static constexpr int kVec = Shape::kVec, kGroupThreads = Shape::kLanesM * Shape::kLanesN;
  const int group = threadIdx.x / kGroupThreads;
  const int lane_m = threadIdx.x % kGroupThreads / Shape::kLanesN;
  const int lane_n = threadIdx.x % Shape::kLanesN;
  opmath sums[Shape::kThreadM][Shape::kThreadN] = {};

  __device__ __forceinline__ void add(const scalar_t* a, const scalar_t* b, int k) {
    opmath x[Shape::kThreadM][kVec], y[Shape::kThreadN][kVec];
    load_fragment<Shape::kAlongA, Shape::kThreadM, Shape::kLanesM, Shape::kRowA>(a, lane_m, k, x);
    load_fragment<Shape::kAlongB, Shape::kThreadN, Shape::kLanesN, Shape::kRowB>(b, lane_n, k, y);
#pragma unroll
    for (int kk = 0; kk < kVec; ++kk) {
#pragma unroll
      for (int i = 0; i < Shape::kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kThreadN; ++j) sums[i][j] += x[i][kk] * y[j][kk];
      }
    }
  }

  __device__ __forceinline__ void store(opmath* partial) const {
#pragma unroll
    for (int i = 0; i < Shape::kThreadM; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kThreadN; ++j) {
        const int m = fragment_index<Shape::kAlongA, Shape::kLanesM, kVec>(lane_m, i);
        const int n = fragment_index<Shape::kAlongB, Shape::kLanesN, kVec>(lane_n, j);
        partial[m * Shape::kN + n] = sums[i][j];
      }
    }
  }
};

// The same by mma.m16n8k16: a warp sums the whole tile over its share of k.
template <typename Shape>
struct GroupSums<Shape, Unit::TensorCores> {
  using scalar_t = typename Shape::scalar_t;
  static constexpr int kTilesM = Shape::kM / 16, kTilesN = Shape::kN / 8;
  const int group = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sums[kTilesM][kTilesN][4] = {};

  __device__ __forceinline__ void add(const scalar_t* a, const scalar_t* b, int k) {
    uint32_t x[kTilesM][4], y[kTilesN][2];
#pragma unroll
    for (int i = 0; i < kTilesM; ++i) {
      load_matrices(a + (i * 16 + lane % 16) * Shape::kRowA + k + lane / 16 * 8, x[i]);
    }
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      load_matrices(b + (j * 8 + lane % 8) * Shape::kRowB + k + lane / 8 % 2 * 8, y[j]);
    }
#pragma unroll
    for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) mma(sums[i][j], x[i], y[j]);
    }
  }

  __device__ __forceinline__ void store(float* partial) const {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int m = i * 16 + lane / 4 + e / 2 * 8, n = j * 8 + lane % 4 * 2 + e % 2;
          partial[m * Shape::kN + n] = sums[i][j][e];
        }
      }
    }
  }

 private:
  static __device__ __forceinline__ void load_matrices(const scalar_t* row, uint32_t (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
  }
  static __device__ __forceinline__ void load_matrices(const scalar_t* row, uint32_t (&r)[2]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
  }
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
#define LLTM_JIT_MMA(type)                                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (std::is_same_v<scalar_t, __half>) {
      LLTM_JIT_MMA("f16");
    } else {
      LLTM_JIT_MMA("bf16");
    }
#undef LLTM_JIT_MMA
#else
    __trap();  // never launched: see lltm_products_fit_device
#endif
  }
};

// Computes the tile and leaves the groups' partial sums in `shared`: see tile_value.
// a_line(m) and b_line(n) are the lines of A and B through the tile, `size_k` their length.
template <typename Shape, int kChunk, typename LinesA, typename LinesB>
__device__ __forceinline__ void tile_gemm(char* shared, int size_k, const LinesA& a_line,
                                          const LinesB& b_line) {
  using scalar_t = typename Shape::scalar_t;
  constexpr int kStepK = Shape::kStepK, kStageK = Shape::kStageK, kStages = Shape::kStages;
  const StageCopy<Shape::kAlongA, Shape::kM, kStageK, Shape::kRowA, kChunk, Shape::kThreads,
                  scalar_t, decltype(a_line(0))>
      a_copy(a_line);
  const StageCopy<Shape::kAlongB, Shape::kN, kStageK, Shape::kRowB, kChunk, Shape::kThreads,
                  scalar_t, decltype(b_line(0))>
      b_copy(b_line);
  scalar_t* const stages = reinterpret_cast<scalar_t*>(shared);
  const auto fetch = [&](int stage) {
    if (stage * kStageK < size_k) {
      scalar_t* target = stages + stage % kStages * Shape::kStageElements;
      a_copy.fetch(target, stage * kStageK);
      b_copy.fetch(target + Shape::kRowsA * Shape::kRowA, stage * kStageK);
    }
    __pipeline_commit();
  };

  GroupSums<Shape> sums;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage);
  for (int stage = 0; stage * kStageK < size_k; ++stage) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // the stage has arrived, and nobody reads the one that is fetched into next
    fetch(stage + kStages - 1);
    const scalar_t* a = stages + stage % kStages * Shape::kStageElements;
    const scalar_t* b = a + Shape::kRowsA * Shape::kRowA;
    const int rest = min(kStageK, size_k - stage * kStageK);
    for (int k = sums.group * kStepK; k < rest; k += Shape::kGroups * kStepK) sums.add(a, b, k);
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  sums.store(reinterpret_cast<typename Shape::opmath*>(shared) +
             sums.group * Shape::kM * Shape::kN);
  __syncthreads();
}

// kCount elements of the finished tile from (m, n) on: the groups' partial sums, always in the same
// order.
template <typename Shape, int kCount>
__device__ __forceinline__ void tile_values(const char* shared, int m, int n,
                                            typename Shape::opmath (&values)[kCount]) {
  const auto* partial = reinterpret_cast<const typename Shape::opmath*>(shared);
  load_pack<kCount>(partial + m * Shape::kN + n, values);
#pragma unroll
  for (int group = 1; group < Shape::kGroups; ++group) {
    typename Shape::opmath more[kCount];
    load_pack<kCount>(partial + (group * Shape::kM + m) * Shape::kN + n, more);
#pragma unroll
    for (int k = 0; k < kCount; ++k) values[k] += more[k];
  }
}

template <typename Shape>
__device__ __forceinline__ typename Shape::opmath tile_value(const char* shared, int m, int n) {
  typename Shape::opmath value[1];
  tile_values<Shape>(shared, m, n, value);
  return value[0];
}

// Writes the finished tile, kCount elements at a time, to `target(m, n)`: null past the edge.
template <typename Shape, int kCount, typename Target>
__device__ __forceinline__ void store_tile(const char* shared, const Target& target) {
  constexpr int kVectors = Shape::kN / kCount;
  for (int i = threadIdx.x; i < Shape::kM * kVectors; i += Shape::kThreads) {
    const int m = i / kVectors, n = i % kVectors * kCount;
    if (auto* to = target(m, n)) {
      typename Shape::opmath values[kCount];
      tile_values<Shape>(shared, m, n, values);
      store_pack<kCount>(to, values);
    }
  }
}

}  // namespace lltm_jit
