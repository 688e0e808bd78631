// The extension module of a family. Its bindings.cpp lists the operators, a line each:
//
//   PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
//     lltm_jit::Module module(m, "lltm_jit");
//     module.add<lltm_jit::ops::my_op, lltm_jit::ops::my_op_backward>();
//   }
//
// All headers that take long to compile come together here, and nowhere else in a family: pybind11's,
// the dispatcher's and autograd's share most of what they include.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "core/host/definitions.h"
#include "core/host/library.h"

namespace lltm_jit {

// The operators of a family, and whether they are registered.
class Family {
 public:
  explicit Family(const char* op_namespace) : namespace_(op_namespace) {}

  template <auto& op>
  void add() {
    op.call = Entry<op>::call;
    operators_.push_back([](OpLibraries& libraries, bool kernels) { libraries.add<op>(kernels); });
  }

  void register_ops(bool kernels) {
    auto libraries = std::make_unique<OpLibraries>(namespace_);
    const std::lock_guard<std::mutex> lock(mutex_);
    const QuietOverride quiet;
    for (const auto add : operators_) add(*libraries, kernels);
    registered_.swap(libraries);
  }

  void release_ops() {
    const std::lock_guard<std::mutex> lock(mutex_);
    registered_.reset();
  }

 private:
  const char* namespace_;
  std::vector<void (*)(OpLibraries&, bool)> operators_;
  std::mutex mutex_;
  std::unique_ptr<OpLibraries> registered_;
};

class __attribute__((visibility("hidden"))) Module {  // as pybind11's own classes
 public:
  Module(pybind11::module_& m, const char* op_namespace)
      : m_(m), family_(*new Family(op_namespace)) {
    // torch's own translation: Python errors keep their type, and messages have no trace.
    pybind11::register_local_exception_translator([](std::exception_ptr error) {
      if (error) torch::translate_exception_to_python(error);
    });
    // Registering again puts these operators before those of another build.
    m.def(
        "register_ops", [&family = family_](bool kernels) { family.register_ops(kernels); },
        pybind11::arg("kernels") = true, ReleaseGil());
    m.def("release_ops", [&family = family_] { family.release_ops(); }, ReleaseGil());
  }

  // Operators that belong together, the first of them a function of the module.
  template <auto& op, auto&... others>
  void add() {
    family_.add<op>();
    (family_.add<others>(), ...);
    m_.def(std::strrchr(op.name, ':') + 1, op.call, ReleaseGil());
  }

 private:
  using ReleaseGil = pybind11::call_guard<pybind11::gil_scoped_release>;

  pybind11::module_& m_;
  Family& family_;  // never destroyed: at exit torch's dispatcher may be gone before
};

}  // namespace lltm_jit
