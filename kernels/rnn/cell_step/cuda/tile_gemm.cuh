// A block's part of a small matrix product: C = A B for one tile of C, in registers and shared
// memory. Groups of the block's warps split the sum over k.
//
// Note [Small products]
// A recurrent cell's products are small. A library GEMM divides them into a handful of blocks and
// leaves most of the chip idle, or it splits k over blocks and needs a second pass. Here, tiles of
// C are small enough to give every SM one. kGroups groups of warps divide a tile's range of k, and
// their partial sums are added in shared memory, in a fixed order. The epilogue finds the tile
// there, so activations need no further launch.
//
// cp.async fetches the operands in stages of kStageK each. Shared memory holds kStages of them, or
// one fewer on chips with less shared memory: the launcher decides.
#pragma once

#include <algorithm>

#include "core/launch/launch.cuh"
#include "core/memory/async_copy.cuh"
#include "core/memory/barrier.cuh"
#include "rnn/cell_step/cuda/warp_product.cuh"

namespace lltm_jit {

// kM x kN: the tile of C. kWarpM x kWarpN: the part that one warp accumulates. kGroups: the groups
// that share k. kStageK: k per stage. kStages: the most stages.
template <typename scalar_t_, int kM_, int kN_, int kWarpM_, int kWarpN_, int kGroups_,
          int kStageK_, int kStages_, Along kAlongA_, Along kAlongB_>
struct TileShape {
  using scalar_t = scalar_t_;
  using opmath = opmath_t<scalar_t>;
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kGroups = kGroups_, kStageK = kStageK_, kStages = kStages_;
  static constexpr Along kAlongA = kAlongA_, kAlongB = kAlongB_;
  static constexpr int kGroupWarps = kM / kWarpM * (kN / kWarpN);
  static constexpr int kThreads = 32 * kGroupWarps * kGroups;
  // Elements in shared memory of one padded row of each operand, and of one stage.
  static constexpr int kRowA =
      (kAlongA == Along::K ? kStageK : kM) + Mma<scalar_t>::padding(kAlongA);
  static constexpr int kRowB =
      (kAlongB == Along::K ? kStageK : kN) + Mma<scalar_t>::padding(kAlongB);
  static constexpr int kRowsA = kAlongA == Along::K ? kM : kStageK;
  static constexpr int kRowsB = kAlongB == Along::K ? kN : kStageK;
  static constexpr int kRowC = kN % 16 == 0 ? kN + 8 : kN;  // padded for the partial sums' pairs
  static constexpr int kStageElements = kRowsA * kRowA + kRowsB * kRowB;
  static constexpr int kStageBytes = kStageElements * int(sizeof(scalar_t));
  static constexpr int shared_bytes(int stages) {
    return std::max<int>(stages * kStageBytes, kGroups * kM * kRowC * sizeof(opmath));
  }
  static_assert(kM % kWarpM == 0 && kN % kWarpN == 0 && kWarpM % 16 == 0 && kWarpN % 8 == 0);
  static_assert(kStageK % (kGroups * Mma<scalar_t>::kK) == 0);
};

// One row of A or one column of B. If it lies past the operand's edge it is not `inside`: it counts
// as zeros and is not loaded. Its base is readable all the same, for plain_sum.
template <typename scalar_t>
struct Line {
  const scalar_t* base;
  int64_t stride;  // from one k to the next
  bool inside;
  LLTM_JIT_DEVICE const scalar_t* at(int k) const { return base + k * stride; }
};

// Copies one operand to shared memory, kChunk bytes at a time. A thread finds its lines once for
// all stages.
template <Along kAlong, int kLines, int kStageK, int kRowElements, int kChunk, int kThreads,
          typename scalar_t, typename LineType>
struct StageCopy {
  static constexpr int kElements = kChunk / int(sizeof(scalar_t));
  static constexpr bool kAlongK = kAlong == Along::K;
  static constexpr int kRows = kAlongK ? kLines : kStageK;
  static constexpr int kChunks = (kAlongK ? kStageK : kLines) / kElements;  // per row
  static constexpr int kRowStep = kThreads / kChunks;
  static constexpr int kCopies = kRows / kRowStep;
  static_assert(kThreads % kChunks == 0 && kRows % kRowStep == 0);
  const int row = threadIdx.x / kChunks, column = threadIdx.x % kChunks * kElements;
  LineType lines[kAlongK ? kCopies : 1];

