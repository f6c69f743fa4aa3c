// What Python sees of the integer kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/isa.h"
#include "int8/attention_int8.h"
#include "int8/conv_int8.h"
#include "int8/epilogue.h"
#include "int8/norm_bytes.h"
#include "int8/product_int8.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<nb::ro, nb::ndim<4>, nb::device::cpu>;
using Sums = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> copied(const std::optional<Vector<T>>& values) {
  if (!values) return {};
  return {values->data(), values->data() + values->shape(0)};
}

Epilogue make_epilogue(int channels, Rescale rescale, int rounding,
                       const std::optional<Vector<std::int32_t>>& multiplier,
                       const std::optional<Vector<std::int32_t>>& shift,
                       const std::optional<Vector<std::int32_t>>& offset, float scale,
                       const std::optional<Vector<float>>& late_bias, int narrow_low, int narrow_high, std::int64_t low,
                       std::int64_t high, int bytes, const std::optional<Vector<std::uint8_t>>& lut,
                       const std::optional<std::pair<std::int32_t, float>>& real, const std::string& isa) {
  EpilogueSpec spec;
  spec.rescale = rescale;
  spec.rounding = static_cast<Rounding>(rounding);  // checked by Epilogue
  spec.multiplier = copied(multiplier);
  spec.shift = copied(shift);
  spec.offset = copied(offset);
  spec.scale = scale;
  spec.late_bias = copied(late_bias);
  spec.narrow_low = narrow_low;
  spec.narrow_high = narrow_high;
  spec.low = low;
  spec.high = high;
  spec.bytes = bytes;
  spec.lut = copied(lut);
  if (real) {
    spec.is_real = true;
    spec.real_zero = real->first;
    spec.real_scale = real->second;
  }
  return Epilogue(std::move(spec), channels, isa_named(isa));
}

// Stored results of sums [rows, channels], as bytes [rows, channels * bytes]; for tests and small tensors.
nb::ndarray<nb::numpy, std::uint8_t> apply_epilogue(const Epilogue& epilogue, const Sums& sums) {
  const std::size_t rows = sums.shape(0), channels = sums.shape(1);
  if (channels != static_cast<std::size_t>(epilogue.channels()))
    throw std::invalid_argument("the sums have another number of channels than the epilogue");
  const std::size_t row_bytes = channels * static_cast<std::size_t>(epilogue.bytes());
  auto* stored = new std::uint8_t[rows * row_bytes];
  const nb::capsule owner(stored, [](void* bytes) noexcept { delete[] static_cast<std::uint8_t*>(bytes); });
  for (std::size_t row = 0; row < rows; ++row)
    epilogue.apply_row(sums.data() + row * channels, 0, static_cast<int>(channels), stored + row * row_bytes);
  return nb::ndarray<nb::numpy, std::uint8_t>(stored, {rows, row_bytes}, owner);
}

// Axes [output channels, input channels of a group, kernel height, kernel width] in any memory order.
WeightView view_of(const Weights& weights, const std::optional<Vector<std::int32_t>>& zero, const ConvGeometry& g) {
  const bool is_signed = weights.dtype() == nb::dtype<std::int8_t>();
  if (!is_signed && weights.dtype() != nb::dtype<std::uint8_t>())
    throw std::invalid_argument("conv_int8: weights are INT8 or UINT8");
  const int expected[4] = {g.out_channels, g.groups > 0 ? g.group_in() : 0, g.kernel_h, g.kernel_w};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (expected[axis] < 1 || weights.shape(axis) != static_cast<std::size_t>(expected[axis]))
      throw std::invalid_argument("conv_int8: the shape of the weights does not fit the geometry");
  WeightView view;
  view.data = weights.data();
  view.is_signed = is_signed;
  view.zero = copied(zero);
  view.stride_out = weights.stride(0);
  view.stride_in = weights.stride(1);
  view.stride_y = weights.stride(2);
  view.stride_x = weights.stride(3);
  return view;
}

std::shared_ptr<Step> conv_int8(const Place& input, const Place& output, const ConvGeometry& geometry,
                                const Weights& weights, const Epilogue& epilogue, const std::string& isa,
                                const std::optional<Vector<std::int32_t>>& weight_zero,
                                const std::optional<Vector<std::int32_t>>& bias, int input_zero,
                                const std::optional<ResidualSpec>& residual) {
  ConvInt8Spec spec;
  spec.input = input;
  spec.output = output;
  spec.geometry = geometry;
  spec.weights = view_of(weights, weight_zero, geometry);
  spec.bias = copied(bias);
  spec.input_zero = input_zero;
  spec.epilogue = epilogue.spec();
  spec.residual = residual;
  const Isa chosen = isa_named(isa);
  nb::gil_scoped_release released;
  return make_conv_int8(spec, chosen);
}

using Strides = std::vector<std::ptrdiff_t>;

// A product of two operands as Python describes it: extents and strides of the leading axes, then those of the matrices;
// see ProductInt8Spec.
struct ProductArguments {
  ProductInt8Spec spec;
};

