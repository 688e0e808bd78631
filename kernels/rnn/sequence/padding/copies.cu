#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
#include "rnn/sequence/padding/copies.h"

namespace lltm_jit {
namespace {

constexpr int kAtOnce = 4;  // elements of a thread

// Blocks of their own copy the rows of an array, each row by a power of two of threads, at most a warp.
struct Work {
  RowCopy copy;
  Divisor rows{1, 0};  // of a part
  int64_t all_rows;
  unsigned first_block;
  int threads_log2;
  bool whole_source, whole_target;
  bool pairs;  // elements are pairs of 16 bits
};
struct AllWork {
  Work work[RowCopies::kMost];
  int count;
};

struct Pair {
  uint32_t bits;
};
template <typename T>
__device__ __forceinline__ T others_of(float number) {
  return from_opmath<T>(number);
}
template <>
__device__ __forceinline__ Pair others_of<Pair>(float) {
  return {0};
}
template <typename T>
__device__ __forceinline__ T sum_of(T a, T b) {
  return from_opmath<T>(to_opmath(a) + to_opmath(b));
}

template <typename T>
__device__ __forceinline__ void copy_row(const Work& work, int64_t part, int64_t row, int thread) {
  const RowCopy& copy = work.copy;
  const int64_t source_row = part * copy.source_part_stride + row * copy.source_row_stride;
  const T* __restrict__ from = static_cast<const T*>(copy.source) + source_row;
  T* __restrict__ to =
      static_cast<T*>(copy.target) + part * copy.part_stride + row * copy.row_stride;
  const int columns = static_cast<int>(copy.columns), step = kAtOnce << work.threads_log2;
  const int inside = row < copy.source_rows ? static_cast<int>(copy.source_columns) : 0;
  const T others = others_of<T>(copy.others);
#pragma unroll 2
  for (int column = thread * kAtOnce; column < columns; column += step) {
    Pack<T, kAtOnce> pack;
    if (work.whole_source && column + kAtOnce <= inside) {
      pack = load_raw<kAtOnce>(from + column);
    } else {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t place = int64_t(column + i) * copy.source_column_stride;
        pack.values[i] = column + i >= inside ? others : copy.source ? from[place] : T{};
        if constexpr (!std::is_same_v<T, Pair>) {
          if (copy.addend && column + i < inside) {
            const T* addend = static_cast<const T*>(copy.addend) + source_row + place;
            pack.values[i] = sum_of(pack.values[i], *addend);
          }
        }
      }
    }
    if (work.whole_target && column + kAtOnce <= columns) {
      *reinterpret_cast<Pack<T, kAtOnce>*>(to + column) = pack;
    } else {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (column + i < columns) to[column + i] = pack.values[i];
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(const __grid_constant__ AllWork all) {
  wait_for_predecessor();
  int i = 0;
  while (i + 1 < all.count && blockIdx.x >= all.work[i + 1].first_block) ++i;
  const Work& work = all.work[i];
  const int64_t thread = int64_t(blockIdx.x - work.first_block) * kThreads + threadIdx.x;
  int64_t row = thread >> work.threads_log2;
  if (row >= work.all_rows) return;
  const int of_row = threadIdx.x & ((1 << work.threads_log2) - 1);
  const int64_t part = work.rows.divide(row);
  if (work.pairs) {
    copy_row<Pair>(work, part, row, of_row);
  } else {
    copy_row<T>(work, part, row, of_row);
  }
}

// With pairs of 16 bits as elements, where that is possible.
bool make_pairs(RowCopy* copy) {
  const auto numbers = {&copy->columns,           &copy->source_columns,
                        &copy->source_row_stride, &copy->source_part_stride,
                        &copy->part_stride,       &copy->row_stride};
  bool even = !copy->addend && copy->others == 0 && copy->source_column_stride == 1 &&
              aligned(4, static_cast<const char*>(copy->source), static_cast<char*>(copy->target));
  for (const int64_t* number : numbers) even = even && *number % 2 == 0;
  if (!even) return false;
  for (int64_t* number : numbers) *number /= 2;
  return true;
}

Work work_of(RowCopy copy, int bytes) {
  const bool pairs = bytes == 2 && make_pairs(&copy);
  const auto whole = [&](const void* data, int64_t part_stride, int64_t row_stride) {
    return aligned((pairs ? 4 : bytes) * kAtOnce, static_cast<const char*>(data)) &&
           part_stride % kAtOnce == 0 && row_stride % kAtOnce == 0;
  };
  Work work{copy, Divisor(copy.rows, copy.parts * copy.rows), copy.parts * copy.rows};
  while (work.threads_log2 < 5 && kAtOnce << work.threads_log2 < copy.columns) ++work.threads_log2;
  work.whole_source = copy.source && !copy.addend && copy.source_column_stride == 1 &&
                      whole(copy.source, copy.source_part_stride, copy.source_row_stride);
  work.whole_target = whole(copy.target, copy.part_stride, copy.row_stride);
  work.pairs = pairs;
  return work;
}

}  // namespace

cudaError_t launch_row_copies(const RowCopies& copies, cudaStream_t stream) {
  const bool floats = copies.type == ElementType::Float;
  AllWork all{{}, 0};
  unsigned blocks = 0;
  for (int i = 0; i < copies.count; ++i) {
    const RowCopy& copy = copies.copies[i];
    if (copy.parts * copy.rows * copy.columns == 0) continue;
    Work& work = all.work[all.count++];
    work = work_of(copy, floats ? 4 : 2);
    work.first_block = blocks;
    blocks += static_cast<unsigned>(ceil_div(work.all_rows << work.threads_log2, kThreads));
  }
  if (blocks == 0) return cudaSuccess;
  auto* kernel = floats                             ? copy_rows_kernel<float>
                 : copies.type == ElementType::Half ? copy_rows_kernel<Half>
                                                    : copy_rows_kernel<BFloat16>;
  return launch(kernel, blocks, kThreads, 0, stream, all);
}

}  // namespace lltm_jit
