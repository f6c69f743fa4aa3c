// Epilogues of panels for AArch64, for sums in the natural order of the columns.
#if defined(__aarch64__)
#include "int8/conv/panel_kernels_neon.h"

namespace tpuconvert::panels {
namespace {

// Parameters of the 16 columns in registers.
struct Columns {
  int32x4_t bias[4], multiplier[4], shift[4], half[4], sign_mask[4];
  int64x2_t half_wide[8];
  float32x4_t late_bias[4];
};

template <PanelEpilogue Kind>
PANELS_INLINED inline Columns load_columns(const ColumnParameters& parameters) {
  Columns c;
  for (int i = 0; i < 4; ++i) {
    c.bias[i] = vld1q_s32(parameters.bias + 4 * i);
    if constexpr (Kind == PanelEpilogue::kOneRounding || Kind == PanelEpilogue::kTwoRoundings) {
      c.multiplier[i] = vld1q_s32(parameters.fixed.multiplier + 4 * i);
      c.shift[i] = vnegq_s32(vld1q_s32(parameters.fixed.shift + 4 * i));
    }
    if constexpr (Kind == PanelEpilogue::kOneRounding) {
      c.half_wide[2 * i] = vld1q_s64(parameters.fixed.half_wide + 4 * i);
      c.half_wide[2 * i + 1] = vld1q_s64(parameters.fixed.half_wide + 4 * i + 2);
    }
    if constexpr (Kind == PanelEpilogue::kTwoRoundings) c.sign_mask[i] = vld1q_s32(parameters.fixed.sign_mask + 4 * i);
    if constexpr (Kind == PanelEpilogue::kReal) c.late_bias[i] = vld1q_f32(parameters.real.late_bias + 4 * i);
  }
  return c;
}

// (x * multiplier + 2^(r - 1)) >> r for 32 <= r <= 62: takes the upper halves of the products, then shifts by r - 32
// bits.
PANELS_INLINED inline int32x4_t one_rounding(int32x4_t x, const Columns& c, int i) {
  const int64x2_t low = vmlal_s32(c.half_wide[2 * i], vget_low_s32(x), vget_low_s32(c.multiplier[i]));
  const int64x2_t high = vmlal_high_s32(c.half_wide[2 * i + 1], x, c.multiplier[i]);
  return vshlq_s32(vuzp2q_s32(vreinterpretq_s32_s64(low), vreinterpretq_s32_s64(high)), c.shift[i]);
}

// Rounds half up by 31 bits, then half away from zero: half up of a value that is decreased by one if it is negative.
// plan_panel_epilogue has proved that no step overflows 32 bits.
PANELS_INLINED inline int32x4_t two_roundings(int32x4_t x, const Columns& c, int i) {
  const int32x4_t high = vqrdmulhq_s32(x, c.multiplier[i]);
  const int32x4_t negative = vandq_s32(vshrq_n_s32(high, 31), c.sign_mask[i]);
  return vrshlq_s32(vaddq_s32(high, negative), c.shift[i]);
}

// Rounds half up by first_shift bits and clamps to narrow_low..narrow_high. Shifts of at least 32 bits give 0.
PANELS_INLINED inline int32x4_t first_stage(int32x4_t x, const CommonParameters& common) {
  const int bits = common.first_shift < 64 ? common.first_shift : 64;
  if (bits > 0) x = vrshlq_s32(x, vdupq_n_s32(-bits));
  return vminq_s32(vmaxq_s32(x, vdupq_n_s32(common.narrow_low)), vdupq_n_s32(common.narrow_high));
}

PANELS_INLINED inline int32x4_t low_precision(int32x4_t x, const CommonParameters& common) {
  return vrshrq_n_s32(vmulq_n_s32(first_stage(x, common), common.rest_in_128ths), 7);
}

// The conversion rounds to nearest, ties away from zero, and saturates.
PANELS_INLINED inline int32x4_t float_scale(int32x4_t x, const Columns& c, const CommonParameters& common, int i) {
  if (common.has_first_stage) x = first_stage(x, common);
  const float32x4_t product = vmulq_f32(vcvtq_f32_s32(x), vdupq_n_f32(common.factor));
  return vcvtaq_s32_f32(vaddq_f32(product, c.late_bias[i]));
}

template <PanelEpilogue Kind>
PANELS_INLINED inline int32x4_t requantize(int32x4_t x, const Columns& c, const CommonParameters& common, int i) {
  if constexpr (Kind == PanelEpilogue::kOneRounding) {
    return one_rounding(x, c, i);
  } else if constexpr (Kind == PanelEpilogue::kTwoRoundings) {
    return two_roundings(x, c, i);
  } else if constexpr (Kind == PanelEpilogue::kLowPrecision) {
    return low_precision(x, common);
  } else {
    return float_scale(x, c, common, i);
  }
}

void store_columns(uint8x16_t stored, const std::uint8_t* lut, std::uint8_t* out, int columns) {
  std::uint8_t bytes[kColumns];
  vst1q_u8(bytes, stored);
  for (int column = 0; column < columns; ++column) out[column] = lut == nullptr ? bytes[column] : lut[bytes[column]];
}

// IsPlain: all columns are stored, without a lookup table.
template <PanelEpilogue Kind, bool IsPlain>
__attribute__((noinline)) void apply_rows(const std::int32_t* sums, int rows, const ColumnParameters& parameters, const CommonParameters& given,
                std::uint8_t* const* outs, std::ptrdiff_t offset, int columns) {
  const CommonParameters common = given;  // local copies, so that stores do not force reloads
  const Columns c = load_columns<Kind>(parameters);
  const int16x8_t offset0 = vld1q_s16(parameters.offset), offset1 = vld1q_s16(parameters.offset + 8);
  const uint8x16_t low = vdupq_n_u8(common.low), high = vdupq_n_u8(common.high);
  for (int row = 0; row < rows; ++row, sums += kColumns) {
    int32x4_t x[4];
    unrolled<4>([&](auto i) PANELS_INLINED {
      x[i] = requantize<Kind>(vaddq_s32(vld1q_s32(sums + 4 * i), c.bias[i]), c, common, i);
    });
    // Saturation is monotone, and a value that saturates to 16 bits is outside of 0..255 after the offset is added:
    // |offset| <= 8192.
    const int16x8_t words0 = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(x[0]), x[1]), offset0);
    const int16x8_t words1 = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(x[2]), x[3]), offset1);
    const uint8x16_t bytes = vqmovun_high_s16(vqmovun_s16(words0), words1);
    const uint8x16_t stored = vminq_u8(vmaxq_u8(bytes, low), high);
    if constexpr (IsPlain) {
      vst1q_u8(outs[row] + offset, stored);
    } else {
      store_columns(stored, common.lut, outs[row] + offset, columns);
    }
  }
}

