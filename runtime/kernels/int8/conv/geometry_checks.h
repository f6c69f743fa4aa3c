// Checks of the extents and strides of a convolution. `kernel` is the name of the kernel, for the messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "int8/conv/conv.h"

namespace tpuconvert {

constexpr std::int64_t kLargestIndex = std::numeric_limits<std::int32_t>::max();

// Throws std::invalid_argument with the message unless the condition is true.
void require_of(const char* kernel, bool is_true, const char* message);

// Bytes from the start of the first element to the end of the last one, for a channels-last tensor with the extents
// and strides of images, rows and pixels.
std::int64_t tensor_extent(const char* kernel, const std::array<std::int64_t, 3>& sizes,
                           const std::array<std::ptrdiff_t, 3>& strides, std::int64_t pixel_bytes);
std::int64_t input_extent(const char* kernel, const ConvGeometry& g, int bytes);
std::int64_t output_extent(const char* kernel, const ConvGeometry& g, int bytes);

// Throws std::invalid_argument for extents and strides that the kernels do not support. Elements of the operand have
// `in_bytes` bytes, those of the result `out_bytes`.
void check_geometry(const char* kernel, const ConvGeometry& g, int in_bytes, int out_bytes);

}  // namespace tpuconvert
