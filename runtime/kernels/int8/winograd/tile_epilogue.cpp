// Epilogue of the Winograd convolution for AVX512-VNNI, with the float requantizations of the register tiles.
#if defined(__x86_64__)

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/aligned.h"
#include "int8/epilogue/panel_requant.h"
#include "int8/epilogue/residual.h"
#include "int8/epilogue/subnormal_requant.h"
#include "int8/winograd/finish.h"
#include "int8/winograd/winograd_panels.h"

namespace tpuconvert::winograd {
namespace {

using avx512::kLanes;
using avx512::LaneParameters;
using avx512::TileArguments;
using avx512::TileEpilogue;

class TileRows final : public PanelEpilogue {
 public:
  TileRows(const ConvInt8Spec& spec, const std::vector<Panel>& panels, const std::vector<ChannelSums>& sums)
      : epilogue_(spec.epilogue, spec.geometry.out_channels, Isa::kAvx512Vnni), panels_(panels) {
    std::size_t groups = 0;
    for (const Panel& panel : panels_) {
      starts_.push_back(groups);
      groups += static_cast<std::size_t>(panel.vectors);
    }
    parameters_ = AlignedBytes::part(groups * sizeof(LaneParameters));
    biases_ = AlignedBytes::part(groups * kLanes * sizeof(std::int32_t));
    for (std::size_t i = 0; i < panels_.size(); ++i) kinds_.push_back(requant_panel(spec, sums, i));
    if (spec.residual && std::all_of(kinds_.begin(), kinds_.end(), [](TileEpilogue kind) {
          return avx512::finish_kernel(kind, kLanes / 4, true) != nullptr;
        }))
      residual_.emplace(*spec.residual, spec.geometry.out_channels, Isa::kAvx512Vnni);
    if (residual_)
      for (const Panel& panel : panels_) residual_panels_.push_back(residual_->add_panel(panel.first, panel.columns, false));
    for (std::size_t i = 0; i < panels_.size(); ++i) arguments_.push_back(arguments_of(i));
  }

  int column_of(std::size_t panel, int lane) const override {
    return kinds_[panel] == TileEpilogue::kSums ? lane : avx512::lane_of(lane, panels_[panel].vectors);
  }
  const std::int32_t* biases(std::size_t panel) const override {
    return biases_.as<std::int32_t>() + starts_[panel] * kLanes;
  }
  bool adds_residual() const override { return residual_.has_value(); }

  void run(std::size_t index, const std::int32_t* sums, int rows, std::uint8_t* const* outputs,
           const std::uint8_t* const* others) const override {
    const Panel& panel = panels_[index];
    if (kinds_[index] == TileEpilogue::kSums) {
      const std::size_t offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
      epilogue_.apply_rows({sums, panel.vectors * kLanes, rows, outputs, offset}, panel.first, panel.columns);
      return;
    }
    const avx512::WithSubnormals mode;
    TileArguments arguments = arguments_[index];
    arguments.sums = const_cast<std::int32_t*>(sums);
    arguments.outputs = outputs;
    arguments.residual.others = others;
    avx512::finish_kernel(kinds_[index], panel.vectors, residual_.has_value())(arguments, rows);
  }

  std::size_t bytes() const override {
    return parameters_.size() + biases_.size() + (residual_ ? residual_->bytes() : 0);
  }

 private:
  LaneParameters* lanes_of(std::size_t panel) { return parameters_.as<LaneParameters>() + starts_[panel]; }

  // Selects the requantization of a panel. Writes its parameters and biases.
  TileEpilogue requant_panel(const ConvInt8Spec& spec, const std::vector<ChannelSums>& sums, std::size_t index) {
    const Panel& panel = panels_[index];
    const int farthest_input = std::max(spec.input_zero, 255 - spec.input_zero);
    const auto bias_of = [&](int column) {
      const auto channel = static_cast<std::size_t>(panel.first + column);
      return spec.bias.empty() ? 0 : std::int64_t{spec.bias[channel]};
    };
    const auto write = [&](LaneParameters* lanes, bool is_in_order) {
      avx512::PanelRequant requant(epilogue_);
      for (int column = 0; column < panel.columns; ++column) {
        const int lane = is_in_order ? column : avx512::lane_of(column, panel.vectors);
        const ChannelSums& channel = sums[static_cast<std::size_t>(panel.first + column)];
        // Wraps modulo 2^32, like the sums.
        lanes[lane / kLanes].bias[lane % kLanes] =
            static_cast<std::int32_t>(bias_of(column) - spec.input_zero * channel.sum);
        requant.add(panel.first + column, lane, channel.magnitude * farthest_input + std::llabs(bias_of(column)));
      }
      return requant.write(lanes);
    };
    LaneParameters* lanes = lanes_of(index);
    const TileEpilogue kind = write(lanes, false);
    if (kind == TileEpilogue::kSums) write(lanes, true);
    auto* biases = biases_.as<std::int32_t>() + starts_[index] * kLanes;
    for (int lane = 0; lane < panel.vectors * kLanes; ++lane) biases[lane] = lanes[lane / kLanes].bias[lane % kLanes];
    return kind;
  }

  TileArguments arguments_of(std::size_t index) {
    const Panel& panel = panels_[index];
    TileArguments arguments{};
    arguments.parameters = lanes_of(index);
    arguments.output_offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
    arguments.mask = ~std::uint64_t{0} >> (64 - panel.columns);
    arguments.lut = epilogue_.spec().lut.empty() ? nullptr : epilogue_.spec().lut.data();
    arguments.offset = epilogue_.offset(panel.first);
    arguments.low = static_cast<int>(epilogue_.spec().low);
    arguments.high = static_cast<int>(epilogue_.spec().high);
    if (residual_) {
      const Residual::Panel& parameters = residual_panels_[index];
      arguments.residual = {residual_->factors(parameters), residual_->offsets(parameters), nullptr, residual_->shift(),
                            residual_->low(), residual_->high(), false};
    }
    return arguments;
  }

  Epilogue epilogue_;
  std::vector<Panel> panels_;
  std::vector<std::size_t> starts_;  // [panel], in groups of kLanes lanes
  AlignedBytes parameters_, biases_;
  std::vector<TileEpilogue> kinds_;
  std::optional<Residual> residual_;
  std::vector<Residual::Panel> residual_panels_;
  std::vector<TileArguments> arguments_;
};

}  // namespace

std::unique_ptr<PanelEpilogue> make_tile_epilogue(const ConvInt8Spec& spec, const std::vector<Panel>& panels,
                                                  const std::vector<ChannelSums>& sums) {
  return std::make_unique<TileRows>(spec, panels, sums);
}

}  // namespace tpuconvert::winograd

#endif
