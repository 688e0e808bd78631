// The extension module of a family. Its bindings.cpp lists the operators, a line each:
//
//   LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) {
//     lltm_jit::Module module(m, "lltm_jit");
//     module.add<lltm_jit::ops::my_op, lltm_jit::ops::my_op_backward>();
//   }
//
// Only here does a family include headers that take long to compile, because the dispatcher's and
// autograd's share most of their includes.
#pragma once

#include <cstring>

#include "core/host/definitions.h"
#include "core/host/library.h"
#include "core/python/functions.h"

namespace lltm_jit {

class __attribute__((visibility("hidden"))) Module {  // so that each library has its own family_
 public:
  Module(PyObject* m, const char* op_namespace, python::Tensors tensors = python::Tensors::Any)
      : m_(m) {
    family_ = new Family(op_namespace);
    tensors_ = tensors;
    // Registering again gives these operators precedence over those of another build.
    def("register_ops", register_ops, METH_VARARGS | METH_KEYWORDS);
    def("release_ops", release_ops, METH_NOARGS);
  }

  // Adds operators that belong together; the first becomes a function of the module.
  template <auto& op, auto&... others>
  void add() {
    family_->add<op>();
    (family_->add<others>(), ...);
    def(function_name(op.name), call<op>, METH_FASTCALL);
  }

  // Adds a function that is no operator.
  template <auto* function>
  void add_function(const char* name) {
    function_name_<function> = name;
    def(name, call_function<function>, METH_FASTCALL);
  }

 private:
  static const char* function_name(const char* name) { return std::strrchr(name, ':') + 1; }

  template <typename Function>
  void def(const char* name, Function* function, int flags) {
    const auto method = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
    PyModule_AddFunctions(m_, new PyMethodDef[2]{{name, method, flags, nullptr}, {}});
  }

  template <auto& op>
  static PyObject* call(PyObject*, PyObject* const* objects, Py_ssize_t count) {
    return python::call(op.call, function_name(op.name), tensors_, objects, count);
  }

  template <auto* function>
  static PyObject* call_function(PyObject*, PyObject* const* objects, Py_ssize_t count) {
    return python::call(function, function_name_<function>, tensors_, objects, count);
  }

  static PyObject* register_ops(PyObject*, PyObject* args, PyObject* named) {
    static const char* names[] = {"kernels", nullptr};
    int kernels = true;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|p", const_cast<char**>(names), &kernels)) {
      return nullptr;
    }
    return without_result([&] { family_->register_ops(kernels); });
  }

  static PyObject* release_ops(PyObject*, PyObject*) {
    return without_result([] { family_->release_ops(); });
  }

  template <typename Function>
  static PyObject* without_result(const Function& function) {
    return python::translated([&] {
      {
        const python::ReleasedGil released;
        function();
      }
      Py_RETURN_NONE;
    });
  }

  PyObject* m_;
  inline static Family* family_;  // never destroyed: torch's dispatcher may be gone first
  inline static python::Tensors tensors_;
  template <auto* function>
  inline static const char* function_name_;
};

}  // namespace lltm_jit
