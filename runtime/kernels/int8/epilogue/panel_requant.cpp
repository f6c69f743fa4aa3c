#if defined(__x86_64__)

#include "int8/epilogue/panel_requant.h"

#include <algorithm>

#include "core/isa.h"

namespace tpuconvert::avx512 {

void PanelRequant::add(int channel, int lane, std::int64_t largest) {
  const int offset = epilogue_.offset(channel);
  if (lanes_ == 0) offset_ = offset;
  has_different_offsets_ |= offset != offset_;
  candidates_[lane] = find_requant(epilogue_, channel, largest);
  epilogue_kind_ = std::max(epilogue_kind_, candidates_[lane].cheapest);
  one_factor_[lane] = {candidates_[lane].factor, offset, largest};
  lanes_ = std::max(lanes_, lane + 1);
}

TileEpilogue PanelRequant::write(LaneParameters* lanes) const {
  // kOneFactor and kWords have an offset per channel, the other epilogues have one per panel.
  const bool is_one = epilogue_kind_ == TileEpilogue::kOneFactor || epilogue_kind_ == TileEpilogue::kWords;
  if (epilogue_kind_ == TileEpilogue::kSums || (!is_one && has_different_offsets_)) return TileEpilogue::kSums;
  if (epilogue_kind_ == TileEpilogue::kOneFactor && has_quick_subnormals() && write_subnormal(lanes)) return TileEpilogue::kSubnormal;
  for (int i = 0; i < lanes_; ++i) {
    LaneParameters& to = lanes[i / kLanes];
    const RequantCandidates& candidates = candidates_[i];
    to.factor[i % kLanes] = is_one ? candidates.factor : candidates.kinked.high_part;
    to.second[i % kLanes] = is_one ? candidates.addend : candidates.kinked.low_part;
    to.kink[i % kLanes] = candidates.kinked.kink;
  }
  return epilogue_kind_;
}

// Writes the parameters of all lanes, or of none if a lane fails.
bool PanelRequant::write_subnormal(LaneParameters* lanes) const {
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
