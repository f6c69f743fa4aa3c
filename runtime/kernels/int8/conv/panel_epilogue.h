// The choice of a vector form for an epilogue, and its parameters.
#pragma once

#include <vector>

#include "int8/conv/conv.h"
#include "int8/conv/panel_kernels.h"

namespace tpuconvert::panels {

struct PanelEpiloguePlan {
  PanelEpilogue kind = PanelEpilogue::kSums;
  CommonParameters common;
  std::vector<ColumnParameters> panels;  // bias is left to the caller
};

// Where the channels of a panel are: `columns` of them from `channel` on.
struct PanelChannels {
  int channel;
  int columns;
};

// The fastest form that is exact for the sums that can occur.
PanelEpiloguePlan plan_panel_epilogue(const ConvInt8Spec& spec, const Epilogue& epilogue, const std::vector<PanelChannels>& panels);

}  // namespace tpuconvert::panels
