// Interface between the baseline part of the 256-bit convolution and its kernels per instruction set.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline. Weights are packed in panels of 16 output channels. A panel has one row of 16 * 4 bytes per 4
// bytes of depth, where the 4 bytes of a channel are four signed bytes (for vpdpbusd) or two 16-bit words (for
// vpmaddwd).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::panels {

constexpr int kRows = 6;           // output positions of a tile: 12 accumulators leave 4 other registers
constexpr int kColumns = 16;       // output channels of a panel: two registers of 8
constexpr int kStepBytes = 64;     // bytes of packed weights per 4 bytes of depth


// Column that is stored in lane `lane` of register `half` of a panel. In this order, _mm256_packs_epi32 of the two
// registers restores the natural order of the channels.
constexpr int column_of(int half, int lane) { return lane / 4 * 8 + half * 4 + lane % 4; }

// Vectorized epilogues of a tile. See Rescale for the definitions.
enum class PanelEpilogue {
  kFloatRequant,     // proved exact; requires rounding towards minus infinity
  kKinkedRequant,    // proved exact; requires rounding towards minus infinity
  kOneRounding,   // rounds half up by 32..62 bits
  kTwoRoundings,  // rounds by 31 bits, then by 0..31 bits
  kLowPrecision,
  kReal,          // Rescale::kHighSymmetric and Rescale::kFloat
  kSums,          // stores accumulators for the scalar epilogue
};

struct FloatParameters {
  float high_part[kColumns], low_part[kColumns], kink[kColumns];
};

struct FixedParameters {
  std::int32_t multiplier[kColumns];
  std::int32_t shift[kColumns];      // bits of the last right shift
  std::int32_t half[kColumns];       // kTwoRoundings: added before this shift
  std::int32_t sign_mask[kColumns];  // kTwoRoundings: -1 if there is a second rounding, else 0
  // kOneRounding: added to the products, [register][even or odd lanes][product].
  std::int64_t half_wide[2][2][4];
};

struct LateBiasParameters {
  float late_bias[kColumns];
};

// Parameters of the 16 columns of a panel, in panel order except for `offset`.
struct alignas(32) ColumnParameters {
  std::int32_t bias[kColumns];  // includes the contribution of the input's zero point, modulo 2^32
  union {
    FloatParameters floats;
    FixedParameters fixed;
    LateBiasParameters real;
  };
  std::int16_t offset[kColumns];  // natural order; kFloatRequant and kKinkedRequant: 2 * offset + 1
};

// Parameters shared by all columns.
struct CommonParameters {
  std::uint8_t low = 0, high = 255;
  const std::uint8_t* lut = nullptr;
  int first_shift = 0;  // kLowPrecision, kReal
  std::int32_t narrow_low = 0, narrow_high = 0;
  std::int32_t rest_in_128ths = 128;  // kLowPrecision
  float factor = 1.0f;                // kReal
  bool has_first_stage = false;       // kReal: round and clamp before the multiplication
};

// Kernels of an instruction set. Their input is addressed as pixels[tap * rows + row] + offset, the first byte of a
// tap. Sums are written as [row][16] in panel order, without bias.
struct Functions {
  void (*multiply[kRows])(const std::uint8_t* const* pixels, std::ptrdiff_t taps, std::ptrdiff_t tap_bytes,
                          std::ptrdiff_t offset, const std::uint8_t* weights, std::int32_t* sums);

  // Computes 16 depthwise channels starting at `offset`, with one weight per tap and channel. `taps` is even for words
  // and a multiple of four for bytes. Weights of words are [tap / 2][half][8 channels][2 words] in panel order.
  void (*depthwise_words)(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums);
  // The same with weights [tap / 4][half][8 channels][4 bytes]. Null if the instruction set has no byte dot product.
  void (*depthwise_bytes)(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums);

  // Writes `columns` results of each row to outs[row] + offset. Not for kSums.
  void (*apply_epilogue)(PanelEpilogue kind, const std::int32_t* sums, int rows, const ColumnParameters& parameters,
                 const CommonParameters& common, std::uint8_t* const* outs, std::ptrdiff_t offset, int columns);

  // For kSums: adds the bias and restores the natural order of the columns, in place.
  void (*add_bias)(std::int32_t* sums, int rows, const ColumnParameters& parameters);

  // Widens unsigned bytes to 16-bit words.
  void (*widen)(const std::uint8_t* from, std::ptrdiff_t count, std::uint8_t* to);

  bool has_byte_dot;  // true if `multiply` reads bytes, false if it reads 16-bit words
};

const Functions& functions_avx2();
const Functions& functions_avxvnni_vex();
const Functions& functions_avxvnni_evex();

// The AVX-VNNI kernels in the encoding that this processor has.
const Functions& functions_avxvnni();

}  // namespace tpuconvert::panels
