// Interface between the baseline part of the convolution by panels and its kernels per instruction set: 256-bit vectors
// of x86-64, and AArch64.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline. Weights are packed in panels of 16 output channels, as signed bytes (for byte dot products) or as
// 16-bit words; byte_place() and word_place() give their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"

namespace tpuconvert::panels {

// Output positions of a tile. x86-64: 12 accumulators of 8 columns leave 4 registers. AArch64: 24 accumulators of 4
// columns leave 8 registers.
constexpr int kRows = 6;
constexpr int kColumns = 16;       // output channels of a panel
constexpr int kStepBytes = 64;     // bytes of packed weights per 4 bytes of depth

#if defined(__aarch64__)
constexpr bool kIsAarch64 = true;
#else
constexpr bool kIsAarch64 = false;
#endif

// Column that is stored in lane `lane` of half `half` of a panel. On x86-64, a half is a register, and in this order
// _mm256_packs_epi32 of the two registers restores the natural order of the channels. AArch64 has the natural order.
constexpr int column_of(int half, int lane) {
  return kIsAarch64 ? half * 8 + lane : lane / 4 * 8 + half * 4 + lane % 4;
}

// Offset in bytes of a packed weight, which belongs to lane `place` = half * 8 + lane. A column has `unit` adjacent
// bytes of depth. Words are in pairs of depth for vpmaddwd; AArch64 multiplies vectors of columns by one input.
constexpr std::ptrdiff_t byte_place(std::ptrdiff_t depth, int place, int unit) {
  return depth / unit * unit * kColumns + std::ptrdiff_t{place} * unit + depth % unit;
}
constexpr std::ptrdiff_t word_place(std::ptrdiff_t depth, int place) {
  return kIsAarch64 ? depth * 2 * kColumns + place * 2 : depth / 2 * kStepBytes + place * 4 + depth % 2 * 2;
}

// Index of FixedParameters::half_wide: even lanes before odd ones on x86-64, which multiplies them separately.
constexpr int wide_place(int half, int lane) { return half * 8 + (kIsAarch64 ? lane : lane % 2 * 4 + lane / 2); }

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
  std::int64_t half_wide[kColumns];  // kOneRounding: added to the products, see wide_place()
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
  // and a multiple of four for bytes. Weights are as in a panel with taps as depth; bytes have the unit 4.
  void (*depthwise_words)(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums);
  // The same with bytes. Null if the instruction set has no byte dot product.
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
  int byte_unit = 4;  // depth of a dot product of bytes; a tap is padded to a multiple of it
  // Subtracted from the input bytes by kernels that multiply signed bytes only.
  int byte_offset = 0;
};

const Functions& functions_avx2();
const Functions& functions_avxvnni_vex();
const Functions& functions_avxvnni_evex();
const Functions& functions_neon();
const Functions& functions_dotprod();
const Functions& functions_i8mm();

// The kernels of an instruction set other than kScalar. Those of kAvxVnni are in the encoding that this processor has.
const Functions& functions_of(Isa isa);

}  // namespace tpuconvert::panels