  template <typename LineOf>
  LLTM_JIT_DEVICE explicit StageCopy(const LineOf& line_of) {
    if constexpr (kAlongK) {
      LLTM_JIT_UNROLLED(i, kCopies) lines[i] = line_of(row + i * kRowStep);
    } else {
      lines[0] = line_of(column);
    }
  }

  LLTM_JIT_DEVICE void fetch(scalar_t* target, int k0, int size_k) const {
    LLTM_JIT_UNROLLED(i, kCopies) {
      const int r = row + i * kRowStep, k = k0 + (kAlongK ? column : r);
      const auto& line = lines[kAlongK ? i : 0];
      copy_async<kChunk>(shared_address(target + r * kRowElements + column), line.at(k),
                         k < size_k && line.inside ? kChunk : 0);
    }
  }
};

// A group's sums over its part of k, in the registers of its warps.
template <typename Shape>
struct GroupSums {
  using scalar_t = typename Shape::scalar_t;
  using opmath = typename Shape::opmath;
  using Product = Mma<scalar_t>;
  static constexpr int kTilesM = Shape::kWarpM / 16, kTilesN = Shape::kWarpN / 8;
  static constexpr int kWarpsN = Shape::kN / Shape::kWarpN;
  const int warp = threadIdx.x / 32, group = warp / Shape::kGroupWarps;
  const int m0 = warp % Shape::kGroupWarps / kWarpsN * Shape::kWarpM;
  const int n0 = warp % kWarpsN * Shape::kWarpN;
  opmath sums[kTilesM][kTilesN][4] = {};

  LLTM_JIT_DEVICE void add(const scalar_t* a, const scalar_t* b, int k) {
    typename Product::Operand x[kTilesM][4], y[kTilesN][2];
    LLTM_JIT_UNROLLED(i, kTilesM) {
      Product::template load_a<Shape::kAlongA, Shape::kRowA>(a, m0 + i * 16, k, x[i]);
    }
    LLTM_JIT_UNROLLED(j, kTilesN) {
      Product::template load_b<Shape::kAlongB, Shape::kRowB>(b, n0 + j * 8, k, y[j]);
    }
    LLTM_JIT_UNROLLED2(i, kTilesM, j, kTilesN) Product::multiply_add(sums[i][j], x[i], y[j]);
  }

  LLTM_JIT_DEVICE void store(opmath* partial) const {
    partial += group * Shape::kM * Shape::kRowC;
    LLTM_JIT_UNROLLED2(i, kTilesM, j, kTilesN) {
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int m = m0 + i * 16 + sum_row(e), n = n0 + j * 8 + sum_column(e);
        const opmath pair[2] = {sums[i][j][e], sums[i][j][e + 1]};
        store_pack<2>(partial + m * Shape::kRowC + n, pair);
      }
    }
  }
};

// A finished tile: the groups' partial sums in shared memory, and the lines that they were computed from.
template <typename Shape, typename LinesA, typename LinesB>
struct Tile {
  using scalar_t = typename Shape::scalar_t;
  using opmath = typename Shape::opmath;
  const opmath* partial;
  const LinesA& a_line;
  const LinesB& b_line;
  int size_k;

  // kCount elements from (m, n) on. The groups' sums are always added in the same order.
  template <int kCount>
  LLTM_JIT_DEVICE void values(int m, int n, opmath (&sums)[kCount]) const {
    load_pack<kCount>(partial + m * Shape::kRowC + n, sums);
    LLTM_JIT_UNROLLED_FROM(group, 1, Shape::kGroups) {
      opmath more[kCount];
      load_pack<kCount>(partial + (group * Shape::kM + m) * Shape::kRowC + n, more);
      LLTM_JIT_UNROLLED(i, kCount) sums[i] += more[i];
    }
    // Splitting a float loses infinities and NaNs, so sums that are not finite are computed again,
    // element by element. A NaN in the state therefore takes time, too.
    if constexpr (std::is_same_v<scalar_t, float>) {
      bool finite = true;
      LLTM_JIT_UNROLLED(i, kCount) finite = finite && isfinite(sums[i]);
      if (finite) return;
      LLTM_JIT_UNROLLED(i, kCount) {
        if (!isfinite(sums[i])) sums[i] = plain_sum(m, n + i);
      }
    }
  }

