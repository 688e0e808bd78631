// What the blocks of a cluster tell one another, and what a warp reads ahead.
#pragma once

#include "core/memory/async_copy.cuh"
#include "core/memory/barrier.cuh"
#include "rnn/sequence/kernels.h"
#include "rnn/sequence/one_launch/products.cuh"

namespace lltm_jit {

// Whether there is code of a shape for this chip; the host asks check_code().
template <typename Shape>
constexpr bool kRunsHere =
#if __CUDA_ARCH__ >= 900
    true;
#else
    Shape::kShape.blocks == 1;
#endif

// Of all recurrences.
template <typename Shape>
__device__ __forceinline__ int64_t all_sets(const SequenceSizes& sizes) {
  constexpr SequenceShape kShape = Shape::kShape;
  return kShape.sets(sizes.batch_size, Shape::kSeveral ? sizes.recurrences() : 1);
}

// Calls function(set) for the sets of rows that this block has: clusters have one each.
template <typename Shape, typename Function>
__device__ __forceinline__ void for_sets(const SequenceSizes& sizes, const Function& function) {
  constexpr SequenceShape kShape = Shape::kShape;
  int set = blockIdx.x / kShape.blocks;
  if constexpr (!kShape.grid) {
    function(set);
  } else {
    for (; set < all_sets<Shape>(sizes); set += gridDim.x / kShape.blocks) {
      function(set);
      __syncthreads();
    }
  }
}

// Note [Two copies and no barrier]
// Step i reads the operand of step i - 1, and writes the other one of two. A block p may write its part of
// step i into the copy of block q as soon as p has all of step i - 1: q has then sent all its parts of step
// i - 1, which each of its groups does after the last of the group's warps has read step i - 2, whose place
// step i takes. So the bytes of a step, which a barrier in each block counts, are all that anybody waits for.
// For that every warp waits for the whole operand: one that only waited for the part that it reads could run
// a step ahead of its own block, into sums that nobody has read yet.
template <typename Shape, int kArrays>
class ClusterExchange {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kTileBytes = kShape.tile_bytes();
  static constexpr int kWords = kShape.words();
  static constexpr bool kCluster = kShape.blocks > 1;
  // Each block's part comes to every block, its own included.
  static constexpr int kStepBytes =
      kArrays * kShape.tiles() * SequenceShape::kUnits * kShape.rows * kShape.bytes;

 public:
  static constexpr int kBytes = 2 * kShape.operand_bytes(kArrays);

  __device__ __forceinline__ ClusterExchange(const Lane<Shape>& lane, const ExchangePlace& place)
      : buffers_(place.shared), barriers_(place.barriers) {
    const int n = kShape.row_tiles() > 1 ? lane.split : 0;
    const int tile = lane.block * kShape.groups + lane.group;
    part_ = keep((tile * kShape.row_tiles() + n) * kTileBytes + lane.tile_offset());
    half_ = keep(kShape.rows == 4 ? lane.lane / 16 : 0);
  }

  // Zeros, and barriers; what is written into operands(-1) next is seen by all threads after start().
  __device__ __forceinline__ void clear() const {
    for (int i = threadIdx.x; i < kBytes / 16; i += blockDim.x) {
      store_shared(buffers_ + i * 16, Words<4>{});
    }
    if (kCluster && threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) init_barrier(barrier(i), 1);
      publish_barriers();
    }
    __syncthreads();
    if (kCluster && threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) expect(i);
    }
  }
  __device__ __forceinline__ void start() const {
    if constexpr (kCluster) {
      synchronize_cluster();
    } else {
      __syncthreads();
    }
  }
  // No block ends while another may still write to it.
  __device__ __forceinline__ void finish() const {
    if constexpr (kCluster) synchronize_cluster();
  }

  __device__ __forceinline__ uint32_t operands(int step) const {
    return buffers_ + (step & 1) * (kBytes / 2);
  }

  // Where this lane's pack lies.
  __device__ __forceinline__ uint32_t own_part(int step) const {
    return operands(step) + part_ + half_ * kWords * 4;
  }

  // Waits until a step's operand is whole.
  __device__ __forceinline__ void wait(int step) const {
    if constexpr (kCluster) wait_for_barrier(barrier(step), (step >> 1) & 1);
  }

  // Sends this warp's part of a step, lane by lane a pack of each array.
  __device__ __forceinline__ void send(int step, const Words<kWords> (&packs)[kArrays]) const {
#pragma unroll
    for (int a = 0; a < kArrays; ++a) {
      const uint32_t array = a * kShape.operand_bytes(1);
      if constexpr (!kCluster) {
        store_shared(own_part(step) + array, packs[a]);
      } else if constexpr (kWords == 1) {
        // Two lanes have halves of the same eight bytes: each sends them to every other block.
        const Words<2> both = whole(packs[a]);
#pragma unroll
        for (int p = 0; p < kShape.blocks; p += 2) {
          send_to(p + half_, operands(step) + part_ + array, barrier(step), both);
        }
      } else {
#pragma unroll
        for (int p = 0; p < kShape.blocks; ++p) {
          send_to(p, own_part(step) + array, barrier(step), packs[a]);
        }
      }
    }
  }
  // Sends words to a place in a block's operand of a step.
  template <int kCount>
  __device__ __forceinline__ void send_part(int step, int block, uint32_t place,
                                            const Words<kCount>& words) const {
    send_to(block, operands(step) + place, barrier(step), words);
  }
  // Called once a step, by one thread: the barrier of what has been waited for is to count again.
  __device__ __forceinline__ void expect(int step) const {
    if constexpr (kCluster) arrive_and_expect(barrier(step), kStepBytes);
  }

 private:
  __device__ __forceinline__ uint32_t barrier(int step) const { return barriers_ + 8 * (step & 1); }
  static __device__ __forceinline__ void synchronize_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
