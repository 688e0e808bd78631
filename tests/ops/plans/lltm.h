// lltm_plan(), for a cell, and a processor or GPU that need not be there.
#pragma once

#include <pybind11/pybind11.h>

#include <sstream>
#include <string>

#include "rnn/cell_step/kernels.h"

namespace lltm_jit {
namespace py = pybind11;

// A struct that Python reads: these names are for its members, one after the other.
template <typename T, typename... Members>
py::class_<T> bind_result(py::module_ m, const char* name, const char* names, Members... members) {
  py::class_<T> result(m, name, py::module_local());
  std::istringstream words(names);
  std::string word;
  ((words >> word, result.def_readonly(word.c_str(), members)), ...);
  return result;
}

// The same of one that Python fills.
template <typename T, typename... Members>
void bind_record(py::module_ m, const char* name, const char* names, Members... members) {
  py::class_<T> record(m, name, py::module_local());
  record.def(py::init<>());
  std::istringstream words(names);
  std::string word;
  ((words >> word, record.def_readwrite(word.c_str(), members)), ...);
}

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
  bind_record<LltmProblem>(m, "Problem",
                           "batch_size input_size hidden_size type aligned apart grad_columns tf32",
                           &LltmProblem::batch_size, &LltmProblem::input_size,
                           &LltmProblem::hidden_size, &LltmProblem::type, &LltmProblem::aligned,
                           &LltmProblem::apart, &LltmProblem::grad_columns, &LltmProblem::tf32);
  bind_record<CpuFeatures>(m, "Cpu", "wide_vectors bfloat16_products half_products many_threads",
                           &CpuFeatures::wide_vectors, &CpuFeatures::bfloat16_products,
                           &CpuFeatures::half_products, &CpuFeatures::many_threads);
  bind_record<LltmGpu>(m, "Gpu", "architecture wgmma shared_bytes sms clusters",
                       &LltmGpu::architecture, &LltmGpu::wgmma, &LltmGpu::shared_bytes,
                       &LltmGpu::sms, &LltmGpu::clusters);
  bind_record<LltmPlan>(m, "Plan", "forward backward forward_stages backward_stages",
                        &LltmPlan::forward, &LltmPlan::backward, &LltmPlan::forward_stages,
                        &LltmPlan::backward_stages);
  m.def("plan", py::overload_cast<const LltmProblem&, const CpuFeatures&>(&lltm_plan));
  m.def("plan", py::overload_cast<const LltmProblem&, const LltmGpu&>(&lltm_plan));
}

}  // namespace lltm_jit