  // Writes kCount elements at a time to `target(m, n)`, which is null past the edge.
  template <int kCount, typename Target>
  LLTM_JIT_DEVICE void store(const Target& target) const {
    constexpr int kVectors = Shape::kN / kCount, kAll = Shape::kM * kVectors;
    constexpr int kEach = ceil_div(kAll, Shape::kThreads);
    opmath sums[kEach][kCount];
    LLTM_JIT_UNROLLED(i, kEach) {
      const int vector = min(int(threadIdx.x) + i * Shape::kThreads, kAll - 1);
      values(vector / kVectors, vector % kVectors * kCount, sums[i]);
    }
    LLTM_JIT_UNROLLED(i, kEach) {
      const int vector = threadIdx.x + i * Shape::kThreads;
      if (vector >= kAll) break;
      if (auto* to = target(vector / kVectors, vector % kVectors * kCount)) {
        store_pack<kCount>(to, sums[i]);
      }
    }
  }

 private:
  __device__ __noinline__ opmath plain_sum(int m, int n) const {
    const auto a = a_line(m);
    const auto b = b_line(n);
    opmath sum = 0;
    for (int k = 0; k < size_k; ++k) sum += to_opmath(*a.at(k)) * to_opmath(*b.at(k));
    return sum;
  }
};

// Computes a tile in shared memory, which has room for `stages` stages: Shape::kStages or one
// fewer. a_line(m) and b_line(n) are the lines of A and B, of length `size_k`. A copy has kChunk
// bytes: 16, or one element. Waits for the kernel before (Note [Launches that overlap]), and calls
// `meanwhile()` while the first copies are in flight.
template <typename Shape, int kChunk, typename LinesA, typename LinesB, typename Meanwhile>
LLTM_JIT_DEVICE Tile<Shape, LinesA, LinesB> tile_gemm(char* shared, int stages, int size_k,
                                                      const LinesA& a_line, const LinesB& b_line,
                                                      const Meanwhile& meanwhile) {
  using scalar_t = typename Shape::scalar_t;
  constexpr int kStepK = Mma<scalar_t>::kK, kStageK = Shape::kStageK, kStages = Shape::kStages;
  const StageCopy<Shape::kAlongA, Shape::kM, kStageK, Shape::kRowA, kChunk, Shape::kThreads,
                  scalar_t, decltype(a_line(0))>
      a_copy(a_line);
  const StageCopy<Shape::kAlongB, Shape::kN, kStageK, Shape::kRowB, kChunk, Shape::kThreads,
                  scalar_t, decltype(b_line(0))>
      b_copy(b_line);
  scalar_t* const slots = reinterpret_cast<scalar_t*>(shared);
  GroupSums<Shape> sums;
  // There is a function for each number of stages, in which addresses and waits are constants.
  const auto multiply = [&](auto count) {
    constexpr int kSlots = decltype(count)::value;
    const auto fetch = [&](int stage) {
      if (stage * kStageK < size_k) {
        scalar_t* target = slots + stage % kSlots * Shape::kStageElements;
        a_copy.fetch(target, stage * kStageK, size_k);
        b_copy.fetch(target + Shape::kRowsA * Shape::kRowA, stage * kStageK, size_k);
      }
      commit_copies();
    };
    wait_for_predecessor();
    LLTM_JIT_UNROLLED(stage, kSlots) fetch(stage);
    meanwhile();
    for (int stage = 0; stage * kStageK < size_k; ++stage) {
      if (stage == 0) {
        wait_for_copies<kSlots - 1>();
        __syncthreads();
      } else {
        wait_for_copies<kSlots - 2>();
        __syncthreads();  // the stage has arrived, and the previous one is no longer read
        fetch(stage - 1 + kSlots);
      }
      const scalar_t* a = slots + stage % kSlots * Shape::kStageElements;
      const scalar_t* b = a + Shape::kRowsA * Shape::kRowA;
#pragma unroll  // a step's loads may precede the previous step's products
      for (int k = 0; k < kStageK; k += Shape::kGroups * kStepK) {
        sums.add(a, b, k + sums.group * kStepK);
      }
    }
  };
  if (stages == kStages) {
    multiply(std::integral_constant<int, kStages>());
  } else {
    multiply(std::integral_constant<int, kStages - 1>());
  }
  __syncthreads();
  auto* partial = reinterpret_cast<typename Shape::opmath*>(shared);
  sums.store(partial);
  __syncthreads();
  return {partial, a_line, b_line, size_k};
}

}  // namespace lltm_jit
