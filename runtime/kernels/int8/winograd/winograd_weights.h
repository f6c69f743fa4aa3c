// Transformed weights of the Winograd convolution, U = G g G^T, in panels.
#pragma once

#include <vector>

#include "core/aligned.h"
#include "core/isa.h"
#include "int8/conv/conv.h"
#include "int8/winograd/winograd_kernels.h"
#include "int8/winograd/winograd_panels.h"

namespace tpuconvert::winograd {

const Functions& functions_of(Isa isa);

// Most tiles of a block, whose transformed patches and products stay in the second-level cache.
inline int block_tiles(const Functions& functions) { return 28 / functions.rows * functions.rows; }

inline int pairs_of(const ConvGeometry& g) { return (g.in_channels + 1) / 2; }

std::vector<Panel> panels_of(const ConvGeometry& geometry, const Functions& functions);

// Bytes of the packed weights.
std::size_t weight_bytes(const ConvGeometry& geometry, const Functions& functions);

// Sums of the weights minus zero points, by output channel.
std::vector<ChannelSums> channel_sums(const ConvInt8Spec& spec);

// Weights [panel][position][pair of channels][lane][2], or [panel][position][channel][lane] for the scalar kernel.
AlignedBytes pack_weights(const ConvInt8Spec& spec, const Functions& functions, const std::vector<Panel>& panels,
                          const PanelEpilogue& epilogue);

}  // namespace tpuconvert::winograd
