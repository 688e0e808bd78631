// sequence_plan(), and the plan after a refusal, on a GPU that need not be there.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "lltm.h"
#include "rnn/sequence/plan/cycles.h"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {
namespace py = pybind11;

inline void bind_sequence(py::module_ m) {
  py::enum_<SequencePass>(m, "Pass", py::module_local())
      .value("forward", SequencePass::Forward)
      .value("backward", SequencePass::Backward);
  py::enum_<PlanKind>(m, "Kind", py::module_local())
      .value("any", PlanKind::Any)
      .value("steps", PlanKind::Steps)
      .value("persistent", PlanKind::Persistent)
      .value("many_rows", PlanKind::ManyRows);
  bind_record<SequenceSizes>(
      m, "Sizes",
      "steps batch_size hidden_size gates states parameters adds_gates type tf32 directions heads "
      "normalises",
      &SequenceSizes::steps, &SequenceSizes::batch_size, &SequenceSizes::hidden_size,
      &SequenceSizes::gates, &SequenceSizes::states, &SequenceSizes::parameters,
      &SequenceSizes::adds_gates, &SequenceSizes::type, &SequenceSizes::tf32,
      &SequenceSizes::directions, &SequenceSizes::heads, &SequenceSizes::normalises);
  bind_record<SequenceGpu>(m, "Gpu", "architecture shared_bytes sms grids clusters kind",
                           &SequenceGpu::architecture, &SequenceGpu::shared_bytes,
                           &SequenceGpu::sms, &SequenceGpu::grids, &SequenceGpu::clusters,
                           &SequenceGpu::kind);
  bind_result<SequenceShape>(
      m, "Shape", "blocks groups splits rows phases streamed_tiles shared_tiles bytes grid tf32",
      &SequenceShape::blocks, &SequenceShape::groups, &SequenceShape::splits, &SequenceShape::rows,
      &SequenceShape::phases, &SequenceShape::streamed_tiles, &SequenceShape::shared_tiles,
      &SequenceShape::bytes, &SequenceShape::grid, &SequenceShape::tf32)
      .def("warps", [](const SequenceShape& shape) { return shape.warps(); })
      .def("tiles", [](const SequenceShape& shape) { return shape.tiles(); })
      .def("tiles_of_warp", [](const SequenceShape& shape) { return shape.tiles_of_warp(); })
      .def("own_tiles", &SequenceShape::own_tiles)
      .def("output_tiles", &SequenceShape::output_tiles)
      .def("shared_bytes",
           [](const SequenceShape& shape, const SequenceSizes& sizes, SequencePass pass) {
             const SequenceGpu any{};
             return ShapeCost{sizes, pass, shape, any}.shared_bytes();
           });
  bind_result<ManyRowsShape>(m, "ManyRowsShape", "blocks units tiles chunks streamed scaled",
                             &ManyRowsShape::blocks, &ManyRowsShape::units, &ManyRowsShape::tiles,
                             &ManyRowsShape::chunks, &ManyRowsShape::streamed,
                             &ManyRowsShape::scaled)
      .def("turns", &ManyRowsShape::turns)
      .def("chunk_bytes", &ManyRowsShape::chunk_bytes)
      .def("shared_bytes", &ManyRowsShape::shared_bytes);
  bind_result<SequencePlan>(m, "Plan", "persistent shape cycles many_rows workspace shared_bytes",
                            &SequencePlan::persistent, &SequencePlan::shape, &SequencePlan::cycles,
                            &SequencePlan::many_rows, &SequencePlan::workspace,
                            &SequencePlan::shared_bytes);
  m.def("plan", &sequence_plan);
  m.def("after_refusal", &after_refusal);
}

}  // namespace lltm_jit
