// From the sums of a register tile to stored results, for epilogues that are not computed inside the tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "int8/avx512_packing.h"
#include "int8/epilogue.h"

namespace tpuconvert::avx512 {

class Finish {
 public:
  Finish(const Epilogue& epilogue, const std::vector<Panel>& panels);

  // sums: [row][accumulator of the panel][kLanes]; outputs: pixels of the rows.
  void run(int panel, int rows, const std::int32_t* sums, std::uint8_t* const* outputs) const;

  std::size_t bytes() const { return parameters_.size(); }

 private:
  const Epilogue& epilogue_;
  const std::vector<Panel>& panels_;
  AlignedBytes parameters_;
};

}  // namespace tpuconvert::avx512
