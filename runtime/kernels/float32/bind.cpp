// Python bindings of the float kernels.
#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "core/bind_spec.h"
#include "float32/conv/conv.h"
#include "float32/detection/detection.h"
#include "float32/elementwise/chain.h"
#include "float32/images/images.h"
#include "float32/matmul/matmul.h"
#include "float32/norm/channels.h"
#include "float32/rows/rows.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using FloatArray4 = nb::ndarray<const float, nb::ndim<4>, nb::device::cpu>;
using Operation = std::tuple<std::string, int, double, double>;                    // kind, operand index or -1, a, b
using Operand = std::pair<Place, std::vector<std::int64_t>>;                       // place, strides in bytes
using StoredIntegers = std::tuple<std::string, std::int32_t, float>;               // type, zero point, scale
using Position = std::tuple<std::int32_t, std::int32_t, float>;  // low index, high index, weight of the high one

// The weight data belongs to Python: `weight_array` keeps it alive until the step has packed it.
struct ConvFloatArguments : ConvFloatSpec {
  FloatArray4 weight_array;
};

std::vector<ChainOp> operations(const std::vector<Operation>& given) {
  std::vector<ChainOp> found;
  for (const auto& [name, operand, a, b] : given) found.push_back({chain_kind_named(name), operand, a, b});
  return found;
}

std::vector<Interpolation> interpolations(const std::vector<Position>& positions) {
  std::vector<Interpolation> found;
  for (const auto& [low, high, weight] : positions) found.push_back({low, high, weight});
  return found;
}

