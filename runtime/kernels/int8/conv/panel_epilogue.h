// Selection of the vectorized epilogue of a panel, and its parameters.
#pragma once

#include <vector>

#include "int8/conv/conv.h"
#include "int8/conv/panel_kernels.h"

namespace tpuconvert::panels {

struct PanelEpiloguePlan {
  PanelEpilogue kind = PanelEpilogue::kSums;
  CommonParameters common;
  std::vector<ColumnParameters> panels;  // the caller sets the biases
};

// Channels channel..channel+columns-1 of a panel.
struct PanelChannels {
  int channel;
  int columns;
};

// The fastest epilogue that is exact for all possible accumulators.
PanelEpiloguePlan plan_panel_epilogue(const ConvInt8Spec& spec, const Epilogue& epilogue, const std::vector<PanelChannels>& panels);

}  // namespace tpuconvert::panels
