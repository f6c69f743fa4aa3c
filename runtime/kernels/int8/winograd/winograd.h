// Exact integer Winograd convolution F(4x4, 3x3): 36 instead of 144 multiplications per 16 results and pair of channels.
//
// For a 3x3 kernel g and a 6x6 patch d of the input, y = A^T ((G g G^T) * (B^T d B)) A, where * is element-wise and
//
//         [ 4  0 -5  0  1  0]        [ 1  0  0]
//         [ 0 -4 -4  1  1  0]        [-1 -1 -1]         [1  1  1  1  1  0]
//   B^T = [ 0  4 -4 -1  1  0]    G = [-1  1 -1]   A^T = [0  1 -1  2 -2  0] diag(6, 4, 4, 1, 1, 24) / 24
//         [ 0 -2 -1  2  1  0]        [ 1  2  4]         [0  1  1  4  4  0]
//         [ 0  2 -1 -2  1  0]        [ 1 -2  4]         [0  1 -1  8 -8  1]
//         [ 0  4  0 -5  0  1]        [ 0  0  1]
//
// Everything is an integer up to the factor 1 / 24 per axis:
//   - |B^T d B| <= 255 * 68 = 17340 for bytes and |G g G^T| <= 255 * 49 = 12495 for weights minus a zero point: both fit 16
//     bits;
//   - sums over the channels, and the transform by A without the factor, are computed modulo 2^32. They give 576 * y;
//   - 576 = 9 * 64. The product with 954437177, the inverse of 9 modulo 2^32, is 64 * y modulo 2^32. An arithmetic shift
//     by 6 bits gives y if |y| < 2^25. `is_winograd_exact` checks this for every channel with the bound
//     255 * max(sum of the positive weights, sum of the negative weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/isa.h"
#include "core/step.h"
#include "int8/conv/conv.h"

namespace tpuconvert {

// Estimated cost of a convolution, in register products (vpdpbusd or vpdpwssd), and memory of the packed weights.
struct WinogradCost {
  std::int64_t direct = 0;
  std::int64_t winograd = 0;
  std::int64_t weight_bytes = 0;
};

// Returns the costs, or nothing if the Winograd convolution does not apply: another window than 3x3 with stride 1,
// dilation 1 and one group.
std::optional<WinogradCost> winograd_cost(const ConvGeometry& geometry, Isa isa);

// True if every sum without bias is below 2^25 in magnitude.
bool is_winograd_exact(const ConvInt8Spec& spec);

// Makes the step. Throws like make_conv_int8, and std::invalid_argument if the Winograd convolution does not apply or
// is not exact.
std::shared_ptr<Step> make_conv_int8_winograd(const ConvInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
