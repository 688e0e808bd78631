// bias_act's derivative on the GPU: dx and, in the same pass, the partial sums of db. Memory bounds the
// speed of the two kernels, so each thread has several loads of 16 bytes in flight.
//
// Note [Two ways through a tensor]
// A thread whose packs all have the same channels keeps their biases in registers, and the sums of
// dx that make db: see Note [Sums in a fixed order] in core/channel_sum/cpu.h. A tensor whose
// channels are last is read in rows: the pattern of channels repeats after some packs, the period,
// and a thread stays in one column of it. Other tensors are read in runs: a block stays with one
// channel.
#include "core/launch/fast_divide.cuh"
#include "stylegan/bias_act/cuda/packs.cuh"

namespace lltm_jit {
namespace {

// --------------------------------------------------------------------------------------- a plan --

// The plan depends on sizes and type alone, so that sums have the same bits on every machine.
struct PassPlan {
  bool rows;
  int64_t period;    // packs; in runs those of a run, counted from where its first pack begins
  int64_t count;     // rows of a period, or packs of a channel
  int64_t parts;     // number of parts of `count`; each writes its own sums
  int64_t chunks;    // blocks of a period; in runs the channels
  int width, lanes;  // of a block, in rows: columns, and rows at a time
  int64_t slots;     // sums per part
};

inline int64_t common_divisor(int64_t a, int64_t b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

template <typename scalar_t>
PassPlan pass_plan(const BiasActArgs& args) {
  constexpr int64_t kVec = kVecOf<scalar_t>, kPacks = kPacksOf<scalar_t>;
  constexpr int64_t kThreads64 = kThreads, kEnoughBlocks = 1024;
  // The steps of a block. Sums take time at the end of a block; without them, short blocks overlap
  // better.
  const int64_t steps = args.sums ? 4 : 1;
  PassPlan plan{};
  const int64_t pattern = args.channels * args.inner;
  const int64_t period = pattern / common_divisor(pattern, kVec);
  constexpr int64_t kShortRun = 4 * kVec, kMostColumns = 4096;
  plan.rows = args.inner == 1 || (args.inner < kShortRun && period <= kMostColumns);
  if (plan.rows) {
    plan.period = period;
    plan.chunks = ceil_div(period, kThreads64);
    plan.width = static_cast<int>(ceil_div(period, plan.chunks));
    plan.lanes = max(1, kThreads / plan.width);
    plan.count = ceil_div(ceil_div(args.numel, kVec), period);
    plan.slots = period * kVec;
    // With sums, only as many blocks as a large chip holds at once: each part's sums are as long as a row.
    constexpr int64_t kMostBlocks = 264;
    plan.parts = plan.count / (plan.lanes * kPacks);
    if (args.sums) plan.parts = min(plan.parts, ceil_div(kMostBlocks, plan.chunks));
  } else {
    const bool aligned_runs = args.inner % kVec == 0;
    plan.period = aligned_runs ? args.inner / kVec : ceil_div(args.inner + kVec - 1, kVec);
    plan.chunks = plan.slots = args.channels;
    plan.count = args.outer * plan.period;
    const int64_t step = kThreads64 * kPacks;
    plan.parts = plan.count / (step * steps);
    // With few channels, parts are shorter. Without sums, there are as many parts as there is work for.
    const int64_t enough = ceil_div(kEnoughBlocks, args.channels);
    if (plan.parts < enough) plan.parts = min(ceil_div(plan.count, step), enough);
    if (args.sums) plan.parts = min(plan.parts, kEnoughBlocks);
  }
  plan.parts = max(plan.parts, int64_t(1));
  return plan;
}

// The share of [0, count) that a part has.
struct Share {
  int64_t begin, end;
  __device__ Share(int64_t count, int64_t part, int64_t parts)
      : begin(count / parts * part + min(count % parts, part)),
        end(begin + count / parts + (part < count % parts)) {}
};

// Whether a part's sums are already the channels' sums.
__host__ __device__ inline bool sums_are_whole(const BiasActArgs& args, const PassPlan& plan) {
  return plan.parts == 1 && plan.slots == args.channels;
}

template <typename scalar_t>
LLTM_JIT_DEVICE void write_sum(const BiasActArgs& args, const PassPlan& plan, int64_t part,
                               int64_t slot, opmath_t<scalar_t> sum) {
  if (sums_are_whole(args, plan)) {
    static_cast<scalar_t*>(args.sums)[slot] = from_opmath<scalar_t>(sum);
  } else {
    static_cast<opmath_t<scalar_t>*>(args.parts)[part * plan.slots + slot] = sum;
  }
}

// -------------------------------------------------------------------------------------- kernels --

// Blocks that an SM should hold; the compiler limits the registers accordingly.
constexpr int kRunBlocks = 4, kRowBlocks = 2;

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads, kRowBlocks)
    rows_kernel(BiasActArgs args, PassPlan plan, bool vectorize) {
  using Packs = PassPacks<Pass::Backward, scalar_t>;
  constexpr int kVec = Packs::kVec, kPacks = Packs::kPacks;
  using opmath = opmath_t<scalar_t>;
  __shared__ opmath lane_sums[kVec][kThreads];
  wait_for_predecessor();
  const BiasActNumbers<typename Packs::T> numbers(args.op);
  const int64_t part = blockIdx.x / plan.chunks, chunk = blockIdx.x % plan.chunks;
  const int lane = threadIdx.x / plan.width;
  const int64_t column = chunk * plan.width + threadIdx.x % plan.width;
  const Share rows(plan.count, part, plan.parts);
  const int64_t step = int64_t(plan.lanes) * kPacks;
  opmath sums[kVec] = {};
  if (column < plan.period && lane < plan.lanes) {
    opmath b[kVec] = {};
    if (args.b) {
      LLTM_JIT_UNROLLED(v, kVec) {
        const int64_t channel = (column * kVec + v) / args.inner % args.channels;
        b[v] = to_opmath(static_cast<const scalar_t*>(args.b)[channel]);
      }
    }
    for (int64_t row = rows.begin; row < rows.end; row += step) {
      const bool whole =
          vectorize && row + step <= rows.end && (row + step) * plan.period * kVec <= args.numel;
      Packs packs;
      LLTM_JIT_UNROLLED(p, kPacks) {
        const int64_t of_pack = row + p * plan.lanes + lane;
        const int64_t first = (of_pack * plan.period + column) * kVec;
        packs.places[p] =
            PackPlaces::within<kVec>(first, 0, of_pack < rows.end ? args.numel : int64_t(0));
      }
      packs.load(args, whole, vectorize);
      packs.compute(
          args, numbers, [&](int, int v) { return b[v]; },
          [&](int, int v, opmath result) { sums[v] += result; });
      packs.store(args, whole, vectorize);
    }
  }
  if (!args.sums) return;
  LLTM_JIT_UNROLLED(v, kVec) lane_sums[v][threadIdx.x] = sums[v];
  for (int lanes = plan.lanes; lanes > 1;) {
    const int half = (lanes + 1) / 2;
    __syncthreads();
    if (lane + half < lanes) {
      LLTM_JIT_UNROLLED(v, kVec) {
        lane_sums[v][threadIdx.x] += lane_sums[v][threadIdx.x + half * plan.width];
      }
    }
    lanes = half;
  }
  if (lane == 0 && column < plan.period) {
    LLTM_JIT_UNROLLED(v, kVec) {
      write_sum<scalar_t>(args, plan, part, column * kVec + v, lane_sums[v][threadIdx.x]);
    }
  }
}

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads, kRunBlocks)
    runs_kernel(BiasActArgs args, PassPlan plan, Divisor period, bool vectorize) {
  using Packs = PassPacks<Pass::Backward, scalar_t>;
  constexpr int kVec = Packs::kVec, kPacks = Packs::kPacks, kStep = kThreads * kPacks;
  using opmath = opmath_t<scalar_t>;
  wait_for_predecessor();
  const BiasActNumbers<typename Packs::T> numbers(args.op);
  // Blocks that start together have neighbouring channels, whose runs are neighbours in memory.
  const int64_t part = blockIdx.x / plan.chunks, channel = blockIdx.x % plan.chunks;
  const Share share(plan.count, part, plan.parts);
  const bool aligned_runs = args.inner % kVec == 0;
  const opmath b = args.b ? to_opmath(static_cast<const scalar_t*>(args.b)[channel]) : opmath(0);
  opmath sums[kPacks] = {};
  for (int64_t step = share.begin; step < share.end; step += kStep) {
    const bool whole = vectorize && aligned_runs && step + kStep <= share.end;
    Packs packs;
    LLTM_JIT_UNROLLED(p, kPacks) {
      const int64_t index = step + p * kThreads + threadIdx.x;
      int64_t place = index;
      const int64_t outer = period.divide(place);
      const int64_t run = (outer * args.channels + channel) * args.inner;
      // Packs are aligned to the whole tensor's packs, so that accesses are aligned.
      const int64_t first = (aligned_runs ? run : run / kVec * kVec) + place * kVec;
      packs.places[p] =
          PackPlaces::within<kVec>(first, run, index < share.end ? run + args.inner : int64_t(0));
    }
    packs.load(args, whole, vectorize);
    packs.compute(
        args, numbers, [&](int, int) { return b; },
        [&](int p, int, opmath result) { sums[p] += result; });
    packs.store(args, whole, vectorize);
  }
  if (!args.sums) return;
  opmath sum = 0;
  LLTM_JIT_UNROLLED(p, kPacks) sum += sums[p];
  sum = block_sum(sum);
  if (threadIdx.x == 0) write_sum<scalar_t>(args, plan, part, channel, sum);
}

// -------------------------------------------------------------------------------------- launch --

template <typename scalar_t>
cudaError_t launch_pass(const BiasActArgs& args, const PassPlan& plan, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(plan.chunks * plan.parts);
  const bool vectorize = aligned_to_packs(args);
  if (!plan.rows) {
    return launch(runs_kernel<scalar_t>, blocks, kThreads, 0, stream, args, plan,
                  Divisor(plan.period, plan.count), vectorize);
  }
  const int threads = ceil_div(plan.width * plan.lanes, 32) * 32;
  return launch(rows_kernel<scalar_t>, blocks, threads, 0, stream, args, plan, vectorize);
}

// Adds the parts' sums, in double. A block sums neighbouring channels; each of its lanes reads
// every kPartLanes-th part.
constexpr int kSumChannels = 8, kPartLanes = kThreads / kSumChannels;

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads) add_parts_kernel(BiasActArgs args, PassPlan plan) {
  __shared__ double lane_sums[kThreads];
  wait_for_predecessor();
  const auto* parts = static_cast<const opmath_t<scalar_t>*>(args.parts);
  const int lane = threadIdx.x / kSumChannels;
  const int64_t channel = int64_t(blockIdx.x) * kSumChannels + threadIdx.x % kSumChannels;
  // A channel has slots in runs of `inner`, or a single slot.
  const int64_t inner = plan.rows ? args.inner : 1, pattern = args.channels * inner;
  double sum = 0;
  if (channel < args.channels) {
    for (int64_t slot = channel * inner; slot < plan.slots; slot += pattern) {
      for (int64_t place = 0; place < inner; ++place) {
#pragma unroll 8
        for (int64_t part = lane; part < plan.parts; part += kPartLanes) {
          sum += parts[part * plan.slots + slot + place];
        }
      }
    }
  }
  lane_sums[threadIdx.x] = sum;
  for (int lanes = kPartLanes / 2; lanes > 0; lanes /= 2) {
    __syncthreads();
    if (lane < lanes) {
      lane_sums[threadIdx.x] += lane_sums[threadIdx.x + lanes * kSumChannels];
    }
  }
  if (lane == 0 && channel < args.channels) {
    static_cast<scalar_t*>(args.sums)[channel] =
        from_opmath<scalar_t>(static_cast<opmath_t<scalar_t>>(lane_sums[threadIdx.x]));
  }
}

template <typename scalar_t>
cudaError_t launch_backward_as(const BiasActArgs& args, cudaStream_t stream) {
  const auto plan = pass_plan<scalar_t>(args);
  LLTM_JIT_TRY(launch_pass<scalar_t>(args, plan, stream));
  if (!args.sums || sums_are_whole(args, plan)) return cudaSuccess;
  return launch(add_parts_kernel<scalar_t>,
                static_cast<unsigned>(ceil_div(args.channels, int64_t(kSumChannels))), kThreads, 0,
                stream, args, plan);
}

}  // namespace

cudaError_t launch_bias_act_backward(const BiasActArgs& args, cudaStream_t stream) {
  return dispatch_floating(
      args.type, [&](auto scalar) { return launch_backward_as<decltype(scalar)>(args, stream); });
}

int64_t sum_parts_numel_cuda(const BiasActArgs& args) {
  int64_t numel = 0;
  dispatch_floating(args.type, [&](auto scalar) {
    const auto plan = pass_plan<decltype(scalar)>(args);
    numel = plan.parts * plan.slots;
    return cudaSuccess;
  });
  return numel;
}

}  // namespace lltm_jit
