// How a library asks Python for a variant, for variant.cpp: see core/python/variant.h.
#pragma once

#include <pybind11/pybind11.h>

#include "core/python/translate.h"
#include "core/python/variant.h"

namespace lltm_jit {

inline pybind11::tuple as_tuple(const VariantRequest& request) {
  pybind11::list constants;
  for (const auto& [name, value] : request.constants) {
    constants.append(pybind11::make_tuple(name, value));
  }
  return pybind11::make_tuple(request.kernel, request.function, constants, request.label);
}

void* load_variant(const VariantRequest& request) {
  const pybind11::gil_scoped_acquire gil;
  pybind11::list beside;
  for (const VariantRequest& other : request.beside) beside.append(as_tuple(other));
  const auto variants = pybind11::module_::import("lltm_jit.jit.variants");
  const auto address = variants.attr("load_declared")(as_tuple(request), *beside);
  return reinterpret_cast<void*>(address.cast<uintptr_t>());
}

// An exception from Python, such as a build error, reaches Python again as the same object.
static const bool kPybindIsTranslated = [] {
  python::translate_pybind = [](const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (pybind11::error_already_set& error) {
      error.restore();
      return true;
    } catch (...) {
      return false;
    }
  };
  return true;
}();

}  // namespace lltm_jit
