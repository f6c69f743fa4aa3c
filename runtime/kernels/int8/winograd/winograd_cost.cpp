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

// Costs in register products, from measurements of each kernel.
struct Costs {
  int values;   // input bytes that a register product of the direct kernel multiplies; a Winograd product has two
  int tile;     // addresses of a tile
  int patch;    // transform of a patch, per register of channels
  int results;  // transform of the results and epilogue of a tile, per register of columns
  int line;     // first read of 64 bytes of weights in a run
  int reread;   // later read of 64 bytes that did not stay in the second-level cache
  double slowdown;  // time of a product of the Winograd kernel, relative to the direct kernel
};

// Input bytes that the direct kernel for AMX multiplies in the time of a register product. On VGG-16, it reaches 1343 GMAC/s
// instead of the 308 of AVX512-VNNI, 4.4 times as many; rounded down. The Winograd kernel reaches 440. Measured on an Intel
// Xeon (Sapphire Rapids or later), with TPUCONVERT_ISA=amx and avx512vnni:
//   python -m tools.bench --parts kernels --networks vgg16
constexpr int kAmxValues = 4 * 4;

Costs costs_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Vnni: return {4, 500, 420, 350, 9, 5, 1.0};
    // The Winograd kernel is that of AVX512-VNNI; see kAmxValues.
    case Isa::kAmx: return {kAmxValues, 500, 420, 350, 9, 5, 1.0};
    case Isa::kAvxVnni: return {4, 300, 250, 250, 5, 3, 1.0};
    case Isa::kAvx2: return {2, 300, 250, 250, 5, 3, 1.0};
    // AArch64: counted in instructions of the loops, since no machine was available. A register product is four `smlal`;
    // dot products take a quarter of their time, i8mm an eighth.
    case Isa::kNeon: return {2, 150, 150, 200, 3, 2, 1.0};
    case Isa::kDotprod: return {4, 600, 600, 800, 12, 8, 4.0};
    case Isa::kI8mm: return {8, 1200, 1200, 1600, 24, 16, 8.0};
    case Isa::kScalar: break;
  }
  return {2, 500, 420, 350, 5, 3, 3.6};
}

// Weights of at most this size stay in the second-level cache.
constexpr std::int64_t kCacheShare = 512 * 1024;

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
  const auto divided = [](std::int64_t count, std::int64_t size) { return (count + size - 1) / size; };
  const std::int64_t tiles = std::int64_t{g.batch} * divided(g.out_height, kTile) * divided(g.out_width, kTile);
  const std::int64_t results = std::int64_t{g.batch} * g.out_height * g.out_width;
  const std::int64_t registers = divided(g.out_channels, functions.lanes);
  const std::int64_t words = divided(g.in_channels, 2 * functions.lanes);
  WinogradCost cost;
  cost.weight_bytes = static_cast<std::int64_t>(weight_bytes(g, functions));
  cost.direct = results * registers * divided(std::int64_t{g.taps()} * g.in_channels, costs.values);
  const std::int64_t products = tiles * kPositions * registers * pairs_of(g);
  cost.winograd = static_cast<std::int64_t>(costs.slowdown * static_cast<double>(products)) +
                  tiles * (costs.tile + words * costs.patch + registers * costs.results);
  const std::int64_t lines = cost.weight_bytes / 64;
  cost.direct += lines / 8 * costs.line;
  cost.winograd += lines * costs.line;
  if (cost.weight_bytes > kCacheShare) cost.winograd += (divided(tiles, block_tiles(functions)) - 1) * lines * costs.reread;
  return cost;
}

}  // namespace tpuconvert
