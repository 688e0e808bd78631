// The sizes from which the CPU's products and steps are divided, or go another way.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "core/products/bounds.h"
#include "rnn/cell_step/cpu/limits.h"
#include "rnn/sequence/cpu/steps.h"

namespace lltm_jit {

inline void bind_cpu_bounds(pybind11::module_ m) {
  using Bounds = std::vector<int64_t>;
  m.def("packed_rows", [] { return Bounds{PackedBounds::kBlockRows, PackedBounds::kFewestRows}; });
  m.def("packed_columns", [](int64_t element_bytes) {
    return Bounds{PackedBounds::kKeptBytes / element_bytes / PackedBounds::kBlockDepth};
  });
  m.def("packed_depth", [] { return Bounds{PackedBounds::kBlockDepth, PackedBounds::kDeep}; });
  m.def("cell_rows", [] {
    return Bounds{PanelBounds::kFewestRowsToCopyFor, LltmCpuBounds::kFewestTaskRows,
                  PanelBounds::kBlockRows,           LltmCpuBounds::kDotTaskRows,
                  LltmCpuBounds::kTaskRows,          LltmCpuBounds::kFewestRowsForPanels,
                  LltmCpuBounds::kSplitDepth};
  });
  m.def("cell_columns", [] {
    return Bounds{PanelBounds::kBlockDepth, PanelBounds::kOneRowColumns, LltmCpuBounds::kDotDepth};
  });
  m.def("cell_split", [] { return LltmCpuBounds::kLargestSplit; });
  m.def("sequence_rows",
        [] { return Bounds{SequenceCpuBounds::kTileRows, SequenceCpuBounds::kRows}; });
  m.def("sequence_depth",
        [] { return Bounds{SequenceCpuBounds::kDepth, SequenceCpuBounds::kPairsDepth}; });
}

}  // namespace lltm_jit
