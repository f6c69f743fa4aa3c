#if defined(__x86_64__)

#include "int8/avx512_panel_forms.h"

#include <algorithm>

#include "core/isa.h"

namespace tpuconvert::avx512 {

void PanelForms::add(int channel, int lane, std::int64_t largest) {
  const int offset = epilogue_.offset(channel);
  if (lanes_ == 0) offset_ = offset;
  do_offsets_differ_ |= offset != offset_;
  forms_[lane] = prove_forms(epilogue_, channel, largest);
  form_ = std::max(form_, forms_[lane].cheapest);
  one_factor_[lane] = {forms_[lane].factor, offset, largest};
  lanes_ = std::max(lanes_, lane + 1);
}

TileForm PanelForms::write(LaneParameters* lanes) const {
  // Forms with one factor have offsets of their own in every channel; the others have one for all.
  if (form_ == TileForm::kSums || (form_ != TileForm::kOneFactor && do_offsets_differ_)) return TileForm::kSums;
  if (form_ == TileForm::kOneFactor && has_quick_subnormals() && write_subnormal(lanes)) return TileForm::kSubnormal;
  for (int i = 0; i < lanes_; ++i) {
    LaneParameters& to = lanes[i / kLanes];
    const FloatForms& forms = forms_[i];
    const bool is_one = form_ == TileForm::kOneFactor;
    to.factor[i % kLanes] = is_one ? forms.factor : forms.kinked.high_part;
    to.second[i % kLanes] = is_one ? forms.addend : forms.kinked.low_part;
    to.kink[i % kLanes] = forms.kinked.kink;
  }
  return form_;
}

// All lanes or none.
bool PanelForms::write_subnormal(LaneParameters* lanes) const {
  const int low = static_cast<int>(epilogue_.spec().low), high = static_cast<int>(epilogue_.spec().high);
  const int groups = (lanes_ + kLanes - 1) / kLanes;
  LaneParameters made[kMaxColumns / kLanes];
  std::copy(lanes, lanes + groups, made);
  for (int i = 0; i < groups; ++i)
    if (!make_subnormal(one_factor_ + i * kLanes, low, high, made + i)) return false;
  std::copy(made, made + groups, lanes);
  return true;
}

}  // namespace tpuconvert::avx512

#endif
