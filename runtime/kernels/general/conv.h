// Convolutions, transposed convolutions and matrix products for every case that the fast kernels decline: weights
// computed at run time, zero points per channel, calculation mode 2, three dimensions, FLOAT16. In a matrix product the
// rows are positions along W, and each matrix of a batch is a group.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/isa.h"
#include "general/conv_epilogue.h"
#include "general/tensor.h"

namespace tpuconvert {

// Axes are (depth, height, width); an image has depth 1.
struct AnyConvSpec {
  AnyTensor source;                // [N, groups, in per group, D, H, W]; INT8, UINT8, or floats with ConvMode::kFloat
  AnyTensor weights;               // [groups, out per group, in per group, kd, kh, kw]
  std::optional<AnyTensor> bias;   // [groups, out per group]; any type but 8 bits
  AnyTensor result;                // [N, groups, out per group, OD, OH, OW]
  std::int64_t batch = 1, groups = 1, inputs = 1, outputs = 1;  // channels are those of one group
  std::array<std::int64_t, 3> extents{1, 1, 1}, out_extents{1, 1, 1}, kernel{1, 1, 1};
  std::array<std::int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0};  // pads before the first element
  bool is_transposed = false;
  std::vector<std::int64_t> x_zeros{0}, w_zeros{0};  // subtracted: one, or one per channel
  std::vector<std::int64_t> column_zeros;            // further zero points of x: none, or one per result along W
  std::int64_t pad = 0;                              // value of the padding, after that subtraction
  std::int64_t x_zero = 0, w_zero = 0;               // zero points of mode 2, which are not subtracted
  bool has_late_bias = false;                        // of mode 1
  ConvRescale rescale;
  Place packed;  // memory for the weights of a run, of packed_bytes(spec) bytes, which `workspace` states
  std::size_t workspace = 0;
};

// Bytes of the packed weights. Throws std::invalid_argument for invalid extents.
std::size_t packed_conv_bytes(const AnyConvSpec& spec);

// Throws std::invalid_argument for invalid extents, types and zero points.
std::shared_ptr<Step> make_any_conv(const AnyConvSpec& spec, Isa isa);

}  // namespace tpuconvert