template <PanelEpilogue Kind>
void apply_kind(const std::int32_t* sums, int rows, const ColumnParameters& parameters, const CommonParameters& common,
                std::uint8_t* const* outs, std::ptrdiff_t offset, int columns) {
  if (columns == kColumns && common.lut == nullptr) {
    apply_rows<Kind, true>(sums, rows, parameters, common, outs, offset, columns);
  } else {
    apply_rows<Kind, false>(sums, rows, parameters, common, outs, offset, columns);
  }
}

}  // namespace

void apply_epilogue_neon(PanelEpilogue kind, const std::int32_t* sums, int rows, const ColumnParameters& parameters,
                         const CommonParameters& common, std::uint8_t* const* outs, std::ptrdiff_t offset, int columns) {
  switch (kind) {
    case PanelEpilogue::kOneRounding:
      return apply_kind<PanelEpilogue::kOneRounding>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kTwoRoundings:
      return apply_kind<PanelEpilogue::kTwoRoundings>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kLowPrecision:
      return apply_kind<PanelEpilogue::kLowPrecision>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kReal:
      return apply_kind<PanelEpilogue::kReal>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kFloatRequant:
    case PanelEpilogue::kKinkedRequant:  // plan_panel_epilogue does not select these two on AArch64
    case PanelEpilogue::kSums:
      return;
  }
}

void add_bias_neon(std::int32_t* sums, int rows, const ColumnParameters& parameters) {
  for (int row = 0; row < rows; ++row, sums += kColumns)
    for (int i = 0; i < kColumns; i += 4) vst1q_s32(sums + i, vaddq_s32(vld1q_s32(sums + i), vld1q_s32(parameters.bias + i)));
}

void widen_neon(const std::uint8_t* from, std::ptrdiff_t count, std::uint8_t* to) {
  std::ptrdiff_t i = 0;
  for (; i + 8 <= count; i += 8) vst1q_u8(to + 2 * i, vreinterpretq_u8_u16(vmovl_u8(vld1_u8(from + i))));
  for (; i < count; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = 0;
  }
}

}  // namespace tpuconvert::panels
#endif