// Axes [output channels, input channels of a group, kernel height, kernel width] in any memory order.
FloatWeights view_of(const FloatArray4& weights, const ConvGeometry& g) {
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

std::shared_ptr<Step> make_conv(const ConvFloatArguments& arguments, Isa isa) {
  ConvFloatSpec spec = arguments;
  spec.weights = view_of(arguments.weight_array, arguments.geometry);
  nb::gil_scoped_release released;
  return make_conv_float(spec, isa);
}

ReduceKind reduce_kind_named(const std::string& name) {
  if (name == "sum") return ReduceKind::kSum;
  if (name == "max") return ReduceKind::kMax;
  if (name == "min") return ReduceKind::kMin;
  if (name == "prod") return ReduceKind::kProduct;
  throw std::invalid_argument("reduce_float32: there is no reduction '" + name + "'");
}

void bind_conv(nb::module_& module) {
  using Spec = ConvFloatArguments;
  SpecClass<Spec>(module, "ConvFloatSpec")
      .required("input", &Spec::input)
      .required("output", &Spec::output)
      .required("geometry", &Spec::geometry)
      .required("weights", &Spec::weight_array)
      .field("bias", &Spec::bias)
      .field("residual", &Spec::residual)
      .field_as<std::pair<float, float>>("limits", [](Spec* spec, const std::pair<float, float>& limits) {
        spec->limits = {true, limits.first, limits.second};
      })
      .field_as<std::vector<Operation>>("tail", [](Spec* spec, const std::vector<Operation>& tail) {
        spec->tail = operations(tail);
      })
      .field("is_precise", &Spec::is_precise)
      .field("like", &Spec::like);
  bind_kernel<Spec>(module, "conv_float32", kVectorWidths, make_conv);
}

void bind_chain(nb::module_& module) {
  SpecClass<ChainSpec>(module, "ChainFloatSpec")
      .required("output", &ChainSpec::output)
      .required("shape", &ChainSpec::shape)
      .required_as<std::vector<Operand>>("operands", [](ChainSpec* spec, const std::vector<Operand>& operands) {
        for (const auto& [place, strides] : operands) spec->operands.push_back({place, strides});
      })
      .required_as<std::vector<Operation>>("ops", [](ChainSpec* spec, const std::vector<Operation>& ops) {
        spec->ops = operations(ops);
      })
      .field_as<StoredIntegers>("start", [](ChainSpec* spec, const StoredIntegers& start) {
        const auto& [type, zero, scale] = start;
        spec->start = {chain_source_named(type), zero, scale};
      })
      .field("is_precise", &ChainSpec::is_precise);
  bind_kernel<ChainSpec>(module, "chain_float32", kVectorWidths, make_chain_float);
}

void bind_matmul(nb::module_& module) {
  using Spec = MatmulFloatSpec;
  SpecClass<Spec>(module, "MatmulFloatSpec")
      .required("left", &Spec::left)
      .required("right", &Spec::right)
      .required("output", &Spec::output)
      .required("rows", &Spec::rows)
      .required("columns", &Spec::columns)
      .required("depth", &Spec::depth)
      .required("left_row", &Spec::left_row)
      .required("left_depth", &Spec::left_depth)
      .required("right_depth", &Spec::right_depth)
      .required("right_column", &Spec::right_column)
      .required("out_row", &Spec::out_row)
      .required("left_starts", &Spec::left_starts)
      .required("right_starts", &Spec::right_starts)
      .required("out_starts", &Spec::out_starts)
      .field("bias", &Spec::bias)
      .field("is_precise", &Spec::is_precise);
  bind_kernel<Spec>(module, "matmul_float32", kVectorWidths, make_matmul_float);
}

void bind_rows(nb::module_& module) {
  SpecClass<SoftmaxFloatSpec>(module, "SoftmaxFloatSpec")
      .required("x", &SoftmaxFloatSpec::x)
      .required("y", &SoftmaxFloatSpec::y)
      .required("rows", &SoftmaxFloatSpec::rows)
      .required("count", &SoftmaxFloatSpec::count)
      .field("is_precise", &SoftmaxFloatSpec::is_precise)
      .field("is_guarded", &SoftmaxFloatSpec::is_guarded);
  bind_kernel<SoftmaxFloatSpec>(module, "softmax_float32", kVectorWidths, make_softmax_float);

  SpecClass<NormFloatSpec>(module, "NormFloatSpec")
      .required("x", &NormFloatSpec::x)
      .required("y", &NormFloatSpec::y)
      .required("rows", &NormFloatSpec::rows)
      .required("count", &NormFloatSpec::count)
      .required("epsilon", &NormFloatSpec::epsilon)
      .field("scale", &NormFloatSpec::scale)
      .field("bias", &NormFloatSpec::bias)
      .field("is_centered", &NormFloatSpec::is_centered)
      .field("block", &NormFloatSpec::block)
      .field("groups", &NormFloatSpec::groups);
  bind_kernel<NormFloatSpec>(module, "norm_float32", kVectorWidths, make_norm_float);

  SpecClass<ReduceFloatSpec>(module, "ReduceFloatSpec")
      .required("x", &ReduceFloatSpec::x)
      .required("y", &ReduceFloatSpec::y)
      .required("outer", &ReduceFloatSpec::outer)
      .required("count", &ReduceFloatSpec::count)
      .required("inner", &ReduceFloatSpec::inner)
      .required_as<std::string>("kind", [](ReduceFloatSpec* spec, const std::string& name) {
        spec->kind = reduce_kind_named(name);
      })
      .required("divisor", &ReduceFloatSpec::divisor);
  bind_kernel<ReduceFloatSpec>(module, "reduce_float32", kVectorWidths, make_reduce_float);
}

void bind_images(nb::module_& module) {
  SpecClass<PoolFloatSpec>(module, "PoolFloatSpec")
      .required("input", &PoolFloatSpec::input)
      .required("output", &PoolFloatSpec::output)
      .required("geometry", &PoolFloatSpec::geometry)
      .required("divisors", &PoolFloatSpec::divisors);
  bind_kernel<PoolFloatSpec>(module, "pool_float32", kVectorWidths, make_pool_float);

  using Spec = ResizeFloatSpec;
  SpecClass<Spec>(module, "ResizeFloatSpec")
      .required("input", &Spec::input)
      .required("output", &Spec::output)
      .required("geometry", &Spec::geometry)
      .required_as<std::vector<Position>>("rows", [](Spec* spec, const std::vector<Position>& rows) {
        spec->rows = interpolations(rows);
      })
      .required_as<std::vector<Position>>("columns", [](Spec* spec, const std::vector<Position>& columns) {
        spec->columns = interpolations(columns);
      });
  bind_kernel<Spec>(module, "resize_float32", kVectorWidths, make_resize_float);
}

void bind_channels(nb::module_& module) {
  SpecClass<BatchNormSpec>(module, "BatchNormSpec")
      .required("x", &BatchNormSpec::x)
      .required("y", &BatchNormSpec::y)
      .required("pixels", &BatchNormSpec::pixels)
      .required("mean", &BatchNormSpec::mean)
      .required("slope", &BatchNormSpec::slope)
      .required("shift", &BatchNormSpec::shift);
  bind_kernel<BatchNormSpec>(module, "batch_norm_float32", kScalarOnly,
                             [](const BatchNormSpec& spec, Isa) { return make_batch_norm(spec); });

  SpecClass<LrnSpec>(module, "LrnSpec")
      .required("x", &LrnSpec::x)
      .required("y", &LrnSpec::y)
      .required("pixels", &LrnSpec::pixels)
      .required("channels", &LrnSpec::channels)
      .required("size", &LrnSpec::size)
      .required("alpha", &LrnSpec::alpha)
      .required("beta", &LrnSpec::beta)
      .required("bias", &LrnSpec::bias);
  bind_kernel<LrnSpec>(module, "lrn_float32", kScalarOnly, [](const LrnSpec& spec, Isa) { return make_lrn(spec); });
}

void bind_detection(nb::module_& module) {
  using Spec = DetectionSpec;
  SpecClass<Spec>(module, "DetectionSpec")
      .required("loc", &Spec::loc)
      .required("conf", &Spec::conf)
      .required("prior", &Spec::prior)
      .required("output", &Spec::output)
      .required("images", &Spec::images)
      .required("priors", &Spec::priors)
      .required("classes", &Spec::classes)
      .field("shares_location", &Spec::shares_location)
      .field("has_variances", &Spec::has_variances)
      .field("background", &Spec::background)
      .field("most_per_class", &Spec::most_per_class)
      .field("most_per_image", &Spec::most_per_image)
      .field_as<int>("code", [](Spec* spec, int code) { spec->code = static_cast<BoxCode>(code); })
      .field("least_score", &Spec::least_score)
      .field("most_overlap", &Spec::most_overlap)
      .field("eta", &Spec::eta);
  bind_kernel<Spec>(module, "detection_output", kScalarOnly, [](const Spec& spec, Isa) { return make_detection_float(spec); });
}

void bind_float32(nb::module_& module) {
  bind_conv(module);
  bind_chain(module);
  bind_matmul(module);
  bind_rows(module);
  bind_images(module);
  bind_channels(module);
  bind_detection(module);
}

const Binding binding(bind_float32);

}  // namespace

}  // namespace tpuconvert
