// The form that suits all channels of a panel, and its parameters.
#pragma once

#include <cstdint>

#include "int8/avx512_float_form.h"
#include "int8/avx512_subnormal_form.h"
#include "int8/avx512_tile.h"
#include "int8/epilogue.h"

namespace tpuconvert::avx512 {

constexpr int kMaxColumns = 4 * kLanes;  // of a panel

class PanelForms {
 public:
  explicit PanelForms(const Epilogue& epilogue) : epilogue_(epilogue) {}

  // The magnitude of the sums of `channel`, which is computed by `lane`, is at most `largest`.
  void add(int channel, int lane, std::int64_t largest);

  // Writes all parameters but the biases, to which it adds what the form needs.
  TileForm write(LaneParameters* lanes) const;

 private:
  bool write_subnormal(LaneParameters* lanes) const;

  const Epilogue& epilogue_;
  TileForm form_ = TileForm::kOneFactor;  // the dearest one that a channel needs
  FloatForms forms_[kMaxColumns];         // of lanes
  OneFactorChannel one_factor_[kMaxColumns];
  int lanes_ = 0;
  int offset_ = 0;
  bool do_offsets_differ_ = false;
};

}  // namespace tpuconvert::avx512
