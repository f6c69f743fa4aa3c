// The choice of a vector form for an epilogue, and its parameters.
#pragma once

#include <vector>

#include "int8/conv_int8.h"
#include "int8/panels.h"

namespace tpuconvert::panels {

struct FinishPlan {
  Finish form = Finish::kSums;
  CommonParameters common;
  std::vector<ColumnParameters> panels;  // bias is left to the caller
};

// Where the channels of a panel are: `columns` of them from `channel` on.
struct PanelChannels {
  int channel;
  int columns;
};

// The fastest form that is exact for the sums that can occur.
FinishPlan plan_finish(const ConvInt8Spec& spec, const Epilogue& epilogue, const std::vector<PanelChannels>& panels);

}  // namespace tpuconvert::panels
