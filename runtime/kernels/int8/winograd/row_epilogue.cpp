// Epilogue of the Winograd convolution by rows of sums.
#include <algorithm>

#include "int8/winograd/winograd_panels.h"

namespace tpuconvert::winograd {
namespace {

class RowEpilogue final : public PanelEpilogue {
 public:
  RowEpilogue(const ConvInt8Spec& spec, const std::vector<Panel>& panels, int lanes, const std::vector<ChannelSums>& sums,
              Isa isa)
      : epilogue_(spec.epilogue, spec.geometry.out_channels, isa), panels_(panels), lanes_(lanes) {
    for (const Panel& panel : panels_) {
      starts_.push_back(biases_.size());
      biases_.resize(biases_.size() + static_cast<std::size_t>(panel.vectors * lanes));
      for (int column = 0; column < panel.columns; ++column) {
        const auto channel = static_cast<std::size_t>(panel.first + column);
        const std::int64_t bias = spec.bias.empty() ? 0 : spec.bias[channel];
        // Wraps modulo 2^32, like the sums.
        biases_[starts_.back() + static_cast<std::size_t>(column)] =
            static_cast<std::int32_t>(bias - spec.input_zero * sums[channel].sum);
      }
    }
  }

  int column_of(std::size_t, int lane) const override { return lane; }
  const std::int32_t* biases(std::size_t panel) const override { return biases_.data() + starts_[panel]; }

  void run(std::size_t index, const std::int32_t* sums, int rows, std::uint8_t* const* outputs,
           const std::uint8_t* const*) const override {
    const Panel& panel = panels_[index];
    const std::size_t offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
    epilogue_.apply_rows({sums, panel.vectors * lanes_, rows, outputs, offset}, panel.first, panel.columns);
  }

  std::size_t bytes() const override { return biases_.size() * sizeof(std::int32_t); }

 private:
  Epilogue epilogue_;
  std::vector<Panel> panels_;
  int lanes_;
  std::vector<std::size_t> starts_;  // [panel], the first bias
  std::vector<std::int32_t> biases_;
};

}  // namespace

std::unique_ptr<PanelEpilogue> make_row_epilogue(const ConvInt8Spec& spec, const std::vector<Panel>& panels, int lanes,
                                                 const std::vector<ChannelSums>& sums, Isa isa) {
  return std::make_unique<RowEpilogue>(spec, panels, lanes, sums, isa);
}

}  // namespace tpuconvert::winograd
