#include "int8/elementwise/rescale_lanes.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "int8/elementwise/element_kernels.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kRoomForBias = 256;  // a store may add a bias in 32 bits

struct Channel {
  std::int64_t multiplier = 0;
  int right = 0;  // bits of the first rounding
  int again = 0;  // bits of the second rounding
};

// Converts the multiplier and shift of an operator to right shifts. Returns false if kRescale cannot represent them.
bool channel_of(const EpilogueSpec& spec, std::int32_t multiplier, std::int32_t shift, Channel* channel) {
  if (shift < -64 || shift > 31) return false;
  channel->multiplier = multiplier;
  if (spec.rescale == Rescale::kTwoRoundings) {
    channel->right = 31 - std::max(shift, 0);
    channel->again = std::min(std::max(-shift, 0), 32);  // a shift by 32 or more bits gives 0 for every value
    return true;
  }
  if (spec.rescale != Rescale::kOneRounding) return false;
  if (shift > 0) {
    if (shift > 30) return false;
    channel->multiplier *= std::int64_t{1} << shift;
    shift = 0;
  }
  // Half away from zero is the second rounding of kRescale, applied to a product that fits 32 bits.
  if (spec.rounding == Rounding::kHalfAwayFromZero) channel->again = std::min(-shift, 32);
  if (spec.rounding == Rounding::kHalfUp) channel->right = -shift;
  return spec.rounding == Rounding::kHalfAwayFromZero || spec.rounding == Rounding::kHalfUp;
}

// Largest magnitude after rounding by `bits`.
std::int64_t rounded(std::int64_t magnitude, int bits) {
  return bits == 0 ? magnitude : bits > 62 ? 1 : (magnitude >> bits) + 1;
}

// Computes the parameters of the narrow or wide form for all channels. Returns false if a value may overflow 32 bits.
bool prepare_form(const EpilogueSpec& spec, std::int64_t largest, RescaleLanes* lanes) {
  const std::size_t channels =
      std::max({spec.multiplier.size(), spec.shift.size(), spec.offset.size(), std::size_t{1}});
  const auto pick = [](const std::vector<std::int32_t>& values, std::size_t channel) {
    return values.empty() ? 0 : values.size() == 1 ? values[0] : values[channel];
  };
  for (std::size_t channel = 0; channel < channels; ++channel) {
    Channel found;
    if (!channel_of(spec, pick(spec.multiplier, channel), pick(spec.shift, channel), &found)) return false;
    if (found.right == 0) {  // double the multiplier and round by one bit, which is exact
      found.multiplier *= 2;
      found.right = 1;
    }
    if (found.multiplier > kMost || found.multiplier < -kMost) return false;
    const std::int64_t product = largest * (found.multiplier < 0 ? -found.multiplier : found.multiplier);
    const int shift = lanes->is_wide ? found.right : found.right - 1;
    const int first = std::min(shift, 32), second = std::min(shift - first, 31);
    // The product must fit 32 bits after the first shift, including the 1 added for rounding. All later magnitudes are
    // then below 2^31.
    if ((product >> first) >= kMost) return false;
    const std::int64_t high_part = rounded(product, found.right);
    const std::int64_t offset = pick(spec.offset, channel);
    if (high_part + (offset < 0 ? -offset : offset) >= kMost - (lanes->is_wide ? 0 : kRoomForBias)) return false;
    const std::int32_t values[] = {static_cast<std::int32_t>(found.multiplier), first, second, found.again - 1,
                                   static_cast<std::int32_t>(offset)};
    for (int index = 0; index < kParameters; ++index) lanes->parameters[index].push_back(values[index]);
    lanes->has_second = lanes->has_second || second != 0;
    lanes->has_again = lanes->has_again || found.again != 0;
  }
  return true;
}

}  // namespace

bool prepare_rescale(const EpilogueSpec& given, std::int64_t low, std::int64_t high, RescaleLanes* lanes) {
  const std::int64_t largest = std::max(low < 0 ? -low : low, high < 0 ? -high : high);
  const EpilogueSpec spec = without_ties(given, largest);
  for (const bool is_wide : {false, true}) {
    *lanes = RescaleLanes{};
    lanes->is_wide = is_wide;
    if (prepare_form(spec, largest, lanes)) return true;
  }
  return false;
}

}  // namespace tpuconvert
