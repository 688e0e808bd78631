// Functions of a Python module, on Python's own C API.
//
// Note [Without pybind11]
// pybind11's headers, and the code that it adds to every module, take longer to compile than
// everything a family registers; only variant.cpp includes them. Operators need positional
// arguments, a released GIL, and torch's translation of exceptions; these are here. torch's headers
// for Python include pybind11's, so the few names needed of them are declared here.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/core/SymInt.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/python/translate.h"

extern PyObject* THPVariableClass;  // torch.Tensor
extern PyObject* ParameterClass;    // torch.nn.Parameter
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);
namespace torch {
void translate_exception_to_python(const std::exception_ptr& error);
}

namespace lltm_jit::python {

struct Decref {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() { PyEval_RestoreThread(state_); }
  ReleasedGil(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

// Thrown if Python's error is set already.
struct ErrorIsSet {};

// The result of function(), or null with Python's error set if it throws.
template <typename Function>
PyObject* translated(const Function& function) {
  try {
    return function();
  } catch (const ErrorIsSet&) {
    return nullptr;
  } catch (...) {
    const auto error = std::current_exception();
    if (!translate_pybind || !translate_pybind(error)) torch::translate_exception_to_python(error);
    return nullptr;
  }
}

// ------------------------------------------------------------------------------------ arguments --

// One argument of one call. Its number counts from 1.
struct Given {
  const char* function;
  size_t number;
  PyObject* object;

  [[noreturn]] void refuse(const char* expected) const {
    const bool of_type = !PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError) ||
                         PyErr_ExceptionMatches(PyExc_OverflowError);
    if (!of_type) throw ErrorIsSet();  // such as Ctrl-C in an object's own __index__()
    PyErr_Clear();
    TORCH_CHECK_TYPE(false, function, "(): expected argument ", number, " to be ", expected,
                     ", but got ", Py_TYPE(object)->tp_name);
  }
};

// The offset of the at::Tensor in an object of torch.Tensor: after the object's head and, up to
// torch 2.10, a flag. A known tensor shows where it is, so that nothing else is ever taken for one.
inline size_t find_tensor() {
  const at::Tensor tensor = at::detail::empty_cpu({0}, at::kFloat, /*pin_memory=*/false);
  const Owned object(THPVariable_Wrap(tensor));
  TORCH_CHECK(object, "torch cannot make a Python object of a tensor");
  for (const size_t offset : {sizeof(PyObject), sizeof(PyObject) + sizeof(void*)}) {
    const void* found = nullptr;
    std::memcpy(&found, reinterpret_cast<const char*>(object.get()) + offset, sizeof found);
    if (found == tensor.unsafeGetTensorImpl()) return offset;
  }
  TORCH_CHECK(false, "lltm_jit does not know where objects of this torch's Tensor keep their data");
}

// create() sets it before any call. Searching during a call would need a lock, with the GIL held.
inline size_t tensor_offset = 0;

template <typename T>
struct As {};

// The tensor of an object that the caller holds.
inline const at::Tensor& value(As<at::Tensor>, const Given& given) {
  static_assert(sizeof(at::Tensor) == sizeof(void*));
  if (!PyObject_TypeCheck(given.object, reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
    given.refuse("a tensor");
  }
  return *reinterpret_cast<const at::Tensor*>(reinterpret_cast<const char*>(given.object) +
                                              tensor_offset);
}

inline bool value(As<bool>, const Given& given) {
  if (!PyBool_Check(given.object)) given.refuse("a bool");
  return given.object == Py_True;
}

inline int64_t value(As<int64_t>, const Given& given) {
  const Owned index(PyNumber_Index(given.object));
  const int64_t value = index ? PyLong_AsLongLong(index.get()) : -1;
  if (value == -1 && PyErr_Occurred()) given.refuse("an int of 64 bits");
  return value;
}

inline c10::SymInt value(As<c10::SymInt>, const Given& given) {
  return value(As<int64_t>(), given);
}

inline double value(As<double>, const Given& given) {
  const double value = PyFloat_AsDouble(given.object);
  if (value == -1 && PyErr_Occurred()) given.refuse("a float");
  return value;
}

// A view of the object, which the caller keeps alive.
inline std::string_view value(As<std::string_view>, const Given& given) {
  Py_ssize_t size = 0;
  const char* text =
      PyUnicode_Check(given.object) ? PyUnicode_AsUTF8AndSize(given.object, &size) : nullptr;
  if (text == nullptr) given.refuse("a string");
  return {text, static_cast<size_t>(size)};
}

template <typename T>
std::optional<T> value(As<std::optional<T>>, const Given& given) {
  return given.object == Py_None ? std::nullopt : std::optional<T>(value(As<T>(), given));
}

// A single number counts as a list of one.
template <typename T>
c10::SmallVector<T, 4> value(As<at::ArrayRef<T>>, const Given& given) {
  if (PyIndex_Check(given.object)) return {value(As<T>(), given)};
  const Owned items(PySequence_Fast(given.object, ""));
  if (!items) given.refuse("a sequence");
  c10::SmallVector<T, 4> values;  // short lists need no allocation
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    values.push_back(value(As<T>(), {given.function, given.number, item}));
  }
  return values;
}

// -------------------------------------------------------------------------------------- results --

inline PyObject* object_of(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }
inline PyObject* object_of(int64_t number) { return PyLong_FromLongLong(number); }
inline PyObject* object_of(bool value) { return PyBool_FromLong(value); }

inline PyObject* object_of(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), Py_ssize_t(text.size()));
}

