// filtered_lrelu in operations of torch: under vmap, in forward-mode differentiation, on devices
// without kernels, and for filters that no kernel supports. Filters are applied by upfirdn2d's formula.
#include "core/host/formula.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange_ops.h>

#include "stylegan/filtered_lrelu/operators.h"
#include "stylegan/upfirdn2d/operators.h"

namespace lltm_jit {
namespace {

at::ScalarType arithmetic_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor count_to(const c10::SymInt& end, const Tensor& like) {
  return at::_ops::arange::call(end, at::kLong, at::kStrided, like.device(), std::nullopt);
}

Tensor filtered(const Tensor& x, const OptionalTensor& filter, bool flip, int64_t up, int64_t down,
                c10::SymIntArrayRef padding) {
  const int64_t ups[] = {up, up}, downs[] = {down, down};
  OptionalTensor f;
  if (filter) f = filter->to(at::kFloat).to(x.scalar_type());
  return upfirdn2d_in_torch({x, f, ups, downs, padding, flip, /*gain=*/1});
}

template <typename Inputs>
Tensor upsampled(const Inputs& in, const Tensor& t) {
  return filtered(t, in.fu, in.flip_filter, in.up, 1, in.padding)
      .mul(in.gain * static_cast<double>(in.up * in.up));
}

template <typename Inputs>
Tensor downsampled(const Inputs& in, const Tensor& v) {
  const c10::SymInt none[] = {0, 0, 0, 0};
  return filtered(v, in.fd, in.flip_filter, 1, in.down, none).contiguous();
}

// --------------------------------------------------------------------------------------- signs --

// Integers in a tensor, for the arithmetic of sign_map.h.
struct Integers {
  Tensor values;
  friend Integers operator+(const Integers& a, const Integers& b) {
    return {a.values.add(b.values)};
  }
  friend Integers operator+(const Integers& a, int64_t b) { return {a.values.add(b)}; }
  friend Integers operator*(const Integers& a, const c10::SymInt& b) { return {a.values.mul(b)}; }
  friend Integers operator/(const Integers& a, int64_t b) { return {a.values.div(b, "floor")}; }
  friend Integers operator%(const Integers& a, int64_t b) { return {a.values.remainder(b)}; }
};

// The places of the signs of rows and columns: word, bit, and flag, each [rows, columns].
struct Places {
  Tensor word, bit, flag;
  Places(const SymSignMap& map, const Tensor& rows, const Tensor& columns) {
    const Integers row{rows.unsqueeze(1)}, column{columns.unsqueeze(0)};
    word = (map.row_word(row) + map.column_word(column)).values;
    bit = (map.row_bit(row) + map.column_bit(column)).values;
    flag = (map.flag_row(row) + map.flag_column(column)).values.add(map.flag_words());
  }
};

Tensor packed(const Tensor& negative, const Tensor& clamped, const SymSignMap& map,
              const FlrSizes& sizes) {
  const Places places(map, count_to(sizes.mid_h, negative), count_to(sizes.mid_w, negative));
  const Tensor word = places.word.flatten();
  const auto bits = [&](const Tensor& mask) {
    return mask.to(at::kLong).bitwise_left_shift(places.bit).flatten(2);
  };
  const Tensor zeros = negative.new_zeros_symint(
      {negative.sym_size(0), negative.sym_size(1), map.words_per_plane()}, at::kLong);
  return zeros.index_add(2, word, bits(negative))
      .index_add(2, word.add(map.clamped_words()), bits(clamped))
      .index_add(2, places.flag.flatten(), clamped.to(at::kLong).flatten(2))
      .to(at::kInt);  // modulo 2^32
}

// The derivative of the activation at each sample of v.
Tensor factors(const FlrLinearInputs& in, const FlrSizes& sizes, const Tensor& like) {
  const auto place = [&](const c10::SymInt& count, int64_t axis) {
    return count_to(count, in.signs).add(in.sign_offset[axis]);
  };
  const Tensor rows = place(sizes.mid_h, 0), columns = place(sizes.mid_w, 1);
  const auto inside = [&](const Tensor& index, int64_t axis) {
    return index.ge(0).logical_and(index.lt(in.sign_size[axis]));
  };
  const auto nearest = [&](const Tensor& index, int64_t axis) {
    return index.clamp(c10::Scalar(0), in.sign_size[axis] - 1);
  };
  const SymSignMap map = sign_map(in.sign_size, in.sign_phase);
  const Places places(map, nearest(rows, 0), nearest(columns, 1));
  const auto at_places = [&](const Tensor& index) {
    return in.signs.index_select(2, index.flatten())
        .unflatten_symint(2, {sizes.mid_h, sizes.mid_w});
  };
  const Tensor bit = places.bit.to(at::kInt);
  const auto is_set = [&](const Tensor& index) {
    return at_places(index).bitwise_right_shift(bit).bitwise_and(1).ne(0);
  };
  const Tensor clamped =
      is_set(places.word.add(map.clamped_words())).logical_and(at_places(places.flag).ne(0));
  const Tensor passes = clamped.logical_not().logical_and(
      inside(rows, 0).unsqueeze(1).logical_and(inside(columns, 1).unsqueeze(0)));
  const Tensor ones = passes.to(like.scalar_type());
  return ones.where(is_set(places.word).logical_not(), ones.mul(in.slope));
}

}  // namespace

std::tuple<Tensor, Tensor> filtered_lrelu_forward_formula(const FlrForwardInputs& forward) {
  const auto& [in, phase] = forward;
  const FlrSizes sizes = check_filtered_lrelu(in);
  const NoAutocast guard;
  Tensor t = in.x.to(arithmetic_type(in.x));
  if (in.b) t = t.add(in.b->to(t.scalar_type()).view_symint({-1, 1, 1}));
  const Tensor u = upsampled(in, t), negative = u.lt(0);
  Tensor v = u.where(negative.logical_not(), u.mul(in.slope)), signs;
  if (phase) {
    const auto clamped = in.clamp ? v.abs().gt(*in.clamp) : negative.logical_and(u.gt(0));
    signs = packed(negative, clamped, sign_map({sizes.mid_h, sizes.mid_w}, *phase), sizes);
  }
  if (in.clamp) v = v.clamp(c10::Scalar(-*in.clamp), c10::Scalar(*in.clamp));
  return {downsampled(in, v).to(in.x.scalar_type()), signs};
}

std::tuple<Tensor, Tensor> filtered_lrelu_linear_formula(const FlrLinearInputs& in) {
  const FlrSizes sizes = check_filtered_lrelu_linear(in);
  const NoAutocast guard;
  const Tensor x = in.x.to(arithmetic_type(in.x));
  const auto apply = [&] {
    const Tensor u = upsampled(in, x);
    return downsampled(in, u.mul(factors(in, sizes, u)));
  };
  const bool nothing = sizes.out_h == 0 || sizes.out_w == 0;  // no filter gives an empty result
  const Tensor y =
      nothing ? x.new_zeros_symint({in.x.sym_size(0), in.x.sym_size(1), sizes.out_h, sizes.out_w})
              : apply();
  const Tensor sums = in.with_sums ? y.sum({0, 2, 3}) : y.new_empty_symint({0});
  return {y.to(in.x.scalar_type()), sums.to(in.x.scalar_type())};
}

}  // namespace lltm_jit
