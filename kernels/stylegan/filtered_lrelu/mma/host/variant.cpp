#include "stylegan/filtered_lrelu/mma/host/variant.h"

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
  const auto number = [](int value) { return std::to_string(value); };
  return {"stylegan.filtered_lrelu",
          "filtered_lrelu_mma",
          {{"ELEMENT", element(args.type)},
           {"UP", number(shape.up)},
           {"DOWN", number(shape.down)},
           {"UP_TAPS", number(shape.up_taps)},
           {"DOWN_TAPS", number(shape.down_taps)},
           {"SIGNS", mode},
           {"OUT_TILES", number(shape.out_tiles)},
           {"IN_SLICES", number(shape.in_slices)},
           {"WARPS", number(shape.warps)},
           {"WHOLE", number(shape.whole)}},
          std::string(element(args.type)) + ", up " + number(shape.up) + ", down " +
              number(shape.down) + words};
}

}  // namespace

const void* flr_variant(const FilteredLreluArgs& args, const MmaShape& shape) {
  static VariantTable<const void, ElementType, Signs, int, int, int, int, int, int, int, bool>
      table;
  return table.get({args.type, args.mode, shape.up, shape.down, shape.up_taps, shape.down_taps,
                    shape.out_tiles, shape.in_slices, shape.warps, shape.whole},
                   [&] { return request(args, shape); });
}

}  // namespace lltm_jit
#endif
