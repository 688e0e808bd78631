// sequence_plan(), and the plan after a refusal, on a GPU that need not be there.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "lltm.h"
#include "rnn/sequence/plan/plan.h"

namespace lltm_jit {
namespace py = pybind11;

inline void bind_sequence(py::module_ m) {
  py::enum_<SequencePass>(m, "Pass", py::module_local())
      .value("forward", SequencePass::Forward)
      .value("backward", SequencePass::Backward);
  bind_record<SequenceSizes>(
      m, "Sizes",
      "steps batch_size hidden_size gates states parameters adds_gates type tf32 directions heads",
      &SequenceSizes::steps, &SequenceSizes::batch_size, &SequenceSizes::hidden_size,
      &SequenceSizes::gates, &SequenceSizes::states, &SequenceSizes::parameters,
      &SequenceSizes::adds_gates, &SequenceSizes::type, &SequenceSizes::tf32,
      &SequenceSizes::directions, &SequenceSizes::heads);
  bind_record<SequenceGpu>(m, "Gpu", "architecture shared_bytes sms grids clusters",
                           &SequenceGpu::architecture, &SequenceGpu::shared_bytes,
                           &SequenceGpu::sms, &SequenceGpu::grids, &SequenceGpu::clusters);
  py::class_<SequenceShape>(m, "Shape", py::module_local())
      .def_readonly("blocks", &SequenceShape::blocks)
      .def_readonly("groups", &SequenceShape::groups)
      .def_readonly("splits", &SequenceShape::splits)
      .def_readonly("rows", &SequenceShape::rows)
      .def_readonly("phases", &SequenceShape::phases)
      .def_readonly("streamed_tiles", &SequenceShape::streamed_tiles)
      .def_readonly("shared_tiles", &SequenceShape::shared_tiles)
      .def_readonly("bytes", &SequenceShape::bytes)
      .def_readonly("grid", &SequenceShape::grid)
      .def_readonly("tf32", &SequenceShape::tf32)
      .def("warps", [](const SequenceShape& shape) { return shape.warps(); })
      .def("tiles", [](const SequenceShape& shape) { return shape.tiles(); })
      .def("tiles_of_warp", [](const SequenceShape& shape) { return shape.tiles_of_warp(); })
      .def("own_tiles", &SequenceShape::own_tiles)
      .def("output_tiles", &SequenceShape::output_tiles)
      .def("shared_bytes",
           [](const SequenceShape& shape, const SequenceSizes& sizes, SequencePass pass) {
             return pass == SequencePass::Forward
                        ? shape.forward_bytes(sizes.gates)
                        : shape.backward_bytes(sizes.gates, sizes.states, sizes.adds_gates);
           });
  py::class_<ManyRowsShape>(m, "ManyRowsShape", py::module_local())
      .def_readonly("blocks", &ManyRowsShape::blocks)
      .def_readonly("units", &ManyRowsShape::units)
      .def_readonly("tiles", &ManyRowsShape::tiles)
      .def_readonly("chunks", &ManyRowsShape::chunks)
      .def_readonly("streamed", &ManyRowsShape::streamed)
      .def("shared_bytes", &ManyRowsShape::shared_bytes);
  py::class_<SequencePlan>(m, "Plan", py::module_local())
      .def_readonly("one_launch", &SequencePlan::one_launch)
      .def_readonly("shape", &SequencePlan::shape)
      .def_readonly("cycles", &SequencePlan::cycles)
      .def_readonly("many_rows", &SequencePlan::many_rows)
      .def_readonly("workspace", &SequencePlan::workspace);
  m.def("plan", &sequence_plan);
  m.def("after_refusal", &after_refusal);
}

}  // namespace lltm_jit
