// The extension module of a family. Its bindings.cpp lists the operators, one line each:
//
//   #define FOR_EACH_OP(OP) OP(my_op) OP(sigmoid)
//   LLTM_JIT_MODULE(FOR_EACH_OP)
//
// and each operator has register_<op>(OpLibraries&) and bind_<op>(pybind11::module_&).
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "core/host/library.h"

#define LLTM_JIT_DECLARE_OP(op)               \
  void register_##op(OpLibraries& libraries); \
  void bind_##op(pybind11::module_& m);
#define LLTM_JIT_REGISTER_OP(op) register_##op(*libraries);
#define LLTM_JIT_BIND_OP(op) lltm_jit::bind_##op(m);

#define LLTM_JIT_MODULE(FOR_EACH_OP)                                                          \
  namespace lltm_jit {                                                                        \
  FOR_EACH_OP(LLTM_JIT_DECLARE_OP)                                                            \
  namespace {                                                                                 \
  /* Never destroyed at exit: torch's dispatcher may be gone by then. */                      \
  OpLibraries* registered = nullptr;                                                          \
  void register_ops() {                                                                       \
    if (registered != nullptr) return;                                                        \
    auto libraries = std::make_unique<OpLibraries>();                                         \
    FOR_EACH_OP(LLTM_JIT_REGISTER_OP)                                                         \
    registered = libraries.release();                                                         \
  }                                                                                           \
  void release_ops() {                                                                        \
    delete registered;                                                                        \
    registered = nullptr;                                                                     \
  }                                                                                           \
  }                                                                                           \
  }                                                                                           \
  PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {                                                  \
    /* torch's own translation: Python errors keep their type, and messages have no trace. */ \
    pybind11::register_local_exception_translator([](std::exception_ptr error) {              \
      if (error) torch::translate_exception_to_python(error);                                 \
    });                                                                                       \
    m.def("register_ops", &lltm_jit::register_ops);                                           \
    m.def("release_ops", &lltm_jit::release_ops);                                             \
    FOR_EACH_OP(LLTM_JIT_BIND_OP)                                                             \
  }
