// lltm_plan(), for a cell, and a processor or GPU that need not be there.
#pragma once

#include <pybind11/pybind11.h>

#include "rnn/cell_step/kernels.h"

namespace lltm_jit {
namespace py = pybind11;

inline void bind_types(py::module_ m) {
  py::enum_<ElementType>(m, "Type", py::module_local())
      .value("half", ElementType::Half)
      .value("bfloat16", ElementType::BFloat16)
      .value("float", ElementType::Float)
      .value("double", ElementType::Double);
}

inline void bind_lltm(py::module_ m) {
  using Forward = LltmForwardKernel;
  py::enum_<Forward>(m, "Forward", py::module_local())
      .value("Library", Forward::Library)
      .value("Cpu", Forward::Cpu)
      .value("Tiny", Forward::Tiny)
      .value("Medium", Forward::Medium)
      .value("Large", Forward::Large)
      .value("MediumCluster", Forward::MediumCluster)
      .value("WideCluster", Forward::WideCluster)
      .value("LargeCluster", Forward::LargeCluster);
  using Backward = LltmBackwardKernel;
  py::enum_<Backward>(m, "Backward", py::module_local())
      .value("Library", Backward::Library)
      .value("Cpu", Backward::Cpu)
      .value("Medium", Backward::Medium)
      .value("Large", Backward::Large);
  py::class_<LltmProblem>(m, "Problem", py::module_local())
      .def(py::init<>())
      .def_readwrite("batch_size", &LltmProblem::batch_size)
      .def_readwrite("input_size", &LltmProblem::input_size)
      .def_readwrite("hidden_size", &LltmProblem::hidden_size)
      .def_readwrite("type", &LltmProblem::type)
      .def_readwrite("aligned", &LltmProblem::aligned)
      .def_readwrite("apart", &LltmProblem::apart)
      .def_readwrite("grad_columns", &LltmProblem::grad_columns);
  py::class_<CpuFeatures>(m, "Cpu", py::module_local())
      .def(py::init<>())
      .def_readwrite("wide_vectors", &CpuFeatures::wide_vectors)
      .def_readwrite("bfloat16_products", &CpuFeatures::bfloat16_products)
      .def_readwrite("half_products", &CpuFeatures::half_products)
      .def_readwrite("many_threads", &CpuFeatures::many_threads);
  py::class_<LltmGpu>(m, "Gpu", py::module_local())
      .def(py::init<>())
      .def_readwrite("architecture", &LltmGpu::architecture)
      .def_readwrite("wgmma", &LltmGpu::wgmma)
      .def_readwrite("shared_bytes", &LltmGpu::shared_bytes)
      .def_readwrite("sms", &LltmGpu::sms)
      .def_readwrite("clusters", &LltmGpu::clusters);
  py::class_<LltmPlan>(m, "Plan", py::module_local())
      .def(py::init<>())
      .def_readwrite("forward", &LltmPlan::forward)
      .def_readwrite("backward", &LltmPlan::backward)
      .def_readwrite("forward_stages", &LltmPlan::forward_stages)
      .def_readwrite("backward_stages", &LltmPlan::backward_stages);
  m.def("plan", py::overload_cast<const LltmProblem&, const CpuFeatures&>(&lltm_plan));
  m.def("plan", py::overload_cast<const LltmProblem&, const LltmGpu&>(&lltm_plan));
}

}  // namespace lltm_jit
