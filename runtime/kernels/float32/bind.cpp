// What Python sees of the float kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/isa.h"
#include "float32/chain_float.h"
#include "float32/channels_float.h"
#include "float32/conv_float.h"
#include "float32/detection_float.h"
#include "float32/images_float.h"
#include "float32/matmul_float.h"
#include "float32/rows_float.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<4>, nb::device::cpu>;

using Operation = std::tuple<std::string, int, double, double>;  // name, operand or -1, a, b

std::vector<ChainOp> operations(const std::vector<Operation>& given) {
  std::vector<ChainOp> found;
  for (const auto& [name, operand, a, b] : given) found.push_back({chain_kind_named(name), operand, a, b});
  return found;
}

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
                                   const std::vector<Operation>& tail, bool is_precise) {
  ConvFloatSpec spec;
  spec.input = input;
  spec.output = output;
  spec.residual = residual;
  spec.geometry = geometry;
  spec.weights = view_of(weights, geometry);
  if (bias) spec.bias.assign(bias->data(), bias->data() + bias->shape(0));
  if (limits) spec.limits = {true, limits->first, limits->second};
  spec.tail = operations(tail);
  spec.is_precise = is_precise;
  const Isa chosen = isa_named(isa);
  nb::gil_scoped_release released;
  return make_conv_float(spec, chosen);
}

// Operands are (place, strides in bytes).
std::shared_ptr<Step> chain_float32(const Place& output, const std::vector<std::int64_t>& shape,
                                    const std::vector<std::pair<Place, std::vector<std::int64_t>>>& operands,
                                    const std::vector<Operation>& ops,
                                    const std::string& isa, bool is_precise) {
  ChainSpec spec;
  spec.output = output;
  spec.shape = shape;
  for (const auto& [place, strides] : operands) spec.operands.push_back({place, strides});
  spec.ops = operations(ops);
  spec.is_precise = is_precise;
  return make_chain_float(spec, isa_named(isa));
}

// The same with one operand, stored integers that mean (stored - zero) * scale.
std::shared_ptr<Step> dequantized_chain_float32(const Place& output, const std::vector<std::int64_t>& shape,
                                                const Place& input, const std::vector<std::int64_t>& strides,
                                                const std::tuple<std::string, std::int32_t, float>& integers,
                                                const std::vector<Operation>& ops, const std::string& isa,
                                                bool is_precise) {
  const auto& [type, zero, scale] = integers;
  ChainSpec spec;
  spec.output = output;
  spec.shape = shape;
  spec.operands.push_back({input, strides});
  spec.ops = operations(ops);
  spec.is_precise = is_precise;
  spec.start = {chain_source_named(type), zero, scale};
  return make_chain_float(spec, isa_named(isa));
}

std::shared_ptr<Step> matmul_float32(const Place& left, const Place& right, const Place& output,
                                     const std::array<std::int64_t, 3>& extents,
                                     const std::array<std::int64_t, 2>& left_strides,
                                     const std::array<std::int64_t, 2>& right_strides, std::int64_t out_row,
                                     const std::array<std::vector<std::int64_t>, 3>& starts, const std::string& isa,
                                     const std::optional<Vector>& bias, bool is_precise) {
  MatmulFloatSpec spec;
  spec.left = left;
  spec.right = right;
  spec.output = output;
  spec.rows = extents[0];
  spec.columns = extents[1];
  spec.depth = extents[2];
  spec.left_row = left_strides[0];
  spec.left_depth = left_strides[1];
  spec.right_depth = right_strides[0];
  spec.right_column = right_strides[1];
  spec.out_row = out_row;
  spec.left_starts = starts[0];
  spec.right_starts = starts[1];
  spec.out_starts = starts[2];
  if (bias) spec.bias.assign(bias->data(), bias->data() + bias->shape(0));
  spec.is_precise = is_precise;
  return make_matmul_float(spec, isa_named(isa));
}

ReduceKind reduce_kind_named(const std::string& name) {
  if (name == "sum") return ReduceKind::kSum;
  if (name == "max") return ReduceKind::kMax;
  if (name == "min") return ReduceKind::kMin;
  if (name == "prod") return ReduceKind::kProduct;
  throw std::invalid_argument("reduce_float32: there is no reduction '" + name + "'");
}

std::vector<Between> between(const std::vector<std::tuple<std::int32_t, std::int32_t, float>>& places) {
  std::vector<Between> found;
  for (const auto& [low, high, weight] : places) found.push_back({low, high, weight});
  return found;
}

void bind_rows(nb::module_& module) {
  module.def(
      "softmax_float32",
      [](const Place& x, const Place& y, std::int64_t rows, std::int64_t count, const std::string& isa, bool is_precise,
         bool is_guarded) {
        return make_softmax_float(x, y, rows, {count, is_precise, is_guarded}, isa_named(isa));
      },
      nb::arg("x"), nb::arg("y"), nb::arg("rows"), nb::arg("count"), nb::arg("isa"), nb::kw_only(),
      nb::arg("is_precise") = false, nb::arg("is_guarded") = false);
  module.def(
      "norm_float32",
      [](const Place& x, const Place& y, std::int64_t rows, std::int64_t count, double epsilon, const std::string& isa,
         const std::optional<Place>& scale, const std::optional<Place>& bias, bool is_centred, std::int64_t block,
         std::int64_t groups) {
        return make_norm_float(x, y, scale, bias, rows, {count, is_centred, epsilon, block, groups}, isa_named(isa));
      },
      nb::arg("x"), nb::arg("y"), nb::arg("rows"), nb::arg("count"), nb::arg("epsilon"), nb::arg("isa"), nb::kw_only(),
      nb::arg("scale") = nb::none(), nb::arg("bias") = nb::none(), nb::arg("is_centred") = true, nb::arg("block") = 1,
      nb::arg("groups") = 1);
  module.def(
      "reduce_float32",
      [](const Place& x, const Place& y, std::int64_t outer, std::int64_t count, std::int64_t inner,
         const std::string& kind, double divisor, const std::string& isa) {
        return make_reduce_float(x, y, outer, {reduce_kind_named(kind), count, inner, divisor}, isa_named(isa));
      },
      nb::arg("x"), nb::arg("y"), nb::arg("outer"), nb::arg("count"), nb::arg("inner"), nb::arg("kind"),
      nb::arg("divisor"), nb::arg("isa"));
}

