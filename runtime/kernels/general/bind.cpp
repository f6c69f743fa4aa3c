// Python bindings of the kernels for tensors of any type.
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/bind_spec.h"
#include "general/conv.h"
#include "general/elements.h"
#include "general/order.h"
#include "general/pool.h"
#include "general/regions.h"
#include "general/scatter.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Axes = std::vector<std::int64_t>;

ConvMode conv_mode(const std::string& name) {
  constexpr const char* kNames[] = {"exact", "low_precision", "symmetric", "asymmetric", "depthwise_in_float", "float"};
  for (int index = 0; index < 6; ++index)
    if (name == kNames[index]) return static_cast<ConvMode>(index);
  throw std::invalid_argument("unknown mode '" + name + "'");
}

// Sets a field that contains one number per spatial axis.
template <typename Spec>
auto set_axes(std::array<std::int64_t, 3> Spec::*member) {
  return [member](Spec* spec, const Axes& axes) {
    if (axes.size() != 3) throw std::invalid_argument("three numbers are needed, one per axis");
    for (std::size_t axis = 0; axis < 3; ++axis) (spec->*member)[axis] = axes[axis];
  };
}

void bind_conv(nb::module_& module) {
  SpecClass<ConvRescale>(module, "ConvRescale")
      .required_as<std::string>("mode", [](ConvRescale* spec, const std::string& name) { spec->mode = conv_mode(name); })
      .field("scale", &ConvRescale::scale)
      .field("shift", &ConvRescale::shift)
      .field("multiplier", &ConvRescale::multiplier)
      .field("output_zero", &ConvRescale::output_zero)
      .field("low", &ConvRescale::low)
      .field("high", &ConvRescale::high);
  SpecClass<AnyConvSpec>(module, "AnyConvSpec")
      .required("source", &AnyConvSpec::source)
      .required("weights", &AnyConvSpec::weights)
      .field("bias", &AnyConvSpec::bias)
      .required("result", &AnyConvSpec::result)
      .required("batch", &AnyConvSpec::batch)
      .required("groups", &AnyConvSpec::groups)
      .required("inputs", &AnyConvSpec::inputs)
      .required("outputs", &AnyConvSpec::outputs)
      .required_as<Axes>("extents", set_axes(&AnyConvSpec::extents))
      .required_as<Axes>("out_extents", set_axes(&AnyConvSpec::out_extents))
      .required_as<Axes>("kernel", set_axes(&AnyConvSpec::kernel))
      .required_as<Axes>("strides", set_axes(&AnyConvSpec::strides))
      .required_as<Axes>("dilations", set_axes(&AnyConvSpec::dilations))
      .required_as<Axes>("pads", set_axes(&AnyConvSpec::pads))
      .field("is_transposed", &AnyConvSpec::is_transposed)
      .field("x_zeros", &AnyConvSpec::x_zeros)
      .field("w_zeros", &AnyConvSpec::w_zeros)
      .field("column_zeros", &AnyConvSpec::column_zeros)
      .field("pad", &AnyConvSpec::pad)
      .field("x_zero", &AnyConvSpec::x_zero)
      .field("w_zero", &AnyConvSpec::w_zero)
      .field("has_late_bias", &AnyConvSpec::has_late_bias)
      .required("rescale", &AnyConvSpec::rescale)
      .required("packed", &AnyConvSpec::packed)
      .required("workspace", &AnyConvSpec::workspace);
  bind_kernel<AnyConvSpec>(module, "any_conv", kVectorWidths, make_any_conv);
}

void bind_pool(nb::module_& module) {
  SpecClass<AnyPoolSpec>(module, "AnyPoolSpec")
      .required("source", &AnyPoolSpec::source)
      .required("result", &AnyPoolSpec::result)
      .field("places", &AnyPoolSpec::places)
      .required("batch", &AnyPoolSpec::batch)
      .required("channels", &AnyPoolSpec::channels)
      .required_as<Axes>("extents", set_axes(&AnyPoolSpec::extents))
      .required_as<Axes>("out_extents", set_axes(&AnyPoolSpec::out_extents))
      .required_as<Axes>("kernel", set_axes(&AnyPoolSpec::kernel))
      .required_as<Axes>("strides", set_axes(&AnyPoolSpec::strides))
      .required_as<Axes>("pads", set_axes(&AnyPoolSpec::pads))
      .field("is_maximum", &AnyPoolSpec::is_maximum)
      .field("divides", &AnyPoolSpec::divides)
      .field("scale", &AnyPoolSpec::scale)
      .field("shift", &AnyPoolSpec::shift)
      .field("low", &AnyPoolSpec::low)
      .field("high", &AnyPoolSpec::high);
  bind_kernel<AnyPoolSpec>(module, "any_pool", kScalarOnly, [](const AnyPoolSpec& spec, Isa) { return make_any_pool(spec); });
}