template <typename... Results>
PyObject* object_of(const std::tuple<Results...>& results);

template <typename Item>
PyObject* object_of(const std::vector<Item>& items) {
  Owned list(PyList_New(Py_ssize_t(items.size())));
  for (size_t i = 0; list && i < items.size(); ++i) {
    PyObject* object = object_of(items[i]);
    if (!object) return nullptr;
    PyList_SET_ITEM(list.get(), Py_ssize_t(i), object);
  }
  return list.release();
}

template <typename... Results>
PyObject* object_of(const std::tuple<Results...>& results) {
  const std::array<Owned, sizeof...(Results)> objects = std::apply(
      [](const auto&... result) { return std::array{Owned(object_of(result))...}; }, results);
  return std::apply(
      [](const auto&... object) -> PyObject* {
        if (!(object && ...)) return nullptr;
        return PyTuple_Pack(sizeof...(object), object.get()...);
      },
      objects);
}

// ---------------------------------------------------------------------------------------- calls --

// The objects that a function accepts as tensors.
enum class Tensors {
  Any,  // also subclasses: the caller has asked whether they override torch's functions
  Plain,  // torch.Tensor and Parameter on a CPU or GPU, with no mode that overrides torch's functions.
          // For anything else the function returns NotImplemented, and its caller looks closer.
};

template <typename T>
bool is_plain(As<T>, PyObject*) {
  return true;
}
inline bool is_plain(As<at::Tensor>, PyObject* object) {
  const auto* type = reinterpret_cast<const PyObject*>(Py_TYPE(object));
  if (type != THPVariableClass && type != ParameterClass) return false;
  const at::Tensor& tensor = value(As<at::Tensor>(), {"", 0, object});
  return tensor.is_cpu() || tensor.is_cuda();
}
inline bool is_plain(As<std::optional<at::Tensor>>, PyObject* object) {
  return object == Py_None || is_plain(As<at::Tensor>(), object);
}

template <typename Result, typename... Args, size_t... kIndex>
bool are_plain(Result (*)(Args...), PyObject* const* objects, std::index_sequence<kIndex...>) {
  return !at::impl::torch_function_mode_enabled() &&
         (is_plain(As<std::decay_t<Args>>(), objects[kIndex]) && ...);
}

template <typename Result, typename... Args, size_t... kIndex>
PyObject* call(Result (*function)(Args...), const char* name, PyObject* const* objects,
               std::index_sequence<kIndex...>) {
  // Braces, so that the first argument is read first.
  const std::tuple<decltype(value(As<std::decay_t<Args>>(), Given()))...> values{
      value(As<std::decay_t<Args>>(), Given{name, kIndex + 1, objects[kIndex]})...};
  const auto released = [&] {
    const ReleasedGil released;
    return function(std::get<kIndex>(values)...);
  };
  if constexpr (std::is_void_v<Result>) {
    released();
    Py_RETURN_NONE;
  } else {
    return object_of(released());
  }
}

// Calls a function without the GIL, and takes its arguments from Python objects.
template <typename Result, typename... Args>
PyObject* call(Result (*function)(Args...), const char* name, Tensors tensors,
               PyObject* const* objects, Py_ssize_t count) {
  return translated([&]() -> PyObject* {
    TORCH_CHECK_TYPE(size_t(count) == sizeof...(Args), name, "(): expected ", sizeof...(Args),
                     " positional arguments, but got ", count);
    constexpr std::index_sequence_for<Args...> kAll{};
    if (tensors == Tensors::Plain && !are_plain(function, objects, kAll)) {
      Py_RETURN_NOTIMPLEMENTED;
    }
    return call(function, name, objects, kAll);
  });
}

// --------------------------------------------------------------------------------------- module --

// A module whose functions `define` adds; they live as long as the process.
inline PyObject* create(const char* name, void (*define)(PyObject* module)) {
  return translated([&]() -> PyObject* {
    tensor_offset = find_tensor();
    auto* definition = new PyModuleDef{PyModuleDef_HEAD_INIT, name, nullptr, -1};
    Owned module(PyModule_Create(definition));
    if (module) define(module.get());
    return PyErr_Occurred() ? nullptr : module.release();
  });
}

}  // namespace lltm_jit::python

// The body of a module's initialisation, in place of PYBIND11_MODULE(name, m).
#define LLTM_JIT_MODULE(name, m) LLTM_JIT_MODULE_OF(name, m)
#define LLTM_JIT_MODULE_OF(name, m)                                 \
  static void lltm_jit_define_##name(PyObject* m);                  \
  PyMODINIT_FUNC PyInit_##name() {                                  \
    return lltm_jit::python::create(#name, lltm_jit_define_##name); \
  }                                                                 \
  static void lltm_jit_define_##name(PyObject* m)
