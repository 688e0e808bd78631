#include "core/cpu/products.h"

#include "core/cpu/packed_product.h"

namespace lltm_jit {

namespace {

template <typename T>
void multiply_as(const ProductArgs& args) {
  PackedProduct<T> product{};
  product.a = static_cast<const T*>(args.a);
  product.a_row_stride = args.a_row_stride;
  product.a_depth_stride = args.a_depth_stride;
  product.b = static_cast<const T*>(args.b);
  product.b_depth_stride = args.b_depth_stride;
  product.b_column_stride = args.b_column_stride;
  product.initial = static_cast<const T*>(args.initial);
  product.c = static_cast<T*>(args.c);
  product.c_stride = args.columns;
  product.rows = args.rows;
  product.columns = args.columns;
  product.depth = args.depth;
  multiply_packed(product);
}

}  // namespace

void multiply_cpu(const ProductArgs& args) {
  if (args.type == ElementType::Double) return multiply_as<double>(args);
  multiply_as<float>(args);
}

}  // namespace lltm_jit