#endif
  }
  __device__ __forceinline__ Words<2> whole(const Words<1>& pack) const {
    const uint32_t other = __shfl_xor_sync(~0u, pack.value[0], 16);
    const bool low = half_ == 0;
    return {low ? pack.value[0] : other, low ? other : pack.value[0]};
  }
  template <int kCount>
  static __device__ __forceinline__ void send_to(int block, uint32_t to, uint32_t barrier,
                                                 const Words<kCount>& w) {
#if __CUDA_ARCH__ >= 900
    uint32_t there, barrier_there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(block));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_there) : "r"(barrier), "r"(block));
    if constexpr (kCount == 2) {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::
              "r"(there),
          "r"(w.value[0]), "r"(w.value[1]), "r"(barrier_there)
          : "memory");
    } else {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
          "[%5];" ::"r"(there),
          "r"(w.value[0]), "r"(w.value[1]), "r"(w.value[2]), "r"(w.value[3]), "r"(barrier_there)
          : "memory");
    }
#endif
  }

  uint32_t buffers_, barriers_;
  uint32_t part_;  // where in an operand this lane's part is
  uint32_t half_;  // which half of its four numbers this lane has, with four rows
};

// A set's place, for operands of so many arrays; of a grid, those before step 0 have theirs too.
template <typename Shape, int kArrays, int kGates, typename Args>
__device__ __forceinline__ ExchangePlace exchange_place(const Args& args, int set, int before,
                                                        uint32_t shared, uint32_t barriers) {
  constexpr SequenceShape kShape = Shape::kShape;
  char *memory = nullptr, *streamed = nullptr;
  if constexpr (kShape.grid) {
    constexpr int64_t kStepBytes = kShape.operand_bytes(kArrays);
    auto* workspace = static_cast<char*>(args.workspace);
    memory = workspace + (set * args.steps + before) * kStepBytes;
    streamed = workspace + kShape.operands_bytes(args.steps, all_sets<Shape>(args), kArrays) +
               int64_t(blockIdx.x) * kShape.streamed_bytes(kGates);
  }
  return {shared, barriers, memory, streamed};
}

template <typename Shape, int kArrays>
using Exchange = std::conditional_t<Shape::kShape.grid, GridExchange<Shape, kArrays>,
                                    ClusterExchange<Shape, kArrays>>;

// What a lane of a warp that finishes reads of each step, some steps ahead: packs, and single floats. If the
// lane itself brings it, nothing is waited for but its own copies.
template <typename Shape, int kPacks, int kFloats>
class Ring {
  static constexpr SequenceShape kShape = Shape::kShape;
  static constexpr int kPackBytes = kShape.words() * 4, kStages = SequenceShape::kStages;
  static constexpr int kStageBytes = (kPacks * kPackBytes + kFloats * 4) * 32;

 public:
  __device__ __forceinline__ Ring(const Lane<Shape>& lane, uint32_t shared)
      : base_(keep(shared +
                   (lane.split % kShape.finishers() * kShape.groups + lane.group) * kStages *
                       kStageBytes +
                   lane.lane * kPackBytes)),
        floats_(lane.lane * (4 - kPackBytes) + kPacks * kPackBytes * 32) {}

