// Selection of an epilogue that is exact for all channels of a panel, and its parameters.
#pragma once

#include <cstdint>

#include "int8/epilogue/float_requant.h"
#include "int8/epilogue/subnormal_requant.h"
#include "int8/tile/tile.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert::avx512 {

constexpr int kMaxColumns = 4 * kLanes;  // maximum number of columns of a panel

class PanelRequant {
 public:
  explicit PanelRequant(const Epilogue& epilogue) : epilogue_(epilogue) {}

  // Adds a channel that is computed by `lane` and whose sums have a magnitude of at most `largest`.
  void add(int channel, int lane, std::int64_t largest);

  // Writes the parameters of the epilogue and returns it. The biases must be set before; they are only adjusted.
  TileEpilogue write(LaneParameters* lanes) const;

 private:
  bool write_subnormal(LaneParameters* lanes) const;

  const Epilogue& epilogue_;
  TileEpilogue epilogue_kind_ = TileEpilogue::kOneFactor;  // the most expensive one that a channel needs
  RequantCandidates candidates_[kMaxColumns];         // [lane]
  OneFactorChannel one_factor_[kMaxColumns];
  int lanes_ = 0;
  int offset_ = 0;
  bool has_different_offsets_ = false;
};

}  // namespace tpuconvert::avx512
