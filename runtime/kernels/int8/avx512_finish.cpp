#include "int8/avx512_finish.h"

namespace tpuconvert::avx512 {

Finish::Finish(const Epilogue& epilogue, const std::vector<Panel>& panels) : epilogue_(epilogue), panels_(panels) {}

void Finish::run(int panel, int rows, const std::int32_t* sums, std::uint8_t* const* outputs) const {
  const Panel& p = panels_[static_cast<std::size_t>(panel)];
  for (int row = 0; row < rows; ++row)
    epilogue_.apply_row(sums + row * p.accumulators() * kLanes, p.first, p.columns,
                        outputs[row] + static_cast<std::size_t>(p.first) * static_cast<std::size_t>(epilogue_.bytes()));
}

}  // namespace tpuconvert::avx512
