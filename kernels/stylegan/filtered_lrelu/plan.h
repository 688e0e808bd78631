// The choice of filtered_lrelu's kernels on a GPU. It is made here alone, from sizes, types and a
// description of the device, so that tests need no GPU. No header of torch. README.md has the rule.
#pragma once

#include <cstdint>

#include "stylegan/filtered_lrelu/maths.h"
#include "stylegan/filtered_lrelu/mma/plan.h"

namespace lltm_jit {

struct FlrGpu {
  int architecture;  // of the loaded code: 90 for 9.0
  int shared_bytes;  // the most shared memory of a block
  int sms;           // multiprocessors, for the number of blocks
};

enum class FlrKernel : int8_t {
  TensorCores,  // a variant of variants/mma.cu
  Direct,       // cuda/direct.cu
  Formula,      // formula.cpp
};

// The rows and columns of y that one block of the direct kernel makes.
struct FlrTile {
  int rows, columns;
};

struct FlrPlan {
  FlrKernel kernel;
  MmaShape variant;  // of TensorCores
  int parts;         // of a plane, whose sums TensorCores can compute; else 0
  FlrTile tile;      // of Direct
};

FlrPlan flr_plan(const FilteredLreluArgs& args, const FlrGpu& gpu);

// The layout of a direct kernel's tile in shared memory, in elements of the arithmetic type.
struct FlrTileLayout {
  int v_h, v_w, x_h, x_w;  // samples that the tile needs
  int fu, fd;              // number of taps
  int a, b;                // the two buffers that the steps alternate between
  LLTM_JIT_HOST_DEVICE int64_t total() const { return int64_t(fu) + fd + a + b; }
};

LLTM_JIT_HOST_DEVICE int flr_taps(const FirFilter& filter) {
  return filter.width * (filter.height > 0 ? filter.height : 1);
}

LLTM_JIT_HOST_DEVICE FlrTileLayout flr_tile_layout(const FilteredLreluArgs& args, FlrTile tile) {
  const FirFilter &fu = args.fu, &fd = args.fd;
  FlrTileLayout result{};
  result.v_h = (tile.rows - 1) * args.down + height_of(fd);
  result.v_w = (tile.columns - 1) * args.down + fd.width;
  result.x_h = (result.v_h + height_of(fu) - 2) / args.up + 1;
  result.x_w = (result.v_w + fu.width - 2) / args.up + 1;
  result.fu = flr_taps(fu);
  result.fd = flr_taps(fd);
  const int x = result.x_h * result.x_w, v = result.v_h * result.v_w;
  // Where a step lies between x and v, they share a buffer, and the other steps' results the other one.
  result.a = fu.height > 0 ? v : larger(x, v);
  result.b = larger(fu.height > 0 ? x : result.x_h * result.v_w,
                    fd.height > 0 ? 0 : tile.rows * result.v_w);
  return result;
}

#ifdef LLTM_JIT_CUDA
struct FlrDirectArgs : FilteredLreluArgs {
  FlrTile tile;
};

// Enqueues on `stream`. A map that is to be written must be zero.
cudaError_t launch_filtered_lrelu(const FlrDirectArgs& args, cudaStream_t stream);

// Describes the current device.
cudaError_t flr_describe_gpu(FlrGpu* gpu);

// The driver's handle of a kernel on tensor cores, which is compiled on first use (core/python/variant.h);
// null if no compiler is found. Throws if the kernel does not compile, or if it would have to be loaded
// while a CUDA graph is captured.
const void* flr_variant(const FilteredLreluArgs& args, const MmaShape& shape);

// Launches it. cudaErrorNotSupported: the call does not fit this shape, or the chip is too old or too small.
cudaError_t launch_walks(const void* kernel, const MmaShape& shape, const FilteredLreluArgs& args,
                         cudaStream_t stream);
#endif

}  // namespace lltm_jit
