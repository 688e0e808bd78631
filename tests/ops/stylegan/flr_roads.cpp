// For tests: the plan of filtered_lrelu for calls and GPUs that need not be there.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include "stylegan/filtered_lrelu/filtered_lrelu_plan.h"

namespace lltm_jit {
namespace {

using Pair = std::array<int, 2>;

// The arguments of a call, without pointers. A filter is [width, height]; height 0 is separable.
FilteredLreluArgs call(const std::string& type, const std::array<int, 4>& shape, int up, int down,
                       Pair fu, Pair fd, int padding, const std::string& signs) {
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
  args.mid_h = args.in_h * up + 2 * padding - (fu[1] ? fu[1] : fu[0]) + 1;
  args.mid_w = args.in_w * up + 2 * padding - fu[0] + 1;
  args.out_h = (args.mid_h - (fd[1] ? fd[1] : fd[0])) / down + 1;
  args.out_w = (args.mid_w - fd[0]) / down + 1;
  args.sign_h = args.mid_h;
  args.sign_w = args.mid_w;
  args.mode = signs == "write" ? Signs::Write : signs == "read" ? Signs::Read : Signs::None;
  if (args.mode == Signs::Write) {
    args.sign_phase_y = args.sign_phase_x = sign_phase(mma_shape(args), padding);
  }
  args.type = type == "half"       ? ElementType::Half
              : type == "bfloat16" ? ElementType::BFloat16
              : type == "float"    ? ElementType::Float
                                   : ElementType::Double;
  return args;
}

const char* name(FlrRoad road) {
  constexpr const char* kNames[] = {"TensorCores", "Direct", "Passes", "Formula"};
  return kNames[static_cast<int>(road)];
}

int bytes(const FilteredLreluArgs& args, FlrTile tile) {
  return flr_tile_layout(args, tile).total() * (args.type == ElementType::Double ? 8 : 4);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  // The road; for those of the direct kernel the tiles of its launches and their shared memory.
  m.def(
      "plan",
      [](const std::string& type, const std::array<int, 4>& shape, int up, int down, Pair fu,
         Pair fd, int padding, const std::string& signs, int architecture, int shared_bytes) {
        const FilteredLreluArgs args = call(type, shape, up, down, fu, fd, padding, signs);
        const FlrPlan plan = flr_plan(args, {architecture, shared_bytes});
        py::list launches;
        const auto add = [&](const FilteredLreluArgs& launch, FlrTile tile) {
          launches.append(py::make_tuple(tile.rows, tile.columns, bytes(launch, tile)));
        };
        if (plan.road == FlrRoad::Direct) add(args, plan.tile);
        if (plan.road == FlrRoad::Passes) {
          add(flr_up_pass(args), plan.up);
          add(flr_down_pass(args), plan.down);
        }
        return py::make_tuple(name(plan.road), launches);
      },
      py::kw_only(), py::arg("type") = "float", py::arg("shape") = std::array{16, 512, 64, 64},
      py::arg("up") = 2, py::arg("down") = 2, py::arg("fu") = Pair{12, 0},
      py::arg("fd") = Pair{12, 0}, py::arg("padding") = 11, py::arg("signs") = "none",
      py::arg("architecture") = 90, py::arg("shared_bytes") = 227 * 1024);
}

}  // namespace lltm_jit
