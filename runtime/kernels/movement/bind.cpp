#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "movement/bytes.h"
#include "movement/copy.h"
#include "movement/elements.h"
#include "movement/gather.h"
#include "movement/pool.h"
#include "movement/take.h"

namespace nb = nanobind;

namespace tpuconvert {

namespace {

ElementType element_type(const std::string& name) {
  if (name == "u8") return ElementType::kU8;
  if (name == "u16") return ElementType::kU16;
  if (name == "i16") return ElementType::kI16;
  if (name == "32") return ElementType::k32;
  throw std::invalid_argument("unknown element type '" + name + "'");
}

using Numbers = std::vector<std::int32_t>;

void bind_elements(nb::module_& module) {
  nb::class_<ElementTensor>(module, "ElementTensor")
      .def(
          "__init__",
          [](ElementTensor* self, const Place& place, const std::string& type, std::vector<std::int64_t> strides) {
            new (self) ElementTensor{place, element_type(type), std::move(strides)};
          },
          nb::arg("place"), nb::arg("type"), nb::arg("strides"));
  nb::class_<ElementInstruction>(module, "ElementInstruction")
      .def(
          "__init__",
          [](ElementInstruction* self, const std::string& code, int a, int b, std::int32_t low, std::int32_t high,
             std::vector<Numbers> parameters, Numbers table) {
            new (self)
                ElementInstruction{code, a, b, low, high, std::move(parameters), std::move(table), EpilogueSpec{}};
          },
          nb::arg("code"), nb::arg("a"), nb::arg("b") = -1, nb::arg("low") = 0, nb::arg("high") = 0,
          nb::arg("parameters") = std::vector<Numbers>(), nb::arg("table") = Numbers());
  module.def(
      "rescale_instruction",
      [](int a, std::int32_t low, std::int32_t high, bool rounds_twice, int rounding, Numbers multiplier, Numbers shift,
         Numbers offset, std::int64_t least, std::int64_t most) {
        ElementInstruction instruction;
        instruction.code = "rescale";
        instruction.a = a;
        instruction.low = low;
        instruction.high = high;
        EpilogueSpec& spec = instruction.epilogue;
        spec.rescale = rounds_twice ? Rescale::kTwoRoundings : Rescale::kOneRounding;
        spec.rounding = static_cast<Rounding>(rounding);
        spec.multiplier = std::move(multiplier);
        spec.shift = std::move(shift);
        spec.offset = std::move(offset);
        spec.low = least;
        spec.high = most;
        spec.bytes = 4;
        return instruction;
      },
      nb::arg("a"), nb::arg("low"), nb::arg("high"), nb::arg("rounds_twice"), nb::arg("rounding"),
      nb::arg("multiplier"), nb::arg("shift"), nb::arg("offset"), nb::arg("least"), nb::arg("most"));
  module.def(
      "elements",
      [](const std::string& isa, std::vector<std::int64_t> shape, int channel_axis,
         std::vector<ElementTensor> operands, std::vector<ElementInstruction> instructions, const ElementTensor& result,
         std::int32_t low, std::int32_t high, std::int32_t bias, std::vector<std::uint8_t> table) {
        return make_elements({std::move(shape), channel_axis, std::move(operands), std::move(instructions), result, low,
                              high, bias, std::move(table)},
                             isa_named(isa));
      },
      nb::arg("isa"), nb::arg("shape"), nb::arg("channel_axis"), nb::arg("operands"), nb::arg("instructions"),
      nb::arg("result"), nb::arg("low"), nb::arg("high"), nb::arg("bias"), nb::arg("table"));
}

void bind_pools(nb::module_& module) {
  module.def(
      "pool_int",
      [](const std::string& isa, const Place& source, const Place& target, const std::vector<int>& shape,
         const std::vector<int>& out, const std::vector<int>& kernel, const std::vector<int>& stride,
         const std::vector<int>& pad, bool is_maximum, bool divides, std::int32_t scale, int shift, std::int32_t bias,
         Numbers row_counts, Numbers column_counts) {
        if (shape.size() != 4 || out.size() != 2 || kernel.size() != 2 || stride.size() != 2 || pad.size() != 2)
          throw std::invalid_argument("pool: wrong number of extents");
        PoolSpec spec;
        spec.source = source;
        spec.target = target;
        spec.images = shape[0];
        spec.height = shape[1];
        spec.width = shape[2];
        spec.channels = shape[3];
        spec.out_height = out[0];
        spec.out_width = out[1];
        spec.kernel_h = kernel[0];
        spec.kernel_w = kernel[1];
        spec.stride_h = stride[0];
        spec.stride_w = stride[1];
        spec.pad_top = pad[0];
        spec.pad_left = pad[1];
        spec.is_maximum = is_maximum;
        spec.average = {divides, scale, shift, bias};
        spec.row_counts = std::move(row_counts);
        spec.column_counts = std::move(column_counts);
        return make_pool(spec, isa_named(isa));
      },
      nb::arg("isa"), nb::arg("source"), nb::arg("target"), nb::arg("shape"), nb::arg("out"), nb::arg("kernel"),
      nb::arg("stride"), nb::arg("pad"), nb::arg("is_maximum"), nb::arg("divides") = true, nb::arg("scale") = 1,
      nb::arg("shift") = 0, nb::arg("bias") = 0, nb::arg("row_counts") = Numbers(),
      nb::arg("column_counts") = Numbers());
  module.def(
      "reduce_int",
      [](const std::string& isa, const Place& source, const Place& target, std::int64_t outer, std::int64_t count,
         std::int64_t inner, const std::string& method, std::int32_t bias) {
        constexpr const char* kMethods[] = {"mean", "sum", "maximum", "minimum"};
        for (int index = 0; index < 4; ++index)
          if (method == kMethods[index])
            return make_reduce({source, target, outer, count, inner, static_cast<Reduction>(index), bias},
                               isa_named(isa));
        throw std::invalid_argument("unknown reduction '" + method + "'");
      },
      nb::arg("isa"), nb::arg("source"), nb::arg("target"), nb::arg("outer"), nb::arg("count"), nb::arg("inner"),
      nb::arg("method"), nb::arg("bias"));
  module.def(
      "softmax_int",
      [](const std::string& isa, const Place& source, const Place& target, std::int64_t rows, int length,
         std::vector<float> table, float scale, std::int32_t zero) {
        return make_softmax_int({source, target, rows, length, std::move(table), scale, zero}, isa_named(isa));
      },
      nb::arg("isa"), nb::arg("source"), nb::arg("target"), nb::arg("rows"), nb::arg("length"), nb::arg("table"),
      nb::arg("scale"), nb::arg("zero"));
}

}  // namespace

void bind_movement(nb::module_& module) {
  module.def(
      "copy",
      [](const Place& source, const Place& target, std::vector<std::int64_t> shape,
         std::vector<std::int64_t> source_strides, std::vector<std::int64_t> target_strides, int itemsize, int flip) {
        return make_copy({source, target, std::move(shape), std::move(source_strides), std::move(target_strides),
                          itemsize, flip});
      },
      nb::arg("source"), nb::arg("target"), nb::arg("shape"), nb::arg("source_strides"), nb::arg("target_strides"),
      nb::arg("itemsize"), nb::arg("flip"));
  module.def(
      "gather",
      [](const Place& source, const Place& target, std::int64_t outer, std::int64_t extent, std::int64_t inner_bytes,
         std::vector<std::int32_t> indices) {
        return make_gather({source, target, outer, extent, inner_bytes, std::move(indices)});
      },
      nb::arg("source"), nb::arg("target"), nb::arg("outer"), nb::arg("extent"), nb::arg("inner_bytes"),
      nb::arg("indices"));
  module.def(
      "take",
      [](const Place& source, const Place& indices, const Place& target, std::int64_t outer, std::int64_t extent,
         std::int64_t inner_bytes, std::int64_t count, std::string bounds) {
        return make_take({source, indices, target, outer, extent, inner_bytes, count, std::move(bounds)});
      },
      nb::arg("source"), nb::arg("indices"), nb::arg("target"), nb::arg("outer"), nb::arg("extent"),
      nb::arg("inner_bytes"), nb::arg("count"), nb::arg("bounds"));
  module.def(
      "look_up",
      [](const std::string& isa, const Place& source, const Place& target, std::int64_t rows, std::int64_t length,
         std::int64_t pitch, std::vector<std::uint8_t> table) {
        return make_look_up({source, target, rows, length, pitch, std::move(table)}, isa_named(isa));
      },
      nb::arg("isa"), nb::arg("source"), nb::arg("target"), nb::arg("rows"), nb::arg("length"), nb::arg("pitch"),
      nb::arg("table"));
  module.def(
      "quantize",
      [](const std::string& isa, const Place& source, const Place& target, std::int64_t images, std::int64_t channels,
         std::int64_t pixels, float divisor, std::vector<float> scale, Numbers offset, std::int32_t low,
         std::int32_t high) {
        return make_quantize({source, target, images, channels, pixels, divisor, std::move(scale), std::move(offset),
                              low, high},
                             isa_named(isa));
      },
      nb::arg("isa"), nb::arg("source"), nb::arg("target"), nb::arg("images"), nb::arg("channels"), nb::arg("pixels"),
      nb::arg("divisor"), nb::arg("scale"), nb::arg("offset"), nb::arg("low"), nb::arg("high"));
  bind_elements(module);
  bind_pools(module);
}

}  // namespace tpuconvert
