// The rule that selects the Winograd convolution, from the shape of the convolution only.
#include <algorithm>

#include "int8/winograd/winograd.h"
#include "int8/winograd/winograd_weights.h"

namespace tpuconvert {
namespace {

using namespace winograd;

constexpr std::int64_t kSumLimit = std::int64_t{1} << 25;
constexpr int kFarthestInput = 255;

bool has_shape(const ConvGeometry& g) {
  return g.kernel_h == 3 && g.kernel_w == 3 && g.stride_h == 1 && g.stride_w == 1 && g.dilation_h == 1 &&
         g.dilation_w == 1 && g.groups == 1;
}

// Costs of the parts, in register products.
struct Costs {
  int direct_values;   // input bytes that one register product of the direct kernel multiplies
  int patch;           // transform of a patch and one register of channels
  int results;         // inverse transform and epilogue of a tile and one register of columns
  // Loading 64 bytes of weights from memory. Weights of the direct kernel are one eighth of the bytes, and both kernels
  // read them once per block of tiles.
  int line;
};

Costs costs_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Vnni: return {4, 150, 190, 40};
    case Isa::kAvxVnni: return {4, 150, 190, 20};
    case Isa::kAvx2: return {2, 120, 160, 15};
    case Isa::kScalar: break;
  }
  return {2, 400, 400, 15};
}

}  // namespace

bool is_winograd_exact(const ConvInt8Spec& spec) {
  for (int channel = 0; channel < spec.geometry.out_channels; ++channel) {
    const SignedSums sums = signed_sums(spec, channel);
    if (kFarthestInput * std::max(sums.positive, -sums.negative) >= kSumLimit) return false;
  }
  return true;
}

std::optional<WinogradCost> winograd_cost(const ConvGeometry& g, Isa isa) {
  if (!has_shape(g)) return std::nullopt;
  const Functions& functions = functions_of(isa);
  const Costs costs = costs_of(isa);
  const auto in_steps = [](std::int64_t count, std::int64_t step) { return (count + step - 1) / step; };
  const std::int64_t tiles = std::int64_t{g.batch} * in_steps(g.out_height, kTile) * in_steps(g.out_width, kTile);
  const std::int64_t results = std::int64_t{g.batch} * g.out_height * g.out_width;
  const std::int64_t registers = in_steps(g.out_channels, functions.lanes);
  const std::int64_t words = in_steps(g.in_channels, 2 * functions.lanes);
  WinogradCost cost;
  cost.weight_bytes = static_cast<std::int64_t>(weight_bytes(g, functions));
  const std::int64_t lines = cost.weight_bytes / 64;
  cost.direct = results * registers * in_steps(std::int64_t{g.taps()} * g.in_channels, costs.direct_values) +
                lines / 8 * costs.line;
  cost.winograd = tiles * (kPositions * registers * pairs_of(g) + words * costs.patch + registers * costs.results) +
                  lines * costs.line;
  return cost;
}

}  // namespace tpuconvert
