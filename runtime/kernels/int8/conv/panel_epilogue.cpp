#include "int8/conv/panel_epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace tpuconvert::panels {

namespace {

using Requants = std::vector<KinkedFloatRequant>;

bool prove_all(const Epilogue& epilogue, const std::vector<std::int64_t>& largest, Requants* requants) {
  for (int channel = 0; channel < epilogue.channels(); ++channel) {
    KinkedFloatRequant requant;
    if (!prove_kinked_float_requant(epilogue, channel, largest[static_cast<std::size_t>(channel)], &requant)) return false;
    requants->push_back(requant);
  }
  return true;
}

// Returns true if the epilogue equals sum * multiplier * 2^-shift with a 32-bit multiplier and 32 <= shift <= 62.
bool one_rounding_of(const Epilogue& epilogue, int channel, std::int64_t* multiplier, int* shift) {
  *multiplier = epilogue.multiplier(channel);
  *shift = -epilogue.shift(channel);
  if (*shift < 0 || *shift > 62) return false;
  if (*shift < 32) {
    *multiplier *= std::int64_t{1} << (32 - *shift);  // at least -2^63
    *shift = 32;
  }
  return *multiplier >= std::numeric_limits<std::int32_t>::min() &&
         *multiplier <= std::numeric_limits<std::int32_t>::max();
}

// True if products are below 2^61 and all values after the first rounding are below 2^31.
bool is_two_roundings_exact(const Epilogue& epilogue, int channel, std::int64_t largest) {
  const int shift = -epilogue.shift(channel);
  return shift >= 0 && shift <= 31 && largest < (std::int64_t{1} << 30) &&
         largest * std::abs(std::int64_t{epilogue.multiplier(channel)}) < (std::int64_t{1} << 61);
}

bool is_low_precision_exact(const Epilogue& epilogue) {
  const EpilogueSpec& spec = epilogue.spec();
  const std::int64_t widest = std::max(std::abs(spec.narrow_low), std::abs(spec.narrow_high));
  return epilogue.rest_in_128ths() < (1 << 24) &&
         widest * epilogue.rest_in_128ths() + 64 <= std::numeric_limits<std::int32_t>::max();
}

bool is_float_exact(const EpilogueSpec& spec) {
  // With a subnormal scale, the product would be rounded before the multiplication by the power of two.
  return std::isnormal(spec.scale) &&
         std::all_of(spec.late_bias.begin(), spec.late_bias.end(), [](float bias) { return std::isfinite(bias); });
}

PanelEpilogue exact_epilogue(const Epilogue& epilogue, const std::vector<std::int64_t>& largest) {
  const EpilogueSpec& spec = epilogue.spec();
  bool is_exact = false;
  switch (spec.rescale) {
    case Rescale::kNone:
      return PanelEpilogue::kSums;
    case Rescale::kOneRounding:
      is_exact = spec.rounding == Rounding::kHalfUp;
      for (int channel = 0; is_exact && channel < epilogue.channels(); ++channel) {
        std::int64_t multiplier;
        int shift;
        is_exact = one_rounding_of(epilogue, channel, &multiplier, &shift);
      }
      return is_exact ? PanelEpilogue::kOneRounding : PanelEpilogue::kSums;
    case Rescale::kTwoRoundings:
      is_exact = true;
      for (int channel = 0; is_exact && channel < epilogue.channels(); ++channel)
        is_exact = is_two_roundings_exact(epilogue, channel, largest[static_cast<std::size_t>(channel)]);
      return is_exact ? PanelEpilogue::kTwoRoundings : PanelEpilogue::kSums;
    case Rescale::kLowPrecision:
      return is_low_precision_exact(epilogue) ? PanelEpilogue::kLowPrecision : PanelEpilogue::kSums;
    case Rescale::kHighSymmetric:
    case Rescale::kFloat:
      return is_float_exact(spec) ? PanelEpilogue::kReal : PanelEpilogue::kSums;
  }
  return PanelEpilogue::kSums;
}

bool fits_vectors(const Epilogue& epilogue) {
  if (epilogue.bytes() != 1) return false;
  const std::vector<std::int32_t>& offsets = epilogue.spec().offset;
  return std::all_of(offsets.begin(), offsets.end(), [](int offset) { return offset >= -8192 && offset <= 8192; });
}

bool is_float(PanelEpilogue kind) { return kind == PanelEpilogue::kFloatRequant || kind == PanelEpilogue::kKinkedRequant; }

// Sets the parameters of one column. `half` and `lane` are as in column_of().
void set_column(const Epilogue& epilogue, PanelEpilogue kind, const Requants& requants, int channel, int half, int lane,
                ColumnParameters* parameters) {
  const int at = half * 8 + lane;
  switch (kind) {
    case PanelEpilogue::kFloatRequant:
    case PanelEpilogue::kKinkedRequant: {
      const KinkedFloatRequant& proved = requants[static_cast<std::size_t>(channel)];
      parameters->floats.high_part[at] = proved.high_part;
      parameters->floats.low_part[at] = proved.low_part;
      parameters->floats.kink[at] = proved.kink;
      break;
    }
    case PanelEpilogue::kOneRounding: {
      std::int64_t multiplier;
      int shift;
      one_rounding_of(epilogue, channel, &multiplier, &shift);
      parameters->fixed.multiplier[at] = static_cast<std::int32_t>(multiplier);
      parameters->fixed.shift[at] = shift - 32;
      parameters->fixed.half_wide[wide_place(half, lane)] = std::int64_t{1} << (shift - 1);
      break;
    }
    case PanelEpilogue::kTwoRoundings: {
      const int shift = -epilogue.shift(channel);
      parameters->fixed.multiplier[at] = epilogue.multiplier(channel);
      parameters->fixed.shift[at] = shift;
      parameters->fixed.half[at] = static_cast<std::int32_t>((std::int64_t{1} << shift) >> 1);
      parameters->fixed.sign_mask[at] = shift > 0 ? -1 : 0;
      break;
    }
    case PanelEpilogue::kReal:
      parameters->real.late_bias[at] = epilogue.late_bias(channel);
      break;
    case PanelEpilogue::kLowPrecision:
    case PanelEpilogue::kSums:
      break;
  }
}

CommonParameters common_of(const Epilogue& epilogue) {
  const EpilogueSpec& spec = epilogue.spec();
  CommonParameters common;
  common.low = static_cast<std::uint8_t>(spec.low);
  common.high = static_cast<std::uint8_t>(spec.high);
  common.lut = spec.lut.empty() ? nullptr : spec.lut.data();
  common.first_shift = epilogue.first_shift();
  common.rest_in_128ths = static_cast<std::int32_t>(std::min<std::int64_t>(epilogue.rest_in_128ths(), 1 << 30));
  common.narrow_low = spec.narrow_low;
  common.narrow_high = spec.narrow_high;
  common.factor = spec.scale;
  if (spec.rescale == Rescale::kHighSymmetric) {
    common.has_first_stage = true;
    common.narrow_low = -32768;
    common.narrow_high = 32767;
    common.factor = static_cast<float>(std::ldexp(static_cast<double>(spec.scale), epilogue.first_shift()));
  }
  return common;
}

}  // namespace

