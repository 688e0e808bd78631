// The layout of the rows in Note [Rows on their way] (kernel.cpp).
#pragma once

#include <algorithm>
#include <vector>

#include "stylegan/filtered_lrelu/cpu/row_sums.h"

namespace lltm_jit {
namespace {

// Where rows lie in a task's scratch memory, which is the same for all planes.
template <typename acc_t>
struct Layout {
  Taps<acc_t> fu, fd;
  std::vector<Phase> columns;  // of the samples m = 0 ... up - 1
  int left, row_pitch;         // of a row of x: samples left of its first, and all
  int per_phase, phase_pitch;  // of a row of u that lies in `up` phases
  int per_part, part_pitch;    // of a row that lies in `down` parts
  int ring_rows, v_rows;       // of the rings

  explicit Layout(const FilteredLreluArgs& args) : fu(args.fu), fd(args.fd) {
    const int up = args.up, down = args.down, lanes = kLanes<acc_t>;
    per_phase = ceil_div(args.mid_w, up);
    phase_pitch = whole_vectors<acc_t>(per_phase);
    per_part = std::max(ceil_div(args.mid_w, down), args.out_w + (fd.width - 1) / down);
    part_pitch = whole_vectors<acc_t>(per_part + up) + lanes;
    int begin = 0, end = args.in_w;
    for (int m = 0; m < up; ++m) {
      columns.push_back(phase_of(m, args.pad_x, up, fu.width));
      begin = std::min(begin, columns[m].first);
      end = std::max(end, columns[m].first + columns[m].count + phase_pitch);
    }
    left = -begin;
    row_pitch = whole_vectors<acc_t>(end - begin) + lanes;
    ring_rows = ceil_div(fu.height, up);
    v_rows = fd.height;
  }
};

}  // namespace
}  // namespace lltm_jit
