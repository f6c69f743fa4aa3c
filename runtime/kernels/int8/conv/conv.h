// Integer convolution with a fused epilogue; a matmul is a convolution with one tap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "int8/epilogue/epilogue.h"
#include "int8/epilogue/residual.h"

namespace tpuconvert {

// Activations are channels-last and stored as unsigned bytes. Strides are in bytes, so that operands and results may be
// views of larger tensors (a slice of channels, every second row).
struct ConvGeometry {
  int batch = 1;
  int height = 1, width = 1, in_channels = 1;
  int out_height = 1, out_width = 1, out_channels = 1;
  int kernel_h = 1, kernel_w = 1;
  int stride_h = 1, stride_w = 1;
  int dilation_h = 1, dilation_w = 1;
  int pad_top = 0, pad_left = 0;  // bottom and right pads follow from the extents
  int groups = 1;
  std::ptrdiff_t in_pixel = 0, in_row = 0, in_image = 0;
  std::ptrdiff_t out_pixel = 0, out_row = 0, out_image = 0;

  int group_in() const { return in_channels / groups; }
  int group_out() const { return out_channels / groups; }
  int taps() const { return kernel_h * kernel_w; }
  bool is_depthwise() const { return groups > 1 && group_in() == 1 && group_out() == 1; }
};

// View of the weights in the file, with strides in elements; value = element - zero[channel].
struct WeightView {
  const void* data = nullptr;
  bool is_signed = true;
  std::vector<std::int32_t> zero;  // zero points: per tensor, per output channel, or empty for 0
  std::ptrdiff_t stride_out = 0, stride_in = 0, stride_y = 0, stride_x = 0;

  int zero_of(int out) const {
    return zero.empty() ? 0 : zero.size() == 1 ? zero[0] : zero[static_cast<std::size_t>(out)];
  }

  // -255..255
  int at(int out, int in, int y, int x) const {
    const std::ptrdiff_t index = out * stride_out + in * stride_in + y * stride_y + x * stride_x;
    const int raw = is_signed ? static_cast<const std::int8_t*>(data)[index]
                              : static_cast<const std::uint8_t*>(data)[index];
    return raw - zero_of(out);
  }
};

struct ConvInt8Spec {
  Place input;
  Place output;
  ConvGeometry geometry;
  WeightView weights;               // only valid while the step is made
  std::vector<std::int32_t> bias;   // one per output channel, or empty
  int input_zero = 0;               // stored zero point, 0..255; also the pad value
  EpilogueSpec epilogue;
  std::optional<ResidualSpec> residual;  // added to 8-bit results, after the lookup table
};

// Addresses of the tensors in a run. `other` is the second operand of the residual add, or null.
struct ConvAddresses {
  const std::uint8_t* input;
  std::uint8_t* output;
  const std::uint8_t* other;
};

// A convolution with packed weights for one instruction set.
class ConvInt8Kernel {
 public:
  virtual ~ConvInt8Kernel() = default;
  // Computes part `part` of `parts` of the result. Different parts may run at the same time.
  virtual void run(const ConvAddresses& at, int part, int parts, std::uint8_t* scratch) const = 0;
  // True if `run_image_rows` is supported.
  virtual bool has_image_rows() const { return false; }
  // Computes rows first..last-1 of the results of one image. `at` contains the addresses of row 0 of the image; only
  // rows under the windows are read.
  virtual void run_image_rows(const ConvAddresses& at, int first, int last, std::uint8_t* scratch) const {
    static_cast<void>(at), static_cast<void>(first), static_cast<void>(last), static_cast<void>(scratch);
  }
  // True if `run` adds the residual; otherwise a second pass over the result does.
  virtual bool adds_residual() const { return false; }
  // Number of parts of the work. It may exceed the number of threads to balance the load.
  virtual int parts(int threads) const = 0;
  virtual std::size_t scratch_bytes() const { return 0; }
  virtual std::size_t packed_bytes() const = 0;
  virtual const char* kind() const = 0;
};

// Name in profiles: "conv_int8 3x3", "depthwise_int8 3x3", "matmul_int8".
std::string kind_of(const ConvGeometry& geometry);

// Sums of the positive and of the negative weights of one channel, minus zero points.
struct SignedSums {
  std::int64_t positive = 0;
  std::int64_t negative = 0;
};

SignedSums signed_sums(const ConvInt8Spec& spec, int channel);

// Largest magnitude of an accumulator of a channel, with or without bias. make_conv_int8 rejects values above 2^31 - 1.
std::int64_t largest_sum(const ConvInt8Spec& spec, int channel);

std::unique_ptr<ConvInt8Kernel> make_conv_int8_scalar(const ConvInt8Spec& spec);
// For an instruction set with panel_kernels.h.
std::unique_ptr<ConvInt8Kernel> make_conv_int8_panels(const ConvInt8Spec& spec, Isa isa);

// Checks the parameters and makes the step. Throws std::invalid_argument for inconsistent extents, strides or
// parameters, and std::overflow_error if an accumulator may overflow 32 bits.
std::shared_ptr<Step> make_conv_int8(const ConvInt8Spec& spec, Isa isa);

// The parts of make_conv_int8: checks the parameters and simplifies the epilogue; makes the kernel of a checked spec.
ConvInt8Spec checked(const ConvInt8Spec& spec);
std::unique_ptr<ConvInt8Kernel> make_conv_int8_kernel(const ConvInt8Spec& spec, Isa isa);

// Like make_conv_int8, with the given kernel.
using MakeConvKernel = std::unique_ptr<ConvInt8Kernel> (*)(const ConvInt8Spec& spec, Isa isa);
std::shared_ptr<Step> make_conv_int8_step(const ConvInt8Spec& spec, Isa isa, MakeConvKernel make_kernel);

}  // namespace tpuconvert
