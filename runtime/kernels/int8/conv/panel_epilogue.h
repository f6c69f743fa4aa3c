// Choice of the vectorized epilogue, and its parameters.
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

// The channels of a panel: `columns` of them from `channel` on.
struct PanelChannels {
  int channel;
  int columns;
};

// The fastest epilogue that is exact for all possible accumulators.
PanelEpiloguePlan plan_panel_epilogue(const ConvInt8Spec& spec, const Epilogue& epilogue, const std::vector<PanelChannels>& panels);

}  // namespace tpuconvert::panels
