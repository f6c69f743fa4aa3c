// Computes floor(m * S + offset + 1/2) of an accumulator S with one fused multiply-add.
//
// A sum that begins at the bits of the float32 number B * 2^-k, 2^23 <= B < 2^24, is the number (B + S) * 2^-k, as long
// as B + S stays within the same limits: products are added to the significand. Subnormal numbers are multiples of
// 2^-149 whose bits, below the sign, are the multiple. A fused multiply-add that is rounded down has therefore the bits of
//     floor((B + S) * m + c)    for the factor m * 2^(k - 149) and the addend c * 2^-149, c an integer,
// without a conversion before or after. Negative results have the sign bit set, so that as integers they are the smallest:
// packing saturates them to 0, as required.
//
// It remains to choose B. Let m = M / Q, with M < 2^24 and Q a power of two. B * M + c * Q differs from
// (offset + 1/2) * Q by some D, which may be anything that moves no sum over a multiple of Q. Let t(k) be the smallest sum
// whose result is at least k, and r(k), 0 <= r(k) < M, by how much it is beyond what it has to be, in units of 1 / Q. Then
//     -r(k) <= D < M - r(k)    for all results k that are within the limits
// is what D has to fulfil: M * t(k) must not fall below its multiple, and M * (t(k) - 1) not reach it. The multiples of M
// just above odd multiples of Q / 2 have remainders of all sizes, so that one of the first few hundred fits: B is it, or
// M less. Beyond the outermost thresholds both functions are monotone and stay beyond the limits.
#if defined(__x86_64__)

#include "int8/epilogue/subnormal_requant.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "int8/epilogue/residues.h"

namespace tpuconvert::avx512 {
namespace {

constexpr int kExponent = 64;    // biased, of the sums: neither they nor factors leave the range of normal numbers
constexpr int kMantissa = 24;
constexpr int kLeastShift = 24;  // of factors below 1
constexpr int kMostShift = 46;   // so that products with the largest offset fit 63 bits
constexpr int kMostOffset = 8192;
constexpr int kTries = 4096;

std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor > 0 ? 1 : 0);
}

struct Channel {
  std::int64_t m, q;
  std::int64_t first_base, last_base;
  std::int64_t first_multiple;  // B is next to (first_multiple + i + 1/2) * q / m

  std::int64_t odd_half(std::int64_t multiple) const { return multiple * q + q / 2; }
  std::int64_t excess(std::int64_t value) const { return ceil_div(value, m) * m - value; }
};

bool read(const OneFactorChannel& from, Channel* channel) {
  int exponent = 0;
  const double significand = std::frexp(static_cast<double>(from.factor), &exponent);
  const int shift = kMantissa - exponent;
  if (significand <= 0.0 || shift < kLeastShift || shift > kMostShift || std::abs(from.offset) > kMostOffset) return false;
  channel->m = static_cast<std::int64_t>(std::ldexp(significand, kMantissa));
  channel->q = std::int64_t{1} << shift;
  channel->first_base = (std::int64_t{1} << (kMantissa - 1)) + from.largest;
  channel->last_base = (std::int64_t{1} << kMantissa) - 1 - from.largest;
  channel->first_multiple = ceil_div((channel->first_base + 1) * channel->m - channel->q / 2, channel->q);
  return channel->first_base < channel->last_base;
}

float of_bits(std::uint32_t bits) {
  float value = 0.0f;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

bool make_subnormal(const OneFactorChannel* channels, int low, int high, LaneParameters* lanes) {
  Channel found[kLanes];
  Residues thresholds{}, bases{};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (channels[lane].factor == 0.0f) {
      thresholds.modulus[lane] = bases.modulus[lane] = 1;
      continue;
    }
    Channel& channel = found[lane];
    if (!read(channels[lane], &channel)) return false;
    thresholds.modulus[lane] = bases.modulus[lane] = static_cast<std::int32_t>(channel.m);
    thresholds.step[lane] = bases.step[lane] = static_cast<std::int32_t>(channel.q % channel.m);
    // The first result above `low` needs a sum of at least (low - offset + 1/2) / m.
    thresholds.first[lane] = static_cast<std::int32_t>(channel.excess(channel.odd_half(low - channels[lane].offset)));
    bases.first[lane] = static_cast<std::int32_t>(channel.excess(channel.odd_half(channel.first_multiple)));
  }
  alignas(64) std::int32_t least[kLanes], largest[kLanes], index[kLanes];
  find_extremes(thresholds, high - low, least, largest);
  for (int lane = 0; lane < kLanes; ++lane) {
    largest[lane] = thresholds.modulus[lane] - largest[lane];  // D is below that,
    least[lane] = thresholds.modulus[lane] - least[lane];      // or at least that, less M
  }
  find_first(bases, kTries, largest, least, index);

  std::int64_t base[kLanes], addend[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (channels[lane].factor == 0.0f) continue;
    const Channel& channel = found[lane];
    if (index[lane] < 0) return false;
    const std::int64_t multiple = channel.first_multiple + index[lane];
    base[lane] = ceil_div(channel.odd_half(multiple), channel.m);
    if (channel.excess(channel.odd_half(multiple)) >= largest[lane]) --base[lane];
    addend[lane] = channels[lane].offset - multiple;
    if (base[lane] > channel.last_base || std::llabs(addend[lane]) >> kMantissa != 0) return false;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (channels[lane].factor == 0.0f) continue;
    const auto bits = static_cast<std::uint32_t>((std::int64_t{kExponent - 1} << (kMantissa - 1)) + base[lane]);
    lanes->bias[lane] = static_cast<std::int32_t>(static_cast<std::uint32_t>(lanes->bias[lane]) + bits);
    // The sums are multiples of 2^(kExponent - 150).
    lanes->factor[lane] = std::ldexp(channels[lane].factor, 1 - kExponent);
    lanes->second[lane] = of_bits((addend[lane] < 0 ? 1u << 31 : 0u) | static_cast<std::uint32_t>(std::llabs(addend[lane])));
  }
  return true;
}

}  // namespace tpuconvert::avx512

#endif
