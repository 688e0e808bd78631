// How a library asks Python for a variant, for its bindings.cpp alone: see core/host/variant.h.
#pragma once

#include <pybind11/pybind11.h>

#include "core/host/variant.h"

namespace lltm_jit {

void* load_variant(const VariantRequest& request) {
  const pybind11::gil_scoped_acquire gil;
  pybind11::dict constants;
  for (const auto& [name, value] : request.constants) constants[name.c_str()] = value;
  const auto variants = pybind11::module_::import("lltm_jit.jit.variants");
  const auto address =
      variants.attr("load_declared")(request.kernel, request.function, constants, request.label);
  return reinterpret_cast<void*>(address.cast<uintptr_t>());
}

}  // namespace lltm_jit
