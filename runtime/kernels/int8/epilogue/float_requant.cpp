// Selection of the cheapest in-register epilogue that is proved exact.
//
// The factor is m * 2^-s with m < 2^31. m is split into an upper part of at most 24 significant bits and a rest of at
// most 7 bits, both exact in float32. The fused multiply-add and the conversion round down, so that together they give
// the exact floor of upper * x + second. The epilogue is exact whenever the second summand is:
//   - if the rest is 0, the second summand is offset + 1/2;
//   - otherwise it is rest * x, which must fit 24 bits for every sum x that matters.
// Sums matter up to the farthest threshold between two results. Beyond it, both functions stay at the same limit,
// because they are monotone; float(x) is monotone too, and the relative error of the epilogue is below 2^-22. All other
// cases are proved threshold by threshold.
#if defined(__x86_64__)

#include "int8/epilogue/float_requant.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace tpuconvert::avx512 {
namespace {

constexpr int kMantissa = 24;
constexpr double kLargestExact = 1 << kMantissa;  // smaller sums are exact in float32
constexpr std::int64_t kWordLow = std::numeric_limits<std::int16_t>::min();
constexpr std::int64_t kWordHigh = std::numeric_limits<std::int16_t>::max();

int bits_of(std::int64_t value) {
  return value == 0 ? 0 : 64 - __builtin_clzll(static_cast<unsigned long long>(value));
}

// Returns 2^exponent, which must be a normal value.
double power_of_two(int exponent) {
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double power = 0.0;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

struct Split {
  std::int64_t upper, rest;
};

Split split(std::int64_t m) {
  const int cut = bits_of(m) - kMantissa;
  if (cut <= 0) return {m, 0};
  const std::int64_t upper = ((m + (std::int64_t{1} << (cut - 1))) >> cut) << cut;
  return {upper, m - upper};
}

// True if the epilogue is clamp(floor(x * m * 2^-s + 1/2) + offset).
bool is_half_up(const Epilogue& epilogue, int channel, int* s) {
  const EpilogueSpec& spec = epilogue.spec();
  const int shift = epilogue.shift(channel);
  if (spec.rescale == Rescale::kOneRounding && spec.rounding == Rounding::kHalfUp) {
    *s = -shift;
  } else if (spec.rescale == Rescale::kTwoRoundings && shift >= 0) {
    *s = 31 - shift;
  } else {
    return false;
  }
  return *s >= 1 && *s <= 62;
}

}  // namespace

RequantCandidates find_requant(const Epilogue& epilogue, int channel, std::int64_t largest) {
  RequantCandidates candidates;
  const EpilogueSpec& spec = epilogue.spec();
  const std::int64_t offset = epilogue.offset(channel);
  const bool has_words = spec.bytes == 2;
  const std::int64_t farthest_offset = has_words ? kWordHigh : 4096;
  if ((spec.bytes != 1 && !has_words) || std::llabs(offset) > farthest_offset) return candidates;
  if (has_words && (spec.low < kWordLow || spec.high > kWordHigh)) return candidates;

  double factor = 0.0;  // approximate, to compute the sums that matter
  if (spec.rescale == Rescale::kOneRounding) {
    factor = static_cast<double>(epilogue.multiplier(channel)) * power_of_two(epilogue.shift(channel));
  } else if (spec.rescale == Rescale::kTwoRoundings) {
    factor = static_cast<double>(epilogue.multiplier(channel)) * power_of_two(epilogue.shift(channel) - 31);
  } else {
    return candidates;
  }
  // The conversion of twice the result to an integer must not overflow.
  if (factor <= 0.0 || 2.0 * factor * static_cast<double>(largest) >= 0x1p30) return candidates;
  const std::int64_t lowest = has_words ? spec.low : 1, highest = has_words ? spec.high : 255;
  const double farthest = static_cast<double>(std::max(std::llabs(lowest - offset), std::llabs(highest - offset))) + 1.0;
  const double reach = std::ceil(farthest / factor) + 2.0;
  if (reach < kLargestExact) largest = std::min(largest, static_cast<std::int64_t>(reach));

  int s = 0;
  if (is_half_up(epilogue, channel, &s) && static_cast<double>(largest) < kLargestExact) {
    const std::int64_t m = epilogue.multiplier(channel);
    const Split parts = split(m);
    const int zeros = __builtin_ctzll(static_cast<unsigned long long>(m));
    if (parts.rest == 0) {
      candidates.cheapest = has_words ? TileEpilogue::kWords : TileEpilogue::kOneFactor;
      candidates.factor = static_cast<float>(static_cast<double>(m) * power_of_two(-s));
      candidates.addend = static_cast<float>(static_cast<double>(offset) + 0.5);
    } else if (!has_words && bits_of((std::llabs(parts.rest) >> zeros) * largest) <= kMantissa) {
      candidates.cheapest = TileEpilogue::kTwoFactors;
    }
    if (candidates.cheapest != TileEpilogue::kSums) {
      candidates.kinked.high_part = static_cast<float>(static_cast<double>(parts.upper) * power_of_two(1 - s));
      candidates.kinked.low_part = static_cast<float>(static_cast<double>(parts.rest) * power_of_two(1 - s));
      candidates.kinked.kink = 0.0f;
      return candidates;
    }
  }
  if (!has_words && prove_kinked_float_requant(epilogue, channel, std::max<std::int64_t>(largest, 1), &candidates.kinked))
    candidates.cheapest = candidates.kinked.kink == 0.0f ? TileEpilogue::kTwoFactors : TileEpilogue::kKinked;
  return candidates;
}

}  // namespace tpuconvert::avx512

#endif
