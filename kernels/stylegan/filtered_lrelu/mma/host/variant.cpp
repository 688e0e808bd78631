// Requests of variants/mma.cu.
#include "stylegan/filtered_lrelu/plan.h"

#ifdef LLTM_JIT_CUDA
#include "core/python/variant.h"

namespace lltm_jit {
namespace {

const char* element(ElementType type) {
  return type == ElementType::Half ? "Half" : type == ElementType::BFloat16 ? "BFloat16" : "float";
}

VariantRequest request(const FilteredLreluArgs& args, const MmaShape& shape) {
  const char* mode = args.mode == Signs::Write  ? "Write"
                     : args.mode == Signs::Read ? "Read"
                                                : "None";
  const char* words = args.mode == Signs::Write  ? ", writes signs"
                      : args.mode == Signs::Read ? ", reads signs"
                                                 : "";
  return {"stylegan.filtered_lrelu",
          "filtered_lrelu_mma",
          {{"ELEMENT", element(args.type)},
           {"UP", std::to_string(shape.up.factor)},
           {"DOWN", std::to_string(shape.down.factor)},
           {"UP_TAPS", std::to_string(shape.up.taps)},
           {"DOWN_TAPS", std::to_string(shape.down.taps)},
           {"SIGNS", mode},
           {"OUT_TILES", std::to_string(shape.out_tiles)},
           {"IN_SLICES", std::to_string(shape.in_slices)},
           {"WARPS", std::to_string(shape.warps)},
           {"WHOLE", std::to_string(shape.whole)}},
          std::string(element(args.type)) + ", up " + std::to_string(shape.up.factor) + ", down " +
              std::to_string(shape.down.factor) + words};
}

}  // namespace

const void* flr_variant(const FilteredLreluArgs& args, const MmaShape& shape) {
  static VariantTable<const void, ElementType, Signs, int, int, int, int, int, int, int, bool>
      table;
  return table.get({args.type, args.mode, shape.up.factor, shape.down.factor, shape.up.taps,
                    shape.down.taps, shape.out_tiles, shape.in_slices, shape.warps, shape.whole},
                   [&] { return request(args, shape); });
}

}  // namespace lltm_jit
#endif