void set_product(ProductArguments* self, const Place& left, const Place& right, const Place& output,
                 const std::vector<std::int64_t>& shape, const Strides& left_strides, const Strides& right_strides,
                 const Strides& output_strides, const Epilogue& epilogue, int left_zero, int right_zero,
                 const std::optional<Vector<std::int32_t>>& bias) {
  if (shape.size() < 3 || left_strides.size() != shape.size() - 2 || right_strides.size() != shape.size() - 1 ||
      output_strides.size() != shape.size() - 2)
    throw std::invalid_argument("product_int8: strides do not fit the shape");
  const std::size_t axes = shape.size() - 3;
  const auto leading = [axes](const auto& values) {
    return std::decay_t<decltype(values)>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(axes));
  };
  ProductInt8Spec spec;
  spec.left = left;
  spec.right = right;
  spec.output = output;
  spec.batch = leading(shape);
  spec.left_batch = leading(left_strides);
  spec.right_batch = leading(right_strides);
  spec.output_batch = leading(output_strides);
  spec.rows = shape[axes];
  spec.depth = shape[axes + 1];
  spec.columns = shape[axes + 2];
  spec.left_row = left_strides[axes];
  spec.right_row = right_strides[axes];
  spec.right_column = right_strides[axes + 1];
  spec.output_row = output_strides[axes];
  spec.left_zero = left_zero;
  spec.right_zero = right_zero;
  spec.bias = copied(bias);
  spec.epilogue = epilogue.spec();
  new (self) ProductArguments{std::move(spec)};
}

// What becomes bytes: scale, offset, smallest and largest stored value.
using Bytes = std::tuple<float, int, int, int>;

ToBytes to_bytes(const Bytes& bytes) {
  return {std::get<0>(bytes), std::get<1>(bytes), std::get<2>(bytes), std::get<3>(bytes)};
}

std::shared_ptr<Step> norm_bytes(const Place& x, const Place& y, std::int64_t rows, std::int64_t count, double epsilon,
                                 const Bytes& form, const std::string& isa, const std::optional<Place>& residual,
                                 const std::optional<Place>& sum, const std::optional<Place>& reals,
                                 const std::optional<Vector<float>>& factor, const std::optional<Vector<float>>& bias) {
  NormBytesSpec spec;
  spec.x = x;
  spec.residual = residual;
  spec.sum = sum;
  spec.reals = reals;
  spec.bytes = y;
  spec.rows = rows;
  spec.count = count;
  spec.epsilon = epsilon;
  spec.factor = copied(factor);
  spec.bias = copied(bias);
  spec.to = to_bytes(form);
  return make_norm_bytes(spec, isa_named(isa));
}

void bind_products(nb::module_& module) {
  nb::class_<ProductArguments>(module, "Product")
      .def("__init__", &set_product, nb::arg("left"), nb::arg("right"), nb::arg("output"), nb::arg("shape"),
           nb::arg("left_strides"), nb::arg("right_strides"), nb::arg("output_strides"), nb::arg("epilogue"),
           nb::kw_only(), nb::arg("left_zero") = 0, nb::arg("right_zero") = 0, nb::arg("bias") = nb::none());
  module.def(
      "product_int8",
      [](const ProductArguments& product, const std::string& isa) {
        return make_product_int8(product.spec, isa_named(isa));
      },
      nb::arg("product"), nb::arg("isa"));
  module.def(
      "attention_int8",
      [](const ProductArguments& scores, const Bytes& probabilities, const ProductArguments& values,
         const std::string& isa) {
        return make_attention_int8({scores.spec, to_bytes(probabilities), values.spec}, isa_named(isa));
      },
      nb::arg("scores"), nb::arg("probabilities"), nb::arg("values"), nb::arg("isa"));
  module.def("norm_bytes", &norm_bytes, nb::arg("x"), nb::arg("y"), nb::arg("rows"), nb::arg("count"),
             nb::arg("epsilon"), nb::arg("form"), nb::arg("isa"), nb::kw_only(), nb::arg("residual") = nb::none(),
             nb::arg("sum") = nb::none(), nb::arg("reals") = nb::none(), nb::arg("factor") = nb::none(),
             nb::arg("bias") = nb::none());
}

