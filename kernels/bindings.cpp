// The extension module. One line an operator.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "core/library.h"

#define LLTM_JIT_FOR_EACH_OP(OP) \
  OP(lltm)                       \
  OP(my_op)                      \
  OP(sigmoid)

namespace lltm_jit {

#define DECLARE(op)                           \
  void register_##op(OpLibraries& libraries); \
  void bind_##op(pybind11::module_& m);
LLTM_JIT_FOR_EACH_OP(DECLARE)
#undef DECLARE

namespace {

// Never destroyed at exit: torch's dispatcher may be gone by then.
OpLibraries* registered = nullptr;

void register_ops() {
  if (registered != nullptr) return;
  auto libraries = std::make_unique<OpLibraries>();
#define REGISTER(op) register_##op(*libraries);
  LLTM_JIT_FOR_EACH_OP(REGISTER)
#undef REGISTER
  registered = libraries.release();
}

void release_ops() {
  delete registered;
  registered = nullptr;
}

}  // namespace
}  // namespace lltm_jit

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  // torch's own translation: Python errors keep their type, and messages come without a C++ trace.
  pybind11::register_local_exception_translator([](std::exception_ptr error) {
    if (error) torch::translate_exception_to_python(error);
  });
  m.def("register_ops", &lltm_jit::register_ops);
  m.def("release_ops", &lltm_jit::release_ops);
#define BIND(op) lltm_jit::bind_##op(m);
  LLTM_JIT_FOR_EACH_OP(BIND)
#undef BIND
}
