// What Python sees of the float kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/isa.h"
#include "float32/conv_float.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<4>, nb::device::cpu>;

// Axes [output channels, input channels of a group, kernel height, kernel width] in any memory order.
FloatWeights view_of(const Weights& weights, const ConvGeometry& g) {
  const int expected[4] = {g.out_channels, g.groups > 0 ? g.group_in() : 0, g.kernel_h, g.kernel_w};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (expected[axis] < 1 || weights.shape(axis) != static_cast<std::size_t>(expected[axis]))
      throw std::invalid_argument("conv_float32: the shape of the weights does not fit the geometry");
  FloatWeights view;
  view.data = weights.data();
  view.stride_out = weights.stride(0);
  view.stride_in = weights.stride(1);
  view.stride_y = weights.stride(2);
  view.stride_x = weights.stride(3);
  return view;
}

std::shared_ptr<Step> conv_float32(const Place& input, const Place& output, const ConvGeometry& geometry,
                                   const Weights& weights, const std::string& isa, const std::optional<Vector>& bias,
                                   const std::optional<Place>& residual, const std::optional<std::pair<float, float>>& limits,
                                   bool is_precise) {
  ConvFloatSpec spec;
  spec.input = input;
  spec.output = output;
  spec.residual = residual;
  spec.geometry = geometry;
  spec.weights = view_of(weights, geometry);
  if (bias) spec.bias.assign(bias->data(), bias->data() + bias->shape(0));
  if (limits) spec.limits = {true, limits->first, limits->second};
  spec.is_precise = is_precise;
  const Isa chosen = isa_named(isa);
  nb::gil_scoped_release released;
  return make_conv_float(spec, chosen);
}

}  // namespace

void bind_float32(nb::module_& module) {
  module.def("conv_float32", &conv_float32, nb::arg("input"), nb::arg("output"), nb::arg("geometry"),
             nb::arg("weights"), nb::arg("isa"), nb::kw_only(), nb::arg("bias") = nb::none(),
             nb::arg("residual") = nb::none(), nb::arg("limits") = nb::none(), nb::arg("is_precise") = false);
}

}  // namespace tpuconvert
