// Interface between the baseline part of the 16-bit convolution and its kernels per instruction set.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline. An operand is expanded to pairs of 16-bit words, and its weights are pairs too, so that one
// product of pairs (vpmaddwd, vpdpwssd) contributes `x[0] * w[0] + x[1] * w[1]` to a sum of 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::int16 {

constexpr int kPanel = 16;      // output channels that are computed together
constexpr int kTiedTaps = 9;    // depthwise taps whose weights stay in registers

// y = ((x * multiplier + half) >> shift) + addend, with the addition and the logical shift in 64 bits and the low 32 bits
// of the shifted value. `half` includes 2^62, so that the sum is not negative for |x * multiplier| < 2^62, and `addend`
// subtracts 2^62 >> shift. Wide vectors contain the even lanes, then the odd lanes.
struct alignas(64) Requantization {
  std::int64_t half[2][kPanel / 2];
  std::int64_t shift[2][kPanel / 2];
  std::int32_t multiplier[kPanel];
  std::int32_t addend[kPanel];
};

struct Panel {
  Requantization rescale;
  Requantization second;  // of the results of `rescale`, if Finish::has_second
  alignas(64) std::int32_t bias[kPanel];
};

enum class Store { kByte, kWord, kReal };

// Parameters of the epilogue that all channels share:
//   v = clamp(rescale(sum), low, high);  if has_second: v = clamp(second(v), second_low, second_high)
// kReal stores (v - zero) * scale in float32.
struct Finish {
  std::int32_t low, high, second_low, second_high;
  bool has_second;
  Store store;
  std::int32_t zero;
  float scale;
};

// A run of adjacent pairs of a window, relative to its first pair.
struct Segment {
  std::ptrdiff_t offset;
  std::ptrdiff_t pairs;
};

struct Tile {
  const std::int32_t* const* pixels;  // the first pair of each window
  const Segment* segments;
  int segment_count;
  const std::int32_t* weights;  // [pair][kPanel]
  const Panel* panel;
  const Finish* finish;
  int rows;  // number of results that are stored; `pixels` has Functions::rows elements
  int columns;
  std::uint8_t* const* outputs;
  std::size_t offset;
};

// A row of depthwise results, whose lanes are the channels of adjacent pixels. The parameters repeat after `panels`
// panels; `repeats` times as many results are stored.
struct DepthwiseRow {
  const std::int32_t* const* taps;  // the pair of the first lane for each tap
  int tap_count;
  const std::int32_t* weights;  // [panel][tap][kPanel]
  const Panel* panels;
  int panel_count;
  int repeats;
  const Finish* finish;
  std::uint8_t* output;
};

// Pixels of an operand with a distance of `pitch` bytes. Their pairs are stored without gaps.
struct PixelRun {
  const std::uint8_t* pixels;
  std::ptrdiff_t count, pitch, channels;
};

struct Functions {
  int rows;  // windows of a tile
  void (*multiply)(const Tile& tile);
  void (*depthwise)(const DepthwiseRow& row);
  // Writes the pairs (min(x, 32639), byte), where the signed byte is that of `x = 256 * byte + rest` with a signed rest.
  void (*expand_words)(const PixelRun& run, std::int32_t* pairs);
  // Writes the pairs (x - zero, 0).
  void (*expand_bytes)(const PixelRun& run, int zero, std::int32_t* pairs);
};

const Functions& functions_scalar();
const Functions& functions_avx2();
const Functions& functions_avxvnni_vex();
const Functions& functions_avxvnni_evex();
const Functions& functions_avx512vnni();
const Functions& functions_neon();

}  // namespace tpuconvert::int16
