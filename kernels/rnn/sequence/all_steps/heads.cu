#include "core/launch/launch.cuh"
#include "core/memory/async_copy.cuh"
#include "core/memory/barrier.cuh"
#include "core/products/warp_matrix.cuh"
#include "rnn/sequence/all_steps/heads.h"

namespace lltm_jit {
namespace {

constexpr int kColumns = 64, kRows = 32;  // of an array, per stage
constexpr int kStages = 3, kArrayBytes = kRows * kColumns * 2;
constexpr int kMostGates = 8, kMostUnits = 256;

int shared_bytes(const HeadProductArgs& args) { return kStages * (args.gates + 1) * kArrayBytes; }

// The number of a block's columns that the units of one head take up.
__host__ __device__ constexpr int room_of(int units) {
  return units <= 16 ? 16 : units <= 32 ? 32 : kColumns;
}
// The number of blocks' tiles, of kColumns by kColumns, for all heads.
__host__ __device__ int64_t tiles_of(const HeadProductArgs& args) {
  const int parts = ceil_div(args.units, kColumns);
  return parts > 1 ? int64_t(args.heads) * parts * parts
                   : ceil_div(args.heads, kColumns / room_of(args.units));
}

__host__ __device__ int64_t results_of(const HeadProductArgs& args) {
  return int64_t(args.heads) * args.gates * args.units * args.units;
}

// The heads and units of a block's columns, in the gates or in the states.
template <int kRoom>
struct Columns {
  int head, unit;  // of the first column

  __device__ __forceinline__ bool exist(const HeadProductArgs& args, int column) const {
    return head + column / kRoom < args.heads && unit + column % kRoom < args.units;
  }
  __device__ __forceinline__ int place(const HeadProductArgs& args, int column) const {
    return (head + column / kRoom) * args.units + unit + column % kRoom;
  }
};

template <typename scalar_t, int kRoom>
class HeadProduct {
  static constexpr int kTiles = kRoom / 16;  // per head
  static constexpr int kHeads = kColumns / kRoom;

 public:
  __device__ __forceinline__ HeadProduct(const HeadProductArgs& args, uint32_t shared)
      : args_(args), shared_(shared), gate_(threadIdx.x / 32), lane_(threadIdx.x % 32) {
    const int64_t tiles = tiles_of(args);
    const int tile = int(blockIdx.x % tiles), parts = ceil_div(args.units, kColumns);
    split_ = int(blockIdx.x / tiles);
    const int head = parts > 1 ? tile / (parts * parts) : tile * kHeads;
    of_gates_ = Columns<kRoom>{head, tile / parts % parts * kColumns};
    of_states_ = Columns<kRoom>{head, tile % parts * kColumns};
    const int64_t stages = ceil_div(args.rows, int64_t(kRows));
    first_row_ = stages * split_ / args.splits * kRows;
    stages_ = int(stages * (split_ + 1) / args.splits - first_row_ / kRows);
  }

  __device__ __forceinline__ void run() {
    for (int i = 0; i < kStages - 1; ++i) bring(i);
    for (int i = 0; i < stages_; ++i) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      bring(i + kStages - 1);
      multiply(i);
    }
    write();
  }

 private:
  __device__ __forceinline__ uint32_t array(int stage, int i) const {
    return shared_ + (stage % kStages * (args_.gates + 1) + i) * kArrayBytes;
  }
  // A chunk is eight columns. Its place in its row depends on the row (a swizzle), so that the same
  // chunk of eight rows lies in different banks.
  static __device__ __forceinline__ uint32_t chunk(uint32_t array, int row, int chunk) {
    return array + row * kColumns * 2 + (chunk ^ row % 8) * 16;
  }

  // A warp loads its own gate's columns and some of the states' rows; a lane eight columns of every fourth row.
  __device__ __forceinline__ void bring(int stage) const {
    if (stage < stages_) {
      const int row = lane_ / 8, column = lane_ % 8 * 8;
      const int64_t first = first_row_ + stage * kRows + row;
      const int left = int(min(args_.rows - first, int64_t(kRows)));
      const auto bring_rows = [&](uint32_t to, const scalar_t* from, bool exist, int k) {
        // Four rows further on, one bit of the chunk's place in its row differs.
        copy_async<16>(chunk(to, row, column / 8) + k * 4 * kColumns * 2 ^ k % 2 * 64, from,
                       exist && k * 4 < left ? 16 : 0);
      };
      const auto* grads = static_cast<const scalar_t*>(args_.grads) + first * args_.grads_stride +
                          gate_ * args_.heads * args_.units + of_gates_.place(args_, column);
      const bool gates_exist = of_gates_.exist(args_, column);
#pragma unroll
      for (int k = 0; k < kRows / 4; ++k) {
        bring_rows(array(stage, gate_), grads + k * 4 * args_.grads_stride, gates_exist, k);
      }
      const auto* old = static_cast<const scalar_t*>(args_.old) + first * args_.old_stride +
                        of_states_.place(args_, column);
      const bool states_exist = of_states_.exist(args_, column);
      for (int k = gate_; k < kRows / 4; k += args_.gates) {
        bring_rows(array(stage, args_.gates), old + k * 4 * args_.old_stride, states_exist, k);
      }
    }
    commit_copies();
  }

