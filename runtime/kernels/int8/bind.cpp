// Python bindings of the integer kernels for convolution, matmul and attention, and of quantized normalization.
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "core/bind_spec.h"
#include "int8/attention/attention.h"
#include "int8/blocks/inverted_residual.h"
#include "int8/conv/conv.h"
#include "int8/epilogue/epilogue.h"
#include "int8/matmul/matmul.h"
#include "int8/norm/norm_quantize.h"
#include "int8/winograd/winograd.h"

namespace nb = nanobind;

namespace tpuconvert {

void bind_int8_elementwise(nb::module_& module);

namespace {

using Weights = nb::ndarray<nb::ro, nb::ndim<4>, nb::device::cpu>;
using Sums = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The weight data belongs to Python: `weight_array` keeps it alive until the step has packed it.
struct ConvInt8Arguments : ConvInt8Spec {
  Weights weight_array;
  std::vector<std::int32_t> weight_zero;
};

// Applies an epilogue to accumulators [rows, channels]. Returns the stored results as bytes [rows, channels * bytes].
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
WeightView view_of(const ConvInt8Arguments& arguments) {
  const Weights& weights = arguments.weight_array;
  const ConvGeometry& g = arguments.geometry;
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
  view.zero = arguments.weight_zero;
  view.stride_out = weights.stride(0);
  view.stride_in = weights.stride(1);
  view.stride_y = weights.stride(2);
  view.stride_x = weights.stride(3);
  return view;
}

ConvInt8Spec spec_of(const ConvInt8Arguments& arguments) {
  ConvInt8Spec spec = arguments;
  spec.weights = view_of(arguments);
  return spec;
}

std::shared_ptr<Step> make_conv(const ConvInt8Arguments& arguments, Isa isa) {
  const ConvInt8Spec spec = spec_of(arguments);
  nb::gil_scoped_release released;
  return make_conv_int8(spec, isa);
}

std::shared_ptr<Step> make_winograd(const ConvInt8Arguments& arguments, Isa isa) {
  const ConvInt8Spec spec = spec_of(arguments);
  nb::gil_scoped_release released;
  return make_conv_int8_winograd(spec, isa);
}

struct InvertedResidualArguments {
  std::optional<ConvInt8Arguments> expansion;
  ConvInt8Arguments depthwise, projection;
};

std::shared_ptr<Step> make_block(const InvertedResidualArguments& arguments, Isa isa) {
  InvertedResidualSpec spec{std::nullopt, spec_of(arguments.depthwise), spec_of(arguments.projection)};
  if (arguments.expansion) spec.expansion = spec_of(*arguments.expansion);
  nb::gil_scoped_release released;
  return make_inverted_residual(spec, isa);
}

void bind_epilogue(nb::module_& module) {
  nb::enum_<Rescale>(module, "Rescale")
      .value("NONE", Rescale::kNone)
      .value("TWO_ROUNDINGS", Rescale::kTwoRoundings)
      .value("ONE_ROUNDING", Rescale::kOneRounding)
      .value("LOW_PRECISION", Rescale::kLowPrecision)
      .value("HIGH_SYMMETRIC", Rescale::kHighSymmetric)
      .value("FLOAT", Rescale::kFloat);
  using Spec = EpilogueSpec;
  SpecClass<Spec>(module, "EpilogueSpec")
      .field("rescale", &Spec::rescale)
      // The constructor of Epilogue checks the range.
      .field_as<int>("rounding", [](Spec* spec, int rounding) { spec->rounding = static_cast<Rounding>(rounding); })
      .field("multiplier", &Spec::multiplier)
      .field("shift", &Spec::shift)
      .field("offset", &Spec::offset)
      .field("scale", &Spec::scale)
      .field("late_bias", &Spec::late_bias)
      .field("narrow_low", &Spec::narrow_low)
      .field("narrow_high", &Spec::narrow_high)
      .field("low", &Spec::low)
      .field("high", &Spec::high)
      .field("bytes", &Spec::bytes)
      .field("lut", &Spec::lut)
      .field_as<std::pair<std::int32_t, float>>("dequantize", [](Spec* spec, const std::pair<std::int32_t, float>& output) {
        spec->is_dequantized = true;
        spec->output_zero = output.first;
        spec->output_scale = output.second;
      });
  nb::class_<Epilogue>(module, "Epilogue")
      .def(
          "__init__",
          [](Epilogue* self, const EpilogueSpec& spec, int channels, const std::string& isa) {
            new (self) Epilogue(spec, channels, isa_named(isa));
          },
          nb::arg("spec"), nb::arg("channels"), nb::arg("isa") = "scalar")
      .def_prop_ro("channels", &Epilogue::channels)
      .def_prop_ro("bytes", &Epilogue::bytes)
      .def("apply", &apply_epilogue, nb::arg("sums"))
      .def(
          "float_requant",
          [](const Epilogue& epilogue, int channel, std::int64_t largest) -> nb::object {
            if (channel < 0 || channel >= epilogue.channels()) throw std::out_of_range("no such channel");
            KinkedFloatRequant requant;
            if (!prove_kinked_float_requant(epilogue, channel, largest, &requant)) return nb::none();
            return nb::make_tuple(requant.high_part, requant.low_part, requant.kink);
          },
          nb::arg("channel"), nb::arg("largest"),
          "Return (high_part, low_part, kink) of float requantization, or None without a proof for |sum| <= largest.");
}

void bind_geometry(nb::module_& module) {
  using G = ConvGeometry;
  SpecClass<G>(module, "ConvGeometry")
      .field("batch", &G::batch)
      .field("height", &G::height)
      .field("width", &G::width)
      .field("in_channels", &G::in_channels)
      .field("out_height", &G::out_height)
      .field("out_width", &G::out_width)
      .field("out_channels", &G::out_channels)
      .field("kernel_h", &G::kernel_h)
      .field("kernel_w", &G::kernel_w)
      .field("stride_h", &G::stride_h)
      .field("stride_w", &G::stride_w)
      .field("dilation_h", &G::dilation_h)
      .field("dilation_w", &G::dilation_w)
      .field("pad_top", &G::pad_top)
      .field("pad_left", &G::pad_left)
      .field("groups", &G::groups)
      .field("in_pixel", &G::in_pixel)
      .field("in_row", &G::in_row)
      .field("in_image", &G::in_image)
      .field("out_pixel", &G::out_pixel)
      .field("out_row", &G::out_row)
      .field("out_image", &G::out_image);
}

void bind_conv(nb::module_& module) {
  SpecClass<ResidualSpec>(module, "ResidualSpec")
      .required("other", &ResidualSpec::other)
      .required("pixel", &ResidualSpec::pixel)
      .required("row", &ResidualSpec::row)
      .required("image", &ResidualSpec::image)
      .required("factor", &ResidualSpec::factor)
      .required("other_factor", &ResidualSpec::other_factor)
      .required("offset", &ResidualSpec::offset)
      .required("shift", &ResidualSpec::shift)
      .required("low", &ResidualSpec::low)
      .required("high", &ResidualSpec::high);
  using Spec = ConvInt8Arguments;
  SpecClass<Spec>(module, "ConvInt8Spec")
      .required("input", &Spec::input)
      .required("output", &Spec::output)
      .required("geometry", &Spec::geometry)
      .required("weights", &Spec::weight_array)
      .required_as<const Epilogue&>("epilogue", [](Spec* spec, const Epilogue& epilogue) {
        spec->epilogue = epilogue.spec();
      })
      .field("weight_zero", &Spec::weight_zero)
      .field("bias", &Spec::bias)
      .field("input_zero", &Spec::input_zero)
      .field("residual", &Spec::residual);
  bind_kernel<Spec>(module, "conv_int8", kTileIsas, make_conv);
  bind_kernel<Spec>(module, "conv_int8_winograd", kWords, make_winograd);
  nb::class_<WinogradCost>(module, "WinogradCost")
      .def_ro("direct", &WinogradCost::direct)
      .def_ro("winograd", &WinogradCost::winograd)
      .def_ro("weight_bytes", &WinogradCost::weight_bytes);
  module.def(
      "winograd_cost",
      [](const ConvGeometry& geometry, const std::string& isa) { return winograd_cost(geometry, isa_named(isa)); },
      nb::arg("geometry"), nb::arg("isa"),
      "Return the estimated costs of a convolution, or None if the Winograd convolution does not apply to its shape.");
  module.def(
      "is_winograd_exact", [](const Spec& arguments) { return is_winograd_exact(spec_of(arguments)); }, nb::arg("spec"),
      "Return True if all sums without bias are proved to be below 2^25 in magnitude.");
}

void bind_blocks(nb::module_& module) {
  using Spec = InvertedResidualArguments;
  SpecClass<Spec>(module, "InvertedResidualSpec")
      .field("expansion", &Spec::expansion)
      .required("depthwise", &Spec::depthwise)
      .required("projection", &Spec::projection);
  bind_kernel<Spec>(module, "inverted_residual_int8", kBlockIsas, make_block);
}

void bind_matmul(nb::module_& module) {
  using Spec = MatmulInt8Spec;
  SpecClass<Spec>(module, "MatmulInt8Spec")
      .field("left", &Spec::left)
      .required("right", &Spec::right)
      .field("output", &Spec::output)
      .required("batch", &Spec::batch)
      .required("left_batch", &Spec::left_batch)
      .required("right_batch", &Spec::right_batch)
      .required("output_batch", &Spec::output_batch)
      .required("rows", &Spec::rows)
      .required("depth", &Spec::depth)
      .required("columns", &Spec::columns)
      .required("left_row", &Spec::left_row)
      .required("right_row", &Spec::right_row)
      .required("right_column", &Spec::right_column)
      .required("output_row", &Spec::output_row)
      .required_as<const Epilogue&>("epilogue", [](Spec* spec, const Epilogue& epilogue) {
        spec->epilogue = epilogue.spec();
      })
      .field("left_zero", &Spec::left_zero)
      .field("right_zero", &Spec::right_zero)
      .field("bias", &Spec::bias);
  bind_kernel<Spec>(module, "batch_matmul_int8", kTileIsas, make_matmul_int8);

  SpecClass<ByteQuantization>(module, "ByteQuantization")
      .required("scale", &ByteQuantization::scale)
      .required("offset", &ByteQuantization::offset)
      .required("low", &ByteQuantization::low)
      .required("high", &ByteQuantization::high);
  SpecClass<AttentionInt8Spec>(module, "AttentionInt8Spec")
      .required("scores", &AttentionInt8Spec::scores)
      .required("probabilities", &AttentionInt8Spec::probabilities)
      .required("values", &AttentionInt8Spec::values);
  bind_kernel<AttentionInt8Spec>(module, "attention_int8", kTileIsas, make_attention_int8);
}

void bind_norm(nb::module_& module) {
  using Spec = NormQuantizeSpec;
  SpecClass<Spec>(module, "NormQuantizeSpec")
      .required("x", &Spec::x)
      .required("output", &Spec::bytes)
      .required("rows", &Spec::rows)
      .required("count", &Spec::count)
      .required("epsilon", &Spec::epsilon)
      .required("quantization", &Spec::to)
      .field("residual", &Spec::residual)
      .field("sum", &Spec::sum)
      .field("normalized", &Spec::reals)
      .field("factor", &Spec::factor)
      .field("bias", &Spec::bias);
  bind_kernel<Spec>(module, "norm_quantize", kVectorWidths, make_norm_quantize);
}

void bind_int8(nb::module_& module) {
  bind_epilogue(module);
  bind_geometry(module);
  bind_conv(module);
  bind_blocks(module);
  bind_matmul(module);
  bind_norm(module);
  bind_int8_elementwise(module);
}

const Binding binding(bind_int8);

}  // namespace

}  // namespace tpuconvert