void bind_indexed(nb::module_& module) {
  SpecClass<ScatterSpec>(module, "ScatterSpec")
      .required("data", &ScatterSpec::data)
      .required("indices", &ScatterSpec::indices)
      .required("updates", &ScatterSpec::updates)
      .required("target", &ScatterSpec::target)
      .required_as<std::string>("type", [](ScatterSpec* spec, const std::string& name) { spec->type = any_type(name); })
      .required("elements", &ScatterSpec::elements)
      .required("count", &ScatterSpec::count)
      .required("block", &ScatterSpec::block)
      .required("index_steps", &ScatterSpec::index_steps)
      .required("extents", &ScatterSpec::extents)
      .required("axes", &ScatterSpec::axes)
      .field("offsets", &ScatterSpec::offsets)
      .field("reduction", &ScatterSpec::reduction)
      .field("name", &ScatterSpec::name);
  bind_kernel<ScatterSpec>(module, "scatter", kScalarOnly, [](const ScatterSpec& spec, Isa) { return make_scatter(spec); });

  SpecClass<RegionSpec>(module, "RegionSpec")
      .required("source", &RegionSpec::source)
      .required("rois", &RegionSpec::rois)
      .required("target", &RegionSpec::target)
      .field("images", &RegionSpec::images)
      .required("batch", &RegionSpec::batch)
      .required("channels", &RegionSpec::channels)
      .required("height", &RegionSpec::height)
      .required("width", &RegionSpec::width)
      .required("regions", &RegionSpec::regions)
      .required("out_height", &RegionSpec::out_height)
      .required("out_width", &RegionSpec::out_width)
      .field("sampling_ratio", &RegionSpec::sampling_ratio)
      .field("scale", &RegionSpec::scale)
      .field("is_maximum", &RegionSpec::is_maximum)
      .field("half_pixel", &RegionSpec::half_pixel);
  bind_kernel<RegionSpec>(module, "regions", kScalarOnly, [](const RegionSpec& spec, Isa) { return make_regions(spec); });
}

void bind_general(nb::module_& module) {
  SpecClass<AnyTensor>(module, "AnyTensor")
      .required("place", &AnyTensor::place)
      .required_as<std::string>("type", [](AnyTensor* tensor, const std::string& name) { tensor->type = any_type(name); })
      .required("strides", &AnyTensor::strides);

  SpecClass<AnyElementsSpec>(module, "AnyElementsSpec")
      .required("operation", &AnyElementsSpec::operation)
      .required("domain", &AnyElementsSpec::domain)
      .required("shape", &AnyElementsSpec::shape)
      .required("operands", &AnyElementsSpec::operands)
      .required("result", &AnyElementsSpec::result)
      .field("low", &AnyElementsSpec::low)
      .field("high", &AnyElementsSpec::high)
      .field("rounding", &AnyElementsSpec::rounding);
  bind_kernel<AnyElementsSpec>(module, "any_elements", kScalarOnly,
                               [](const AnyElementsSpec& spec, Isa) { return make_any_elements(spec); });

  SpecClass<OrderSpec>(module, "OrderSpec")
      .required("source", &OrderSpec::source)
      .required_as<std::string>("type", [](OrderSpec* spec, const std::string& name) { spec->type = any_type(name); })
      .field("values", &OrderSpec::values)
      .field("indices", &OrderSpec::indices)
      .field_as<std::string>("index_type", [](OrderSpec* spec, const std::string& name) { spec->index_type = any_type(name); })
      .required("outer", &OrderSpec::outer)
      .required("extent", &OrderSpec::extent)
      .required("inner", &OrderSpec::inner)
      .required("count", &OrderSpec::count)
      .field("descending", &OrderSpec::descending)
      .field("is_extreme", &OrderSpec::is_extreme);
  bind_kernel<OrderSpec>(module, "order", kScalarOnly, [](const OrderSpec& spec, Isa) { return make_order(spec); });
}

const Binding binding(bind_general);
const Binding conv_binding(bind_conv);
const Binding pool_binding(bind_pool);
const Binding indexed_binding(bind_indexed);

}  // namespace

}  // namespace tpuconvert
