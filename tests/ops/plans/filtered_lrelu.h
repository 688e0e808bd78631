// The plan of filtered_lrelu for calls and GPUs that need not be there.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include "stylegan/filtered_lrelu/plan.h"

namespace lltm_jit {
namespace py = pybind11;
namespace {

using Pair = std::array<int, 2>;

// The arguments of a call, without pointers. A filter is [width, height]; height 0 is separable.
FilteredLreluArgs call(const std::string& type, const std::array<int, 4>& shape, int up, int down,
                       Pair fu, Pair fd, int padding, const std::string& signs,
                       double slope = 0.2) {
  FilteredLreluArgs args{};
  args.batch = shape[0];
  args.channels = shape[1];
  args.in_h = shape[2];
  args.in_w = shape[3];
  args.up = up;
  args.down = down;
  args.fu = {nullptr, fu[0], fu[1], false};
  args.fd = {nullptr, fd[0], fd[1], false};
  args.pad_x = args.pad_y = padding;
  args.slope = slope;
  args.mid_h = args.in_h * up + 2 * padding - (fu[1] ? fu[1] : fu[0]) + 1;
  args.mid_w = args.in_w * up + 2 * padding - fu[0] + 1;
  args.out_h = (args.mid_h - (fd[1] ? fd[1] : fd[0])) / down + 1;
  args.out_w = (args.mid_w - fd[0]) / down + 1;
  args.sign_h = args.mid_h;
  args.sign_w = args.mid_w;
  args.mode = signs == "write" ? Signs::Write : signs == "read" ? Signs::Read : Signs::None;
  if (args.mode == Signs::Write) {
    args.sign_phase_y = args.sign_phase_x = sign_phases(args).rows;
  }
  args.type = type == "half"       ? ElementType::Half
              : type == "bfloat16" ? ElementType::BFloat16
              : type == "float"    ? ElementType::Float
                                   : ElementType::Double;
  return args;
}

// The call of the backward pass of one that writes signs.
FilteredLreluArgs transposed(const FilteredLreluArgs& call) {
  FilteredLreluArgs args = call;
  args.mode = Signs::Read;
  std::swap(args.up, args.down);
  std::swap(args.fu, args.fd);
  std::swap(args.in_h, args.out_h);
  std::swap(args.in_w, args.out_w);
  args.pad_x = args.pad_y = call.fu.width - 1 + call.fd.width - 1 - call.pad_x;
  args.sign_x = args.sign_y = call.pad_x - (call.fu.width - 1);
  return args;
}

// What a block of the variant for a call asks for, in bytes.
int variant_bytes(const FilteredLreluArgs& args, const FlrPlan& plan) {
  if (plan.kernel != FlrKernel::TensorCores) return 0;
  return plan.variant.shared_bytes(args.type == ElementType::Float ? 4 : 2);
}

const char* name(FlrKernel kernel) {
  constexpr const char* kNames[] = {"TensorCores", "Direct", "Formula"};
  return kNames[static_cast<int>(kernel)];
}

int bytes(const FilteredLreluArgs& args, FlrTile tile) {
  return flr_tile_layout(args, tile).total() * (args.type == ElementType::Double ? 8 : 4);
}

}  // namespace

inline void bind_filtered_lrelu(py::module_ m) {
  // The kernel; for the direct kernel the rows and columns of its tile, and its shared memory.
  m.def(
      "plan",
      [](const std::string& type, const std::array<int, 4>& shape, int up, int down, Pair fu,
         Pair fd, int padding, const std::string& signs, double slope, int architecture,
         int shared_bytes) {
        const FilteredLreluArgs args = call(type, shape, up, down, fu, fd, padding, signs, slope);
        const FlrPlan plan = flr_plan(args, {architecture, shared_bytes});
        const auto [rows, columns] = plan.tile;
        const bool direct = plan.kernel == FlrKernel::Direct;
        return py::make_tuple(name(plan.kernel), rows, columns,
                              direct ? bytes(args, plan.tile) : 0);
      },
      py::kw_only(), py::arg("type") = "float", py::arg("shape") = std::array{16, 512, 64, 64},
      py::arg("up") = 2, py::arg("down") = 2, py::arg("fu") = Pair{12, 0},
      py::arg("fd") = Pair{12, 0}, py::arg("padding") = 11, py::arg("signs") = "none",
      py::arg("slope") = 0.2, py::arg("architecture") = 90, py::arg("shared_bytes") = 227 * 1024);
  // The kernels of a call that writes signs and of its backward pass, and the variants' shared memory.
  m.def(
      "both_ways",
      [](const std::string& type, const std::array<int, 4>& shape, int up, int down, int fu, int fd,
         int padding, int shared_bytes) {
        const FilteredLreluArgs forward =
            call(type, shape, up, down, {fu, 0}, {fd, 0}, padding, "write");
        py::list found;
        for (const FilteredLreluArgs& args : {forward, transposed(forward)}) {
          const FlrPlan plan = flr_plan(args, {90, shared_bytes});
          found.append(py::make_tuple(name(plan.kernel), variant_bytes(args, plan)));
        }
        return found;
      },
      py::kw_only(), py::arg("type"), py::arg("shape"), py::arg("up"), py::arg("down"),
      py::arg("fu"), py::arg("fd"), py::arg("padding"), py::arg("shared_bytes") = 227 * 1024);
}

}  // namespace lltm_jit
