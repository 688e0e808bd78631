// Sums over all dimensions but the channels, on the GPU: see Note [Sums in a fixed order].
#pragma once

#include "core/channel_sum/maths.h"
#include "core/launch/fast_divide.cuh"
#include "core/launch/launch.cuh"

namespace lltm_jit {

// A block has kSumRows rows of kSumLanes threads. A row's threads read neighbouring channels, or packs of them.
constexpr int kSumLanes = 32, kSumRows = kThreads / kSumLanes;

// Loads kVec elements, one by one if they are not `aligned`. Both ways give sums the same order.
template <int kVec, typename scalar_t>
__device__ __forceinline__ void load_values(const scalar_t* source, bool aligned,
                                            opmath_t<scalar_t> (&values)[kVec]) {
  if (aligned) {
    load_pack<kVec>(source, values);
  } else {
#pragma unroll
    for (int v = 0; v < kVec; ++v) values[v] = to_opmath(source[v]);
  }
}

struct SumPart {
  int64_t begin, end;  // of the outer * inner items of a channel
  __device__ SumPart(int64_t items, int64_t part, int64_t parts)
      : begin(items / parts * part + min(items % parts, part)),
        end(begin + items / parts + (part < items % parts)) {}
};

// The work of a grid in blocks. `count` may exceed the largest grid; then each block of the grid takes several.
struct SumBlocks {
  int64_t parts, count;
  bool aligned;
};

// inner == 1: a block sums the rows of one part for kSumLanes * kVec channels. Each warp reads
// every kSumRows-th row; the warps' sums are added in shared memory.
template <typename scalar_t, int kVec>
__device__ __forceinline__ void sum_rows(const ChannelSumArgs& args, int64_t part, int64_t parts,
                                         int64_t first_channel, bool aligned) {
  using opmath = opmath_t<scalar_t>;
  __shared__ opmath warp_sums[kSumRows][kSumLanes][kVec];
  const int lane = threadIdx.x % kSumLanes, warp = threadIdx.x / kSumLanes;
  const int64_t channel = first_channel + lane * kVec;
  const auto* x = static_cast<const scalar_t*>(args.x) + channel;
  const SumPart rows(args.outer, part, parts);
  opmath sums[kVec] = {};
  if (channel + kVec <= args.channels) {
#pragma unroll 4
    for (int64_t row = rows.begin + warp; row < rows.end; row += kSumRows) {
      opmath values[kVec];
      load_values<kVec>(x + row * args.channels, aligned, values);
#pragma unroll
      for (int v = 0; v < kVec; ++v) sums[v] += values[v];
    }
  } else {
    for (int64_t row = rows.begin + warp; row < rows.end; row += kSumRows) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        if (channel + v < args.channels) sums[v] += to_opmath(x[row * args.channels + v]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < kVec; ++v) warp_sums[warp][lane][v] = sums[v];
  __syncthreads();
  if (warp == 0) {
    auto* target = static_cast<opmath*>(args.parts) + part * args.channels + channel;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      for (int w = 1; w < kSumRows; ++w) sums[v] += warp_sums[w][lane][v];
      if (channel + v < args.channels) target[v] = sums[v];
    }
  }
  __syncthreads();
}

template <typename scalar_t, int kVec>
__global__ void sum_rows_kernel(ChannelSumArgs args, SumBlocks blocks) {
  wait_for_predecessor();
  for (int64_t block = blockIdx.x; block < blocks.count; block += gridDim.x) {
    sum_rows<scalar_t, kVec>(args, block % blocks.parts, blocks.parts,
                             block / blocks.parts * kSumLanes * kVec, blocks.aligned);
  }
}

// inner > 1: a block sums one part of one channel. Its threads take turns at packs of kVec items,
// which are neighbours because inner is a multiple of kVec.
template <typename scalar_t, int kVec>
__device__ __forceinline__ void sum_runs(const ChannelSumArgs& args, int64_t part, int64_t parts,
                                         int64_t channel, const Divisor& inner, bool aligned) {
  using opmath = opmath_t<scalar_t>;
  const auto* x = static_cast<const scalar_t*>(args.x) + channel * args.inner;
  const SumPart packs(args.outer * args.inner / kVec, part, parts);
  opmath sum = 0;
#pragma unroll 4
  for (int64_t pack = packs.begin + threadIdx.x; pack < packs.end; pack += kThreads) {
    int64_t place = pack;
    const int64_t outer = inner.divide(place);
    opmath values[kVec];
    load_values<kVec>(x + outer * args.channels * args.inner + place * kVec, aligned, values);
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum += values[v];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) static_cast<opmath*>(args.parts)[part * args.channels + channel] = sum;
  __syncthreads();
}

template <typename scalar_t, int kVec>
__global__ void sum_runs_kernel(ChannelSumArgs args, SumBlocks blocks, Divisor inner) {
  wait_for_predecessor();
  for (int64_t block = blockIdx.x; block < blocks.count; block += gridDim.x) {
    sum_runs<scalar_t, kVec>(args, block % blocks.parts, blocks.parts, block / blocks.parts, inner,
                             blocks.aligned);
  }
}

// Adds the parts from the first to the last, in double, because so long a chain of floats would lose digits.
template <typename scalar_t>
__global__ void sum_parts_kernel(ChannelSumArgs args, int64_t parts) {
  wait_for_predecessor();
  const auto* sums = static_cast<const opmath_t<scalar_t>*>(args.parts);
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < args.channels; c += stride) {
    double sum = 0;
#pragma unroll 8
    for (int64_t part = 0; part < parts; ++part) sum += sums[part * args.channels + c];
    static_cast<scalar_t*>(args.sums)[c] =
        from_opmath<scalar_t>(static_cast<opmath_t<scalar_t>>(sum));
  }
}

template <typename scalar_t>
cudaError_t launch_channel_sum_as(const ChannelSumArgs& args, cudaStream_t stream) {
  constexpr int kVec = kAccessBytes / sizeof(scalar_t);
  const int64_t parts = channel_sum_parts(args);
  const auto start = [&](int64_t blocks_of_part, auto kernel, bool rows_aligned,
                         const auto&... more) {
    const SumBlocks blocks{parts, blocks_of_part * parts,
                           rows_aligned && aligned(kAccessBytes, args.x)};
    constexpr int64_t kMostBlocks = (int64_t(1) << 31) - 1;
    return launch(kernel, static_cast<unsigned>(min(blocks.count, kMostBlocks)), kThreads, 0,
                  stream, args, blocks, more...);
  };
  const auto runs = [&](auto kernel, int64_t packs) {
    return start(args.channels, kernel, true, Divisor(packs, args.outer * packs));
  };
  const cudaError_t error =
      args.inner == 1          ? start(ceil_div(args.channels, int64_t(kSumLanes * kVec)),
                                       sum_rows_kernel<scalar_t, kVec>, args.channels % kVec == 0)
      : args.inner % kVec == 0 ? runs(sum_runs_kernel<scalar_t, kVec>, args.inner / kVec)
                               : runs(sum_runs_kernel<scalar_t, 1>, args.inner);
  if (error != cudaSuccess) return error;
  return launch(sum_parts_kernel<scalar_t>, blocks_for(args.channels), kThreads, 0, stream, args,
                parts);
}

template <typename Args>
cudaError_t launch_channel_sum(const Args& args, cudaStream_t stream) {
  return dispatch_floating(args.type, [&](auto scalar) {
    return launch_channel_sum_as<decltype(scalar)>(args, stream);
  });
}

}  // namespace lltm_jit
