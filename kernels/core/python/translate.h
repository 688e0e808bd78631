// Lets functions.h and variant_calls.h work together without including each other's headers.
#pragma once

#include <exception>

namespace lltm_jit::python {

// Sets Python's error for an exception of pybind11's; false for any other exception. Null if
// nothing throws one: see core/python/variant_calls.h.
inline bool (*translate_pybind)(const std::exception_ptr& error) = nullptr;

}  // namespace lltm_jit::python