void bind_images(nb::module_& module) {
  module.def(
      "pool_float32",
      [](const Place& input, const Place& output, const ConvGeometry& geometry, const std::vector<double>& divisors,
         const std::string& isa) { return make_pool_float(input, output, geometry, divisors, isa_named(isa)); },
      nb::arg("input"), nb::arg("output"), nb::arg("geometry"), nb::arg("divisors"), nb::arg("isa"));
  module.def(
      "resize_float32",
      [](const Place& input, const Place& output, const ConvGeometry& geometry,
         const std::vector<std::tuple<std::int32_t, std::int32_t, float>>& rows,
         const std::vector<std::tuple<std::int32_t, std::int32_t, float>>& columns, const std::string& isa) {
        return make_resize_float(input, output, geometry, between(rows), between(columns), isa_named(isa));
      },
      nb::arg("input"), nb::arg("output"), nb::arg("geometry"), nb::arg("rows"), nb::arg("columns"), nb::arg("isa"));
}

void bind_channels(nb::module_& module) {
  module.def(
      "batch_norm_float32",
      [](const Place& x, const Place& y, std::int64_t pixels, std::vector<double> mean, std::vector<double> slope,
         std::vector<double> shift) {
        return make_channel_affine(x, y, pixels, {std::move(mean), std::move(slope), std::move(shift)});
      },
      nb::arg("x"), nb::arg("y"), nb::arg("pixels"), nb::arg("mean"), nb::arg("slope"), nb::arg("shift"));
  module.def(
      "lrn_float32",
      [](const Place& x, const Place& y, std::int64_t pixels, int channels, int size, double alpha, double beta,
         double bias) { return make_channel_response(x, y, pixels, {channels, size, alpha, beta, bias}); },
      nb::arg("x"), nb::arg("y"), nb::arg("pixels"), nb::arg("channels"), nb::arg("size"), nb::arg("alpha"),
      nb::arg("beta"), nb::arg("bias"));
}

void bind_detection(nb::module_& module) {
  module.def(
      "detection_output",
      [](const Place& loc, const Place& conf, const Place& prior, const Place& output, int images, int priors,
         int classes, bool shares_location, bool has_variances, int background, int most_per_class, int most_per_image,
         int code, float least_score, float most_overlap, float eta) {
        return make_detection_float({loc, conf, prior, output, images, priors, classes, shares_location, has_variances,
                                     background, most_per_class, most_per_image, static_cast<BoxCode>(code),
                                     least_score, most_overlap, eta});
      },
      nb::arg("loc"), nb::arg("conf"), nb::arg("prior"), nb::arg("output"), nb::arg("images"), nb::arg("priors"),
      nb::arg("classes"), nb::arg("shares_location"), nb::arg("has_variances"), nb::arg("background"),
      nb::arg("most_per_class"), nb::arg("most_per_image"), nb::arg("code"), nb::arg("least_score"),
      nb::arg("most_overlap"), nb::arg("eta"));
}

}  // namespace

void bind_float32(nb::module_& module) {
  module.def("conv_float32", &conv_float32, nb::arg("input"), nb::arg("output"), nb::arg("geometry"),
             nb::arg("weights"), nb::arg("isa"), nb::kw_only(), nb::arg("bias") = nb::none(),
             nb::arg("residual") = nb::none(), nb::arg("limits") = nb::none(),
             nb::arg("tail") = std::vector<Operation>(), nb::arg("is_precise") = false);
  module.def("chain_float32", &chain_float32, nb::arg("output"), nb::arg("shape"), nb::arg("operands"), nb::arg("ops"),
             nb::arg("isa"), nb::kw_only(), nb::arg("is_precise") = false);
  module.def("dequantized_chain_float32", &dequantized_chain_float32, nb::arg("output"), nb::arg("shape"),
             nb::arg("input"), nb::arg("strides"), nb::arg("integers"), nb::arg("ops"), nb::arg("isa"), nb::kw_only(),
             nb::arg("is_precise") = false);
  module.def("matmul_float32", &matmul_float32, nb::arg("left"), nb::arg("right"), nb::arg("output"),
             nb::arg("extents"), nb::arg("left_strides"), nb::arg("right_strides"), nb::arg("out_row"),
             nb::arg("starts"), nb::arg("isa"), nb::kw_only(), nb::arg("bias") = nb::none(),
             nb::arg("is_precise") = false);
  bind_rows(module);
  bind_images(module);
  bind_channels(module);
  bind_detection(module);
}

}  // namespace tpuconvert
