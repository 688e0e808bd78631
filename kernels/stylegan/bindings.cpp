// The extension module of the StyleGAN operators: an include and a line for each.
#include "core/host/module.h"

LLTM_JIT_MODULE(TORCH_EXTENSION_NAME, m) { lltm_jit::Module module(m, "lltm_jit"); }
