// Python bindings of the integer kernels for element-wise operators, pooling, reduction, softmax and quantization.
#include <stdexcept>
#include <string>

#include "core/bind_spec.h"
#include "int8/elementwise/elements.h"
#include "int8/pool/pool.h"
#include "int8/quantize/quantize.h"
#include "int8/reduce/reduce.h"
#include "int8/softmax/softmax.h"

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

Reduction reduction(const std::string& name) {
  constexpr const char* kNames[] = {"mean", "sum", "maximum", "minimum"};
  for (int index = 0; index < 4; ++index)
    if (name == kNames[index]) return static_cast<Reduction>(index);
  throw std::invalid_argument("unknown reduction '" + name + "'");
}

void bind_elements(nb::module_& module) {
  SpecClass<ElementTensor>(module, "ElementTensor")
      .required("place", &ElementTensor::place)
      .required_as<std::string>("type", [](ElementTensor* tensor, const std::string& name) {
        tensor->type = element_type(name);
      })
      .required("strides", &ElementTensor::strides);
  using Instruction = ElementInstruction;
  SpecClass<Instruction>(module, "ElementInstruction")
      .required("code", &Instruction::code)
      .required("a", &Instruction::a)
      .field("b", &Instruction::b)
      .field("low", &Instruction::low)
      .field("high", &Instruction::high)
      .field("parameters", &Instruction::parameters)
      .field("table", &Instruction::table)
      .field("epilogue", &Instruction::epilogue);
  SpecClass<ElementSpec>(module, "ElementwiseIntSpec")
      .required("shape", &ElementSpec::shape)
      .field("channel_axis", &ElementSpec::channel_axis)
      .required("operands", &ElementSpec::operands)
      .required("instructions", &ElementSpec::instructions)
      .required("result", &ElementSpec::result)
      .field("low", &ElementSpec::low)
      .field("high", &ElementSpec::high)
      .field("bias", &ElementSpec::bias)
      .field("table", &ElementSpec::table);
  bind_kernel<ElementSpec>(module, "elementwise_int", kVectorWidths, make_elements);
}

void bind_quantize(nb::module_& module) {
  SpecClass<LookUpSpec>(module, "LookUpSpec")
      .required("source", &LookUpSpec::source)
      .required("target", &LookUpSpec::target)
      .required("rows", &LookUpSpec::rows)
      .required("length", &LookUpSpec::length)
      .required("pitch", &LookUpSpec::pitch)
      .required("table", &LookUpSpec::table);
  bind_kernel<LookUpSpec>(module, "look_up", kVectorWidths, make_look_up);
  SpecClass<QuantizeSpec>(module, "QuantizeSpec")
      .required("source", &QuantizeSpec::source)
      .required("target", &QuantizeSpec::target)
      .field("images", &QuantizeSpec::images)
      .field("channels", &QuantizeSpec::channels)
      .required("pixels", &QuantizeSpec::pixels)
      .field("divisor", &QuantizeSpec::divisor)
      .required("scale", &QuantizeSpec::scale)
      .required("offset", &QuantizeSpec::offset)
      .field("low", &QuantizeSpec::low)
      .field("high", &QuantizeSpec::high);
  bind_kernel<QuantizeSpec>(module, "quantize", kVectorWidths, make_quantize);
}

void bind_pool(nb::module_& module) {
  using Spec = PoolSpec;
  SpecClass<Spec>(module, "PoolIntSpec")
      .required("source", &Spec::source)
      .required("target", &Spec::target)
      .required("images", &Spec::images)
      .required("height", &Spec::height)
      .required("width", &Spec::width)
      .required("channels", &Spec::channels)
      .required("out_height", &Spec::out_height)
      .required("out_width", &Spec::out_width)
      .required("kernel_h", &Spec::kernel_h)
      .required("kernel_w", &Spec::kernel_w)
      .required("stride_h", &Spec::stride_h)
      .required("stride_w", &Spec::stride_w)
      .required("pad_top", &Spec::pad_top)
      .required("pad_left", &Spec::pad_left)
      .required("is_maximum", &Spec::is_maximum)
      .field("is_wide", &Spec::is_wide)
      .field_as<bool>("divides", [](Spec* spec, bool divides) { spec->average.divides = divides; })
      .field_as<std::int32_t>("scale", [](Spec* spec, std::int32_t scale) { spec->average.scale = scale; })
      .field_as<int>("shift", [](Spec* spec, int shift) { spec->average.shift = shift; })
      .field_as<std::int32_t>("bias", [](Spec* spec, std::int32_t bias) { spec->average.bias = bias; })
      .field("row_counts", &Spec::row_counts)
      .field("column_counts", &Spec::column_counts);
  bind_kernel<Spec>(module, "pool_int", kVectorWidths, make_pool);
}

void bind_rows(nb::module_& module) {
  SpecClass<ReduceSpec>(module, "ReduceIntSpec")
      .required("source", &ReduceSpec::source)
      .required("target", &ReduceSpec::target)
      .required("outer", &ReduceSpec::outer)
      .required("count", &ReduceSpec::count)
      .required("inner", &ReduceSpec::inner)
      .required_as<std::string>("method", [](ReduceSpec* spec, const std::string& name) {
        spec->reduction = reduction(name);
      })
      .field("bias", &ReduceSpec::bias);
  bind_kernel<ReduceSpec>(module, "reduce_int", kVectorWidths, make_reduce);
  SpecClass<SoftmaxIntSpec>(module, "SoftmaxIntSpec")
      .required("source", &SoftmaxIntSpec::source)
      .required("target", &SoftmaxIntSpec::target)
      .required("rows", &SoftmaxIntSpec::rows)
      .required("length", &SoftmaxIntSpec::length)
      .required("table", &SoftmaxIntSpec::table)
      .required("scale", &SoftmaxIntSpec::scale)
      .required("zero", &SoftmaxIntSpec::zero);
  bind_kernel<SoftmaxIntSpec>(module, "softmax_int", kVectorWidths, make_softmax_int);
}

}  // namespace

void bind_int8_elementwise(nb::module_& module) {
  bind_elements(module);
  bind_quantize(module);
  bind_pool(module);
  bind_rows(module);
}

}  // namespace tpuconvert