void bind_epilogue(nb::module_& module) {
  nb::enum_<Rescale>(module, "Rescale")
      .value("NONE", Rescale::kNone)
      .value("TWO_ROUNDINGS", Rescale::kTwoRoundings)
      .value("ONE_ROUNDING", Rescale::kOneRounding)
      .value("LOW_PRECISION", Rescale::kLowPrecision)
      .value("HIGH_SYMMETRIC", Rescale::kHighSymmetric)
      .value("FLOAT", Rescale::kFloat);
  nb::class_<Epilogue>(module, "Epilogue")
      .def(
          "__init__",
          [](Epilogue* self, int channels, Rescale rescale, int rounding,
             const std::optional<Vector<std::int32_t>>& multiplier, const std::optional<Vector<std::int32_t>>& shift,
             const std::optional<Vector<std::int32_t>>& offset, float scale,
             const std::optional<Vector<float>>& late_bias, int narrow_low, int narrow_high, std::int64_t low,
             std::int64_t high, int bytes, const std::optional<Vector<std::uint8_t>>& lut,
             const std::optional<std::pair<std::int32_t, float>>& real, const std::string& isa) {
            new (self) Epilogue(make_epilogue(channels, rescale, rounding, multiplier, shift, offset, scale, late_bias,
                                              narrow_low, narrow_high, low, high, bytes, lut, real, isa));
          },
          nb::arg("channels"), nb::arg("rescale"), nb::kw_only(), nb::arg("rounding") = 5,
          nb::arg("multiplier") = nb::none(), nb::arg("shift") = nb::none(), nb::arg("offset") = nb::none(),
          nb::arg("scale") = 1.0f, nb::arg("late_bias") = nb::none(), nb::arg("narrow_low") = 0,
          nb::arg("narrow_high") = 0, nb::arg("low") = 0, nb::arg("high") = 255, nb::arg("bytes") = 1,
          nb::arg("lut") = nb::none(), nb::arg("real") = nb::none(), nb::arg("isa") = "scalar")
      .def_prop_ro("channels", &Epilogue::channels)
      .def_prop_ro("bytes", &Epilogue::bytes)
      .def("apply", &apply_epilogue, nb::arg("sums"))
      .def(
          "float_form",
          [](const Epilogue& epilogue, int channel, std::int64_t largest) -> nb::object {
            if (channel < 0 || channel >= epilogue.channels()) throw std::out_of_range("no such channel");
            KinkedFloatForm form;
            if (!prove_kinked_float_form(epilogue, channel, largest, &form)) return nb::none();
            return nb::make_tuple(form.high_part, form.low_part, form.kink);
          },
          nb::arg("channel"), nb::arg("largest"),
          "Coefficients of the float form (high_part, low_part, kink) where it was proved for sums up to a magnitude.");
}

void bind_geometry(nb::module_& module) {
  nb::class_<ConvGeometry>(module, "ConvGeometry")
      .def(nb::init<>())
      .def_rw("batch", &ConvGeometry::batch)
      .def_rw("height", &ConvGeometry::height)
      .def_rw("width", &ConvGeometry::width)
      .def_rw("in_channels", &ConvGeometry::in_channels)
      .def_rw("out_height", &ConvGeometry::out_height)
      .def_rw("out_width", &ConvGeometry::out_width)
      .def_rw("out_channels", &ConvGeometry::out_channels)
      .def_rw("kernel_h", &ConvGeometry::kernel_h)
      .def_rw("kernel_w", &ConvGeometry::kernel_w)
      .def_rw("stride_h", &ConvGeometry::stride_h)
      .def_rw("stride_w", &ConvGeometry::stride_w)
      .def_rw("dilation_h", &ConvGeometry::dilation_h)
      .def_rw("dilation_w", &ConvGeometry::dilation_w)
      .def_rw("pad_top", &ConvGeometry::pad_top)
      .def_rw("pad_left", &ConvGeometry::pad_left)
      .def_rw("groups", &ConvGeometry::groups)
      .def_rw("in_pixel", &ConvGeometry::in_pixel)
      .def_rw("in_row", &ConvGeometry::in_row)
      .def_rw("in_image", &ConvGeometry::in_image)
      .def_rw("out_pixel", &ConvGeometry::out_pixel)
      .def_rw("out_row", &ConvGeometry::out_row)
      .def_rw("out_image", &ConvGeometry::out_image);
}

}  // namespace

void bind_int8(nb::module_& module) {
  bind_epilogue(module);
  nb::class_<ResidualSpec>(module, "Residual")
      .def(
          "__init__",
          [](ResidualSpec* self, const Place& other, const std::tuple<std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t>& strides,
             const Vector<std::int32_t>& factor, const Vector<std::int32_t>& other_factor,
             const Vector<std::int32_t>& offset, int shift, int low, int high) {
            const auto [pixel, row, image] = strides;
            new (self) ResidualSpec{other,          pixel, row, image, copied<std::int32_t>(factor),
                                    copied<std::int32_t>(other_factor), copied<std::int32_t>(offset), shift, low, high};
          },
          nb::arg("other"), nb::arg("strides"), nb::arg("factor"), nb::arg("other_factor"), nb::arg("offset"),
          nb::arg("shift"), nb::arg("low"), nb::arg("high"));
  bind_geometry(module);
  module.def("conv_int8", &conv_int8, nb::arg("input"), nb::arg("output"), nb::arg("geometry"), nb::arg("weights"),
             nb::arg("epilogue"), nb::arg("isa"), nb::kw_only(), nb::arg("weight_zero") = nb::none(),
             nb::arg("bias") = nb::none(), nb::arg("input_zero") = 0, nb::arg("residual") = nb::none());
  bind_products(module);
}

}  // namespace tpuconvert
