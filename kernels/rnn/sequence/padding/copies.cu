#include <algorithm>

#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"
#include "rnn/sequence/padding/copies.h"

namespace lltm_jit {
namespace {

constexpr int kAtOnce = 4;  // elements per thread, in a row of the target

struct Work {
  RowCopy copy;
  Divisor packs{1, 0}, rows{1, 0};  // per row, and per part
  int64_t all_packs;
  bool whole_source, whole_target;
  bool pairs;  // elements are pairs of 16-bit numbers
};
// The copies of a launch; each has its own blocks.
struct AllWork {
  unsigned first_block[RowCopies::kMost];  // beyond the grid for absent copies
  Work work[RowCopies::kMost];
};

struct Pair {
  uint32_t bits;
};
template <typename T>
LLTM_JIT_DEVICE T sum_of(T a, T b) {
  return from_opmath<T>(to_opmath(a) + to_opmath(b));
}

template <typename T>
LLTM_JIT_DEVICE void copy_pack(const Work& work, int64_t pack) {
  const RowCopy& copy = work.copy;
  int64_t row = work.packs.divide(pack);
  const int64_t part = work.rows.divide(row), column = pack * kAtOnce;
  const int64_t source = part * copy.source_part_stride + row * copy.source_row_stride +
                         column * copy.source_column_stride;
  const T* __restrict__ from = static_cast<const T*>(copy.source) + source;
  T* __restrict__ to =
      static_cast<T*>(copy.target) + part * copy.part_stride + row * copy.row_stride + column;
  const int64_t inside = row < copy.source_rows ? copy.source_columns - column : 0;
  Pack<T, kAtOnce> result;
  if (work.whole_source && inside >= kAtOnce) {
    result = load_raw<kAtOnce>(from);
  } else {
    LLTM_JIT_UNROLLED(i, kAtOnce) {
      const int64_t place = i * copy.source_column_stride;
      result.values[i] = i < inside && copy.source ? from[place] : T{};
      if constexpr (!std::is_same_v<T, Pair>) {
        if (copy.addend && i < inside) {
          const T* addend = static_cast<const T*>(copy.addend) + source;
          result.values[i] = sum_of(result.values[i], addend[place]);
        }
      }
    }
  }
  if (work.whole_target && column + kAtOnce <= copy.columns) {
    *reinterpret_cast<Pack<T, kAtOnce>*>(to) = result;
  } else {
    LLTM_JIT_UNROLLED(i, kAtOnce) {
      if (column + i < copy.columns) to[i] = result.values[i];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(const __grid_constant__ AllWork all) {
  wait_for_predecessor();
  int i = 0;
  LLTM_JIT_UNROLLED_FROM(next, 1, RowCopies::kMost) i += blockIdx.x >= all.first_block[next];
  const Work& work = all.work[i];
  const int64_t pack = int64_t(blockIdx.x - all.first_block[i]) * kThreads + threadIdx.x;
  if (pack >= work.all_packs) return;
  if (work.pairs) {
    copy_pack<Pair>(work, pack);
  } else {
    copy_pack<T>(work, pack);
  }
}

// Takes pairs of 16-bit numbers as elements, if possible.
bool make_pairs(RowCopy* copy) {
  const auto numbers = {&copy->columns,           &copy->source_columns,
                        &copy->source_row_stride, &copy->source_part_stride,
                        &copy->part_stride,       &copy->row_stride};
  bool even = !copy->addend && copy->source_column_stride == 1 &&
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
  Work work{copy};
  const int64_t packs = ceil_div(copy.columns, int64_t(kAtOnce)), rows = copy.parts * copy.rows;
  work.all_packs = rows * packs;
  work.packs = Divisor(packs, work.all_packs);
  work.rows = Divisor(copy.rows, rows);
  work.whole_source = copy.source && !copy.addend && copy.source_column_stride == 1 &&
                      whole(copy.source, copy.source_part_stride, copy.source_row_stride);
  work.whole_target = whole(copy.target, copy.part_stride, copy.row_stride);
  work.pairs = pairs;
  return work;
}

}  // namespace

cudaError_t launch_row_copies(const RowCopies& copies, cudaStream_t stream) {
  const bool floats = copies.type == ElementType::Float;
  AllWork all{};
  std::fill_n(all.first_block, RowCopies::kMost, ~0u);
  unsigned blocks = 0;
  int count = 0;
  for (int i = 0; i < copies.count; ++i) {
    const RowCopy& copy = copies.copies[i];
    if (copy.parts * copy.rows * copy.columns == 0) continue;
    const Work& work = all.work[count] = work_of(copy, floats ? 4 : 2);
    all.first_block[count++] = blocks;
    blocks += static_cast<unsigned>(ceil_div(work.all_packs, kThreads));
  }
  if (blocks == 0) return cudaSuccess;
  auto* kernel = floats                             ? copy_rows_kernel<float>
                 : copies.type == ElementType::Half ? copy_rows_kernel<Half>
                                                    : copy_rows_kernel<BFloat16>;
  return launch(kernel, blocks, kThreads, 0, stream, all);
}

}  // namespace lltm_jit
