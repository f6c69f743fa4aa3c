// Interface between the baseline part of the 16-bit convolution and its kernels per instruction set.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline. There are two forms of the sums:
//   - Products of pairs: an operand is expanded to pairs of 16-bit words, and its weights are pairs too, so that one
//     product of pairs (vpmaddwd, vpdpwssd) contributes `x[0] * w[0] + x[1] * w[1]` to a sum of 32 bits.
//   - Products of bytes, with dot products of four bytes or AMX: an operand of 16 bits is expanded to a plane of high
//     bytes `h` and one of low bytes `l`, both with 128 added; 8 bits are one plane `h`. Then
//     sum = 256 * (h * high) + (h * low + l * high), modulo 2^32. A dot product handles four inputs, so that these
//     three take three quarters of the instructions of four pairs.
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
  Requantization second;  // of the results of `rescale`, for Second::kExact
  alignas(64) std::int32_t bias[kPanel];
  float factor[kPanel], addend[kPanel];  // for Second::kFactor
};

enum class Store { kByte, kWord, kReal };

// Requantization of the results of 16 bits.
enum class Second {
  kNone,
  kExact,   // as the first one
  kFactor,  // floor(x * factor + addend), exact in float32; kernels without this form use kExact
  kFactorAlone,  // kFactor, where the limits of the first requantization do not change results
};

// Parameters of the epilogue that all channels share:
//   v = clamp(rescale(sum), low, high);  v = clamp(second(v), second_low, second_high), if there is a second one
// kReal stores (v - zero) * scale in float32.
struct Finish {
  std::int32_t low, high, second_low, second_high;
  Second second;
  Store store;
  std::int32_t zero;
  float scale;
};

// A run of adjacent pairs, or bytes of a plane, of a window, relative to its first one.
struct Segment {
  std::ptrdiff_t offset;
  std::ptrdiff_t count;
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

// Results of several panels as products of bytes.
struct ByteTile {
  const std::uint8_t* const* pixels;  // the first byte of each window in the plane `h`
  const Segment* segments;            // their counts are multiples of `chunk`; bytes after the inputs have zero weights
  int segment_count;
  std::ptrdiff_t chunk;               // bytes of a segment that one instruction multiplies: 4, or up to 64 with AMX
  bool is_wide;
  std::ptrdiff_t low_plane;           // bytes from `h` to `l`; only if is_wide
  const std::int8_t* weights;         // [panel][4 bytes of depth][high, low][kPanel][4]
  std::ptrdiff_t panel_bytes;
  const Panel* panels;                // with biases for the operands that are stored
  const Finish* finish;
  int rows;                           // number of results that are stored; `pixels` has ByteFunctions::rows elements
  int first_rows;                     // AMX: rows of the first of two blocks; rows of a block have a constant distance
  int columns;                        // of all panels
  std::uint8_t* const* outputs;
  std::size_t offset;
};

// A row of depthwise results, whose lanes are the channels of adjacent pixels. The parameters repeat after `panels`
// panels; `repeats` times as many results are stored.
struct DepthwiseRow {
  const std::int32_t* pairs;    // of the windows of the first result
  const std::ptrdiff_t* taps;   // the pair of the first lane for each tap
  int tap_count;
  std::ptrdiff_t step;          // pairs from a repeat to the next
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

// Products of bytes.
struct ByteFunctions {
  int rows;  // windows of a tile
  bool is_amx;
  void (*multiply)(const ByteTile& tile);
  // Writes the high and low bytes of min(x, 32639), with 128 added to both signed bytes.
  void (*split_words)(const PixelRun& run, std::uint8_t* high, std::ptrdiff_t low_plane);
};

// Products of pairs.
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

const ByteFunctions& byte_functions_avx512vnni();
const ByteFunctions& byte_functions_amx();

}  // namespace tpuconvert::int16
