#include "int8/winograd/winograd_weights.h"

#include <algorithm>
#include <cstdlib>

namespace tpuconvert::winograd {
namespace {

constexpr int kTaps = 3;
constexpr int kMostLanes = 128;  // elements of two channels of the widest panel

// G g along one axis, for `count` kernels at once: three rows of elements become six.
void transform_taps(const std::int16_t* const* g, int count, std::int16_t* const* u) {
  for (int i = 0; i < count; ++i) {
    const int a = g[0][i], b = g[1][i], c = g[2][i];
    const int even = a + c, far = a + 4 * c;
    u[0][i] = static_cast<std::int16_t>(a);
    u[1][i] = static_cast<std::int16_t>(-even - b);
    u[2][i] = static_cast<std::int16_t>(b - even);
    u[3][i] = static_cast<std::int16_t>(far + 2 * b);
    u[4][i] = static_cast<std::int16_t>(far - 2 * b);
    u[5][i] = static_cast<std::int16_t>(c);
  }
}

// The kernels of two channels and all lanes of a panel.
class PairOfChannels {
 public:
  explicit PairOfChannels(int count) : count_(count) {}

  std::int16_t* tap(int y, int x) { return taps_[y * kTaps + x]; }

  // Writes the transformed kernels to u[position * stride + element].
  void transform(std::int16_t* u, std::ptrdiff_t stride) {
    std::int16_t half[kPatch][kTaps][kMostLanes];  // |half| <= 7 * 255
    for (int x = 0; x < kTaps; ++x) {
      const std::int16_t* from[kTaps] = {tap(0, x), tap(1, x), tap(2, x)};
      std::int16_t* to[kPatch] = {half[0][x], half[1][x], half[2][x], half[3][x], half[4][x], half[5][x]};
      transform_taps(from, count_, to);
    }
    for (int i = 0; i < kPatch; ++i) {
      const std::int16_t* from[kTaps] = {half[i][0], half[i][1], half[i][2]};
      std::int16_t* to[kPatch];
      for (int j = 0; j < kPatch; ++j) to[j] = u + (i * kPatch + j) * stride;
      transform_taps(from, count_, to);
    }
  }

 private:
  int count_;
  std::int16_t taps_[kTaps * kTaps][kMostLanes] = {};
};

}  // namespace

std::vector<Panel> panels_of(const ConvGeometry& g, const Functions& functions) {
  std::vector<Panel> panels;
  const int widest = functions.lanes * functions.vectors;
  std::size_t weights = 0;
  for (int first = 0; first < g.out_channels; first += widest) {
    const int columns = std::min(widest, g.out_channels - first);
    const int vectors = (columns + functions.lanes - 1) / functions.lanes;
    panels.push_back({first, columns, vectors, weights});
    weights += kPositions * 2 * static_cast<std::size_t>(pairs_of(g)) * static_cast<std::size_t>(vectors * functions.lanes);
  }
  return panels;
}

std::size_t weight_bytes(const ConvGeometry& g, const Functions& functions) {
  const auto lanes = static_cast<std::size_t>((g.out_channels + functions.lanes - 1) / functions.lanes * functions.lanes);
  return kPositions * 2 * static_cast<std::size_t>(pairs_of(g)) * lanes * sizeof(std::int16_t);
}

std::vector<ChannelSums> channel_sums(const ConvInt8Spec& spec) {
  std::vector<ChannelSums> sums;
  for (int channel = 0; channel < spec.geometry.out_channels; ++channel) {
    const SignedSums parts = signed_sums(spec, channel);
    sums.push_back({parts.positive + parts.negative, parts.positive - parts.negative});
  }
  return sums;
}

AlignedBytes pack_weights(const ConvInt8Spec& spec, const Functions& functions, const std::vector<Panel>& panels,
                          const PanelEpilogue& epilogue) {
  const int channels = spec.geometry.in_channels;
  AlignedBytes packed = AlignedBytes::part(weight_bytes(spec.geometry, functions));
  for (std::size_t index = 0; index < panels.size(); ++index) {
    const Panel& panel = panels[index];
    const int lanes = panel.vectors * functions.lanes;
    std::vector<int> columns;
    for (int lane = 0; lane < lanes; ++lane) columns.push_back(epilogue.column_of(index, lane));
    PairOfChannels kernels(2 * lanes);
    std::int16_t* to = packed.as<std::int16_t>() + panel.weights;
    const std::ptrdiff_t stride = std::ptrdiff_t{2} * pairs_of(spec.geometry) * lanes;
    for (int channel = 0; channel < channels; channel += 2, to += 2 * lanes) {
      for (int lane = 0; lane < lanes; ++lane) {
        if (columns[static_cast<std::size_t>(lane)] >= panel.columns) continue;
        for (int odd = 0; odd < 2; ++odd) {
          const int element = functions.is_paired ? 2 * lane + odd : odd * lanes + lane;
          const bool is_present = channel + odd < channels;
          for (int y = 0; y < kTaps; ++y)
            for (int x = 0; x < kTaps; ++x) {
              const int out = panel.first + columns[static_cast<std::size_t>(lane)];
              kernels.tap(y, x)[element] =
                  is_present ? static_cast<std::int16_t>(spec.weights.at(out, channel + odd, y, x)) : std::int16_t{0};
            }
        }
      }
      kernels.transform(to, stride);
    }
  }
  return packed;
}

}  // namespace tpuconvert::winograd
