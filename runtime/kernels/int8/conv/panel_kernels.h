// Interface between the baseline part of the 256-bit convolution and its kernels per instruction set.
//
// Plain data and plain functions only: code compiled for an instruction set must not share inline functions with the
// baseline. Weights are packed in panels of 16 output channels, with one row of 16 times 4 bytes per 4 bytes of depth: four
// signed bytes (products by vpdpbusd) or two 16-bit words (vpmaddwd).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::panels {

constexpr int kRows = 6;           // output positions of a tile: 12 accumulators and 4 other registers
constexpr int kColumns = 16;       // output channels of a panel: two registers of 8
constexpr int kStepBytes = 64;     // of packed weights for 4 bytes of depth


// Column of lane `lane` of register `half` of a panel. With this order _mm256_packs_epi32 of the two registers gives the
// channels in their natural order.
constexpr int column_of(int half, int lane) { return lane / 4 * 8 + half * 4 + lane % 4; }

// Vectorized epilogues of a tile.
enum class PanelEpilogue {
  kFloatRequant,     // proved; runs under rounding towards minus infinity
  kKinkedRequant,    // proved; runs under rounding towards minus infinity
  kOneRounding,   // half up, by 32..62 bits
  kTwoRoundings,  // by 31 bits and 0..31 bits
  kLowPrecision,
  kReal,          // kHighSymmetric and kFloat
  kSums,          // accumulators; the scalar epilogue is applied
};

struct FloatParameters {
  float high_part[kColumns], low_part[kColumns], kink[kColumns];
};

struct FixedParameters {
  std::int32_t multiplier[kColumns];
  std::int32_t shift[kColumns];      // of the second step
  std::int32_t half[kColumns];       // kTwoRoundings: added before it
  std::int32_t sign_mask[kColumns];  // kTwoRoundings: all bits where there is a second shift
  // kOneRounding: added to the products of even and of odd lanes, for either register.
  std::int64_t half_wide[2][2][4];
};

struct LateBiasParameters {
  float late_bias[kColumns];
};

// Of the 16 columns of a panel, in panel order except for `offset`.
struct alignas(32) ColumnParameters {
  std::int32_t bias[kColumns];  // with the share of the input's zero point, modulo 2^32
  union {
    FloatParameters floats;
    FixedParameters fixed;
    LateBiasParameters real;
  };
  std::int16_t offset[kColumns];  // float forms: 2 * offset + 1; natural order
};

// Parameters shared by all columns.
struct CommonParameters {
  std::uint8_t low = 0, high = 255;
  const std::uint8_t* lut = nullptr;
  int first_shift = 0;  // kLowPrecision, kReal
  std::int32_t narrow_low = 0, narrow_high = 0;
  std::int32_t rest_in_128ths = 128;  // kLowPrecision
  float factor = 1.0f;                // kReal
  bool has_first_stage = false;       // kReal: shift and limit before the factor
};

// Inputs of a tile: pixels[tap * rows + row] + offset is the first byte of a tap. Sums are written as [row][16] in panel
// order, without bias.
struct Functions {
  void (*multiply[kRows])(const std::uint8_t* const* pixels, std::ptrdiff_t taps, std::ptrdiff_t tap_bytes,
                          std::ptrdiff_t offset, const std::uint8_t* weights, std::int32_t* sums);

  // 16 channels from `offset` on, one weight per tap and channel; `taps` is even here, a multiple of four below.
  // Weights [tap / 2][half][8 channels][2 words], in panel order like everything else.
  void (*depthwise_words)(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums);
  // Weights [tap / 4][half][8 channels][4 bytes]. Null where the instruction set has no dot product of bytes.
  void (*depthwise_bytes)(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums);

  // Writes `columns` results of each row to outs[row] + offset. Not for kSums.
  void (*apply_epilogue)(PanelEpilogue kind, const std::int32_t* sums, int rows, const ColumnParameters& parameters,
                 const CommonParameters& common, std::uint8_t* const* outs, std::ptrdiff_t offset, int columns);

  // For kSums: adds the bias and puts the columns in their natural order, in place.
  void (*add_bias)(std::int32_t* sums, int rows, const ColumnParameters& parameters);

  // Unsigned bytes as 16-bit words.
  void (*widen)(const std::uint8_t* from, std::ptrdiff_t count, std::uint8_t* to);

  bool has_byte_dot;  // whether `multiply` takes bytes instead of words
};

const Functions& functions_avx2();
const Functions& functions_avxvnni_vex();
const Functions& functions_avxvnni_evex();

}  // namespace tpuconvert::panels
