// Operators on the channels of binary32 images that lie channels-last, computed in binary64 and rounded once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/step.h"

namespace tpuconvert {

// y = (x - mean) * slope + shift, one of each per channel. Pixels of x and y are adjacent.
struct ChannelAffine {
  std::vector<double> mean, slope, shift;
};

// y = x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ^ beta.
struct ChannelResponse {
  int channels = 1, size = 1;
  double alpha = 0, beta = 0, bias = 0;
};

// Both throw std::invalid_argument for extents that are not possible.
std::shared_ptr<Step> make_channel_affine(const Place& x, const Place& y, std::int64_t pixels, ChannelAffine affine);
std::shared_ptr<Step> make_channel_response(const Place& x, const Place& y, std::int64_t pixels, ChannelResponse response);

}  // namespace tpuconvert
