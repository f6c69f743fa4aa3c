// Panels of the Winograd convolution: adjacent output channels that are computed together, and their epilogue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "int8/conv/conv.h"

namespace tpuconvert::winograd {

struct Panel {
  int first, columns;   // output channels
  int vectors;          // registers of columns
  std::size_t weights;  // elements before the weights of the first position
};

// Sums of the weights of one output channel.
struct ChannelSums {
  std::int64_t sum;
  std::int64_t magnitude;
};

// The epilogue of all panels.
class PanelEpilogue {
 public:
  virtual ~PanelEpilogue() = default;
  // The column of a panel that the lane computes; it is a permutation of all lanes of the panel.
  virtual int column_of(std::size_t panel, int lane) const = 0;
  // Values that are added to the sums, by lane.
  virtual const std::int32_t* biases(std::size_t panel) const = 0;
  // Stores the results of up to kResults pixels. `sums` has one row of all lanes per pixel, `others` is the second
  // operand of the residual add. Addresses are those of the first channel of the tensor.
  virtual void run(std::size_t panel, const std::int32_t* sums, int rows, std::uint8_t* const* outputs,
                   const std::uint8_t* const* others) const = 0;
  virtual bool adds_residual() const { return false; }
  virtual std::size_t bytes() const = 0;
};

std::unique_ptr<PanelEpilogue> make_row_epilogue(const ConvInt8Spec& spec, const std::vector<Panel>& panels, int lanes,
                                                 const std::vector<ChannelSums>& sums, Isa isa);
// For AVX512-VNNI: requantization in registers where it is proved, with the residual add.
std::unique_ptr<PanelEpilogue> make_tile_epilogue(const ConvInt8Spec& spec, const std::vector<Panel>& panels,
                                                  const std::vector<ChannelSums>& sums);

}  // namespace tpuconvert::winograd