PanelEpiloguePlan plan_panel_epilogue(const ConvInt8Spec& spec, const Epilogue& epilogue, const std::vector<PanelChannels>& panels) {
  PanelEpiloguePlan plan;
  plan.common = common_of(epilogue);
  plan.panels.resize(panels.size());
  Requants requants;
  if (fits_vectors(epilogue) && epilogue.spec().rescale != Rescale::kNone) {
    std::vector<std::int64_t> largest;
    for (int channel = 0; channel < epilogue.channels(); ++channel) largest.push_back(largest_sum(spec, channel));
    // On AArch64, an exact multiplication and shift takes as many instructions as the float form.
    if (!kIsAarch64 && prove_all(epilogue, largest, &requants)) {
      const bool has_kink = std::any_of(requants.begin(), requants.end(), [](const auto& requant) { return requant.kink != 0.0f; });
      plan.kind = has_kink ? PanelEpilogue::kKinkedRequant : PanelEpilogue::kFloatRequant;
    } else {
      plan.kind = exact_epilogue(epilogue, largest);
    }
  }
  for (std::size_t panel = 0; panel < panels.size(); ++panel) {
    ColumnParameters& parameters = plan.panels[panel];
    parameters = {};
    for (int half = 0; half < 2; ++half) {
      for (int lane = 0; lane < 8; ++lane) {
        const int column = column_of(half, lane);
        if (column >= panels[panel].columns) continue;
        const int channel = panels[panel].channel + column;
        set_column(epilogue, plan.kind, requants, channel, half, lane, &parameters);
        const int offset = epilogue.offset(channel);
        parameters.offset[column] = static_cast<std::int16_t>(is_float(plan.kind) ? 2 * offset + 1 : offset);
      }
    }
  }
  return plan;
}

}  // namespace tpuconvert::panels
