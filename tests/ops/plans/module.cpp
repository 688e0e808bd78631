#include "cpu_bounds.h"
#include "filtered_lrelu.h"
#include "lltm.h"
#include "sequence.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace lltm_jit;
  bind_types(m);
  const std::pair<const char*, void (*)(pybind11::module_)> parts[] = {
      {"lltm", bind_lltm},
      {"sequence", bind_sequence},
      {"filtered_lrelu", bind_filtered_lrelu},
      {"cpu_bounds", bind_cpu_bounds}};
  for (const auto& [name, bind] : parts) {
    auto part = m.def_submodule(name);
    part.attr("Type") = m.attr("Type");
    bind(part);
  }
}