  // Begins to copy a pack of the step that is brought; zeros if it is not `inside`.
  __device__ __forceinline__ void bring_pack(int i, const void* source, bool inside) const {
    copy_async<kPackBytes>(pack_address(brought_, i), source, inside ? kPackBytes : 0);
  }
  __device__ __forceinline__ void bring_float(int i, const void* source, bool inside) const {
    copy_async<4>(float_address(brought_, i), source, inside ? 4 : 0);
  }
  // The step has been brought; there may be nothing of it.
  __device__ __forceinline__ void commit() {
    commit_copies();
    ++brought_;
  }

  // The step is brought by another warp.
  __device__ __forceinline__ void skip() { ++brought_; }
  // For another warp, which reads them after a barrier of the block: transposes the packs of the step kAhead
  // steps behind the next one.
  template <typename scalar_t, int kAhead>
  __device__ __forceinline__ void arrange() const {
    wait_for_copies<kStages - 2 - kAhead>();
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const uint32_t address = pack_address(brought_ + 1 + kAhead, i);
      store_shared(address, transpose<scalar_t>(load_shared<kShape.words()>(address)));
    }
  }

  // Waits for the next step, of kStages - 1 that have been brought and not been read.
  __device__ __forceinline__ void wait() const { wait_for_copies<kStages - 2>(); }
  __device__ __forceinline__ Words<kShape.words()> pack(int i) const {
    return load_shared<kShape.words()>(pack_address(brought_ + 1, i));
  }
  __device__ __forceinline__ float number(int i) const {
    return __uint_as_float(load_shared<1>(float_address(brought_ + 1, i)).value[0]);
  }

 private:
  __device__ __forceinline__ uint32_t stage(int count) const {
    return base_ + (count & (kStages - 1)) * kStageBytes;
  }
  __device__ __forceinline__ uint32_t pack_address(int count, int i) const {
    return stage(count) + i * 32 * kPackBytes;
  }
  __device__ __forceinline__ uint32_t float_address(int count, int i) const {
    return stage(count) + floats_ + i * 32 * 4;
  }

  uint32_t base_;    // of this lane's first pack
  uint32_t floats_;  // from there to its first float
  int brought_ = 0;
};

// The control bytes of the rows of a lane's elements and of its pack, read two steps ahead.
template <typename Shape, bool kOn>
class Controls {
 public:
  // `first` is of the step that is computed first, and the next ones are step_stride apart.
  __device__ __forceinline__ Controls(const Lane<Shape>& lane, const uint8_t* first,
                                      int64_t step_stride, int64_t steps, int64_t rows)
      : lane_(lane), first_(first), step_stride_(step_stride), steps_(steps), rows_(rows) {
    if constexpr (kOn) {
      now_ = read(0);
      next_ = read(1);
    }
  }
  __device__ __forceinline__ void read_ahead(int64_t step) {
    if constexpr (kOn) later_ = read(step + 2);
  }
  __device__ __forceinline__ void advance() {
    if constexpr (kOn) {
      now_ = next_;
      next_ = later_;
    }
  }
  // Element e's row holds, or is reset; and the same of the pack.
  __device__ __forceinline__ bool holds(int e) const { return kOn && (now_ >> e % 2 * 8 & kHolds); }
  __device__ __forceinline__ bool resets(int e) const {
    return kOn && (now_ >> e % 2 * 8 & kResets);
  }
  __device__ __forceinline__ bool resets_next(int e) const {
    return kOn && (next_ >> e % 2 * 8 & kResets);
  }
  __device__ __forceinline__ bool holds_next(int e) const {
    return kOn && (next_ >> e % 2 * 8 & kHolds);
  }
  __device__ __forceinline__ bool pack_holds() const { return kOn && (now_ >> 16 & kHolds); }
  __device__ __forceinline__ bool pack_resets() const { return kOn && (now_ >> 16 & kResets); }
  __device__ __forceinline__ bool pack_resets_next() const {
    return kOn && (next_ >> 16 & kResets);
  }

 private:
  __device__ __forceinline__ uint32_t read(int64_t step) const {
    uint32_t bytes = 0;
    if (step < steps_) {
      const int rows[] = {lane_.row_of(0), lane_.row_of(1), lane_.pack_row()};
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (rows[i] >= rows_) continue;
        const uint32_t byte = first_[step * step_stride_ + rows[i]];
        bytes |= (byte & kHolds ? uint32_t(kHolds) : byte) << 8 * i;
      }
    }
    return bytes;
  }

  Lane<Shape> lane_;
  const uint8_t* first_;
  int64_t step_stride_, steps_, rows_;
  uint32_t now_ = 0, next_ = 0, later_ = 0;
};

}  // namespace lltm_jit
