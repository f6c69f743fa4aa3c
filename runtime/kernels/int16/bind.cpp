// Python bindings of the 16-bit convolution.
#include "core/bind_spec.h"
#include "int16/conv.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Weights = nb::ndarray<nb::ro, nb::ndim<4>, nb::device::cpu>;

// The weight data belongs to Python: the arrays keep it alive until the step has packed it.
struct ConvInt16Arguments : ConvInt16Spec {
  Weights high_array, low_array;
};

// Axes [output channels, input channels of a group, kernel height, kernel width] in any memory order.
WeightView view_of(const Weights& weights, const ConvGeometry& g) {
  if (weights.dtype() != nb::dtype<std::int8_t>()) throw std::invalid_argument("conv_int16: weights are INT8");
  const int expected[4] = {g.out_channels, g.groups > 0 ? g.group_in() : 0, g.kernel_h, g.kernel_w};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (expected[axis] < 1 || weights.shape(axis) != static_cast<std::size_t>(expected[axis]))
      throw std::invalid_argument("conv_int16: the shape of the weights does not fit the geometry");
  WeightView view;
  view.data = weights.data();
  view.stride_out = weights.stride(0);
  view.stride_in = weights.stride(1);
  view.stride_y = weights.stride(2);
  view.stride_x = weights.stride(3);
  return view;
}

std::shared_ptr<Step> make_conv(const ConvInt16Arguments& arguments, Isa isa) {
  ConvInt16Spec spec = arguments;
  spec.high = view_of(arguments.high_array, arguments.geometry);
  spec.low = view_of(arguments.low_array, arguments.geometry);
  nb::gil_scoped_release released;
  return make_conv_int16(spec, isa);
}

void bind_int16(nb::module_& module) {
  using Spec = ConvInt16Arguments;
  SpecClass<Spec>(module, "ConvInt16Spec")
      .required("input", &Spec::input)
      .required("output", &Spec::output)
      .required("geometry", &Spec::geometry)
      .required("is_wide", &Spec::is_wide)
      .required("high", &Spec::high_array)
      .required("low", &Spec::low_array)
      .required_as<const Epilogue&>("epilogue", [](Spec* spec, const Epilogue& epilogue) {
        spec->epilogue = epilogue.spec();
      })
      .field_as<const Epilogue&>("second", [](Spec* spec, const Epilogue& second) { spec->second = second.spec(); })
      .field("bias", &Spec::bias)
      .field("input_zero", &Spec::input_zero);
  bind_kernel<Spec>(module, "conv_int16", kWordProducts, make_conv);
}

const Binding binding(bind_int16);

}  // namespace

}  // namespace tpuconvert