  __device__ __forceinline__ void multiply(int stage) {
    const uint32_t grads = array(stage, gate_), old = array(stage, args_.gates);
#pragma unroll
    for (int row = 0; row < kRows; row += 16) {
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        // Two tiles of eight columns: the top and bottom of each.
        uint32_t b[kTiles][4];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          load_matrices<true>(b[j],
                              chunk(old, row + lane_ % 16, (head * kTiles + j) * 2 + lane_ / 16));
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          uint32_t a[4];
          load_matrices<true>(a, chunk(grads, row + lane_ / 16 * 8 + lane_ % 8,
                                       (head * kTiles + i) * 2 + lane_ / 8 % 2));
#pragma unroll
          for (int j = 0; j < 2 * kTiles; ++j) {
            mma<scalar_t>(sums_[head * kTiles + i][j], a,
                          {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
          }
        }
      }
    }
  }

  __device__ __forceinline__ void write() const {
#pragma unroll
    for (int i = 0; i < kHeads * kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = i * 16 + half * 8 + lane_ / 4;
        if (!of_gates_.exist(args_, column)) continue;
        const int head = of_gates_.head + column / kRoom, unit = of_gates_.unit + column % kRoom;
        const int64_t row = (int64_t(head) * args_.gates + gate_) * args_.units + unit;
#pragma unroll
        for (int j = 0; j < 2 * kTiles; ++j) {
          const int other = of_states_.unit + j * 8 + lane_ % 4 * 2;
          if (other >= args_.units) continue;
          const float (&pair)[2] = {sums_[i][j][half * 2], sums_[i][j][half * 2 + 1]};
          const int64_t place = row * args_.units + other;
          if (args_.sums) {
            store_pack<2>(args_.sums + split_ * results_of(args_) + place, pair);
          } else {
            store_pack<2>(static_cast<scalar_t*>(args_.results) + place, pair);
          }
        }
      }
    }
  }

  const HeadProductArgs& args_;
  uint32_t shared_;
  int gate_, lane_, split_;
  Columns<kRoom> of_gates_, of_states_;
  int64_t first_row_;
  int stages_;
  float sums_[kHeads * kTiles][2 * kTiles][4] = {};
};

// The next kernel does not start early: a sequence's blocks would gather on the SMs that become free first.
template <typename scalar_t, int kRoom>
__global__ void __launch_bounds__(32 * kMostGates)
    multiply_heads_of(const __grid_constant__ HeadProductArgs args) {
  extern __shared__ __align__(128) char shared[];
  wait_without_starting_successor();
  HeadProduct<scalar_t, kRoom>(args, shared_address(shared)).run();
}

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads)
    add_splits(const __grid_constant__ HeadProductArgs args) {
  constexpr int kWidth = 4;
  wait_without_starting_successor();
  const int64_t all = results_of(args);
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth; i < all;
       i += int64_t(gridDim.x) * kThreads * kWidth) {
    float sums[kWidth] = {};
    for (int split = 0; split < args.splits; ++split) {
      float part[kWidth];
      load_pack<kWidth>(args.sums + split * all + i, part);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += part[k];
    }
    store_pack<kWidth>(static_cast<scalar_t*>(args.results) + i, sums);
  }
}

template <typename scalar_t>
cudaError_t launch_as(const HeadProductArgs& args, cudaStream_t stream) {
  const int room = room_of(args.units);
  const auto kernel = room == 16   ? multiply_heads_of<scalar_t, 16>
                      : room == 32 ? multiply_heads_of<scalar_t, 32>
                                   : multiply_heads_of<scalar_t, kColumns>;
  const auto blocks = static_cast<unsigned>(tiles_of(args) * args.splits);
  const cudaError_t error =
      launch(kernel, blocks, 32 * args.gates, shared_bytes(args), stream, args);
  if (error != cudaSuccess || args.splits == 1) return error;
  return launch(add_splits<scalar_t>, blocks_for(results_of(args) / 4), kThreads, 0, stream, args);
}

}  // namespace

bool head_product_runs(const HeadProductArgs& args) {
  constexpr int64_t kWidth = kAccessBytes / 2;
  const bool whole = args.units % kWidth == 0 && args.grads_stride % kWidth == 0 &&
                     args.old_stride % kWidth == 0 && aligned(kAccessBytes, args.grads, args.old);
  int most = 0;
  const auto ask = [](int device, int* bytes) {
    return cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  };
  return whole && args.units <= kMostUnits && args.gates <= kMostGates &&
         ask_once(ask, &most) == cudaSuccess && shared_bytes(args) <= most;
}

// The most splits for which all blocks run at once, two per SM, and each has kFewestRows rows.
cudaError_t head_product_splits(const HeadProductArgs& args, int* splits) {
  constexpr int64_t kFewestRows = 256;
  int multiprocessors = 0;
  const auto ask = [](int device, int* count) {
    return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
  };
  const cudaError_t error = ask_once(ask, &multiprocessors);
  const int64_t most = ceil_div(args.rows, kFewestRows);
  *splits = int(max(min(2 * multiprocessors / tiles_of(args), most), int64_t(1)));
  return error;
}

cudaError_t launch_head_product(const HeadProductArgs& args, cudaStream_t stream) {
  return args.type == ElementType::Half ? launch_as<Half>(args, stream)
                                        : launch_as<BFloat16>(args, stream);
}

}  // namespace lltm_jit
