#include "float32/recurrent/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "core/aligned.h"
#include "core/bind_spec.h"
#include "core/extents.h"
#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

const RecurrentKernels& kernels_of(Isa isa, bool is_precise) {
  if (is_precise)
    return TPU_SELECT(isa, kRecurrentScalarPrecise, kRecurrentAvx2Precise, kRecurrentAvx512Precise,
                      kRecurrentNeonPrecise);
  return TPU_SELECT(isa, kRecurrentScalar, kRecurrentAvx2, kRecurrentAvx512, kRecurrentNeon);
}

std::size_t bytes_of(std::int64_t rows, std::int64_t columns, std::int64_t count = 1) {
  return static_cast<std::size_t>(product_of({rows, columns, count, kFloat}));
}

class RecurrentStep final : public Step {
 public:
  RecurrentStep(const RecurrentFloatSpec& spec, Isa isa)
      : task_(spec), kernels_(kernels_of(isa, spec.is_precise)), inputs_(spec.inputs), y_(spec.y),
        last_hidden_(spec.last_hidden), hidden_(spec.hidden), cell_(spec.cell), lengths_(spec.lengths),
        continues_(spec.continues), last_cell_(spec.last_cell), cells_(spec.cells), name_(spec.operator_name), gates_(gates_of(spec.kind)) {
    if (spec.steps < 1 || spec.batch < 1 || spec.units < 1) throw std::invalid_argument("recurrent: an extent is below 1");
    const std::size_t width = static_cast<std::size_t>(product_of({spec.units, gates_}));
    if (spec.weights.size() != static_cast<std::size_t>(product_of({spec.units, spec.units, gates_})))
      throw std::invalid_argument("recurrent: the weights do not fit");
    for (const std::vector<float>* bias : {&spec.input_bias, &spec.recurrent_bias})
      if (!bias->empty() && bias->size() != width) throw std::invalid_argument("recurrent: a bias does not fit");
    if (!spec.peepholes.empty() && spec.peepholes.size() != static_cast<std::size_t>(product_of({spec.units, 3})))
      throw std::invalid_argument("recurrent: the peepholes do not fit");
    if (spec.y_step < product_of({spec.batch, spec.units})) throw std::invalid_argument("recurrent: steps of y overlap");
    if ((spec.kind == CellKind::kLstm) != last_cell_.has_value())
      throw std::invalid_argument("recurrent: the last cell is that of an lstm");
    bytes_of(spec.steps, spec.batch, static_cast<std::int64_t>(width));
    product_of({spec.steps, spec.y_step, kFloat});
    pack(spec);
  }

  void run(const Run& run) const override {
    RecurrentTensors tensors;
    tensors.inputs = run.at<const float>(inputs_);
    tensors.y = run.at<float>(y_);
    tensors.last_hidden = run.at<float>(last_hidden_);
    if (hidden_) tensors.hidden = run.at<const float>(*hidden_);
    if (cell_) tensors.cell = run.at<const float>(*cell_);
    if (last_cell_) tensors.last_cell = run.at<float>(*last_cell_);
    if (cells_) tensors.cells = run.at<float>(*cells_);
    if (continues_) tensors.continues = run.at<const float>(*continues_);
    if (lengths_) tensors.lengths = checked_lengths(run);
    const std::int64_t tiles = (task_.batch + kernels_.tile_rows - 1) / kernels_.tile_rows;
    const std::int64_t parts = std::min<std::int64_t>(run.threads(), tiles);
    run.parallel(static_cast<int>(parts), [&, this](int part, int worker) {
      const std::int64_t first = tiles * part / parts * kernels_.tile_rows;
      const std::int64_t last = std::min(tiles * (part + 1) / parts * kernels_.tile_rows, task_.batch);
      kernels_.run(task_, panels_, tensors, first, last, run.scratch(worker) + lengths_bytes());
    });
  }

  std::vector<Span> spans() const override {
    const std::size_t state = bytes_of(task_.batch, task_.units);
    std::vector<Span> all{Span::reads_slack(inputs_, bytes_of(task_.steps * task_.batch, task_.units, gates_), kFloat),
                          Span::writes(last_hidden_, state, kFloat)};
    for (const std::optional<Place>& sequence : {std::optional<Place>(y_), cells_})
      for (std::int64_t step : {std::int64_t{0}, task_.steps - 1}) {
        if (!sequence) continue;
        Place place = *sequence;
        place.offset += static_cast<std::size_t>(step * task_.y_step * kFloat);
        all.push_back(Span::writes(place, state, kFloat));
      }
    for (const auto& place : {hidden_, cell_})
      if (place) all.push_back(Span::reads(*place, state, kFloat));
    if (continues_) all.push_back(Span::reads(*continues_, bytes_of(task_.steps, task_.batch), kFloat));
    if (last_cell_) all.push_back(Span::writes(*last_cell_, state, kFloat));
    if (lengths_) all.push_back(Span::reads(*lengths_, static_cast<std::size_t>(task_.batch * 4), 4));
    return all;
  }

  std::size_t scratch_bytes() const override {
    const std::int64_t padded = (task_.units + 15) / 16 * 16;
    const std::int64_t numbers = product_of({padded, kernels_.tile_rows, 2 * std::int64_t{sizeof(double)} + 4 * kFloat});
    return static_cast<std::size_t>(numbers) + lengths_bytes();
  }
  std::size_t packed_bytes() const override { return packed_.size(); }
  const char* kind() const override { return "recurrent_float32"; }

 private:
  std::size_t lengths_bytes() const {
    return lengths_ ? (static_cast<std::size_t>(task_.batch) * 4 + 63) / 64 * 64 : 0;
  }

  // Copies the lengths before the check: the caller may modify its buffer concurrently.
  const std::int32_t* checked_lengths(const Run& run) const {
    auto* lengths = reinterpret_cast<std::int32_t*>(run.scratch(0));
    std::memcpy(lengths, run.at<const std::uint8_t>(*lengths_), static_cast<std::size_t>(task_.batch) * 4);
    for (std::int64_t k = 0; k < task_.batch; ++k)
      if (lengths[k] < 0 || lengths[k] > task_.steps)
        throw std::out_of_range(name_ + ": a length is " + std::to_string(lengths[k]) + ", expected 0 to " +
                                std::to_string(task_.steps));
    return lengths;
  }

  void pack(const RecurrentFloatSpec& spec) {
    const std::int64_t lanes = kernels_.lanes, units = spec.units, blocks = (units + lanes - 1) / lanes;
    const std::int64_t first_gates = spec.kind == CellKind::kGru ? 2 : gates_;
    const std::int64_t padded = blocks * lanes;
    const std::int64_t weights = product_of({padded, units, gates_});
    packed_ = AlignedBytes(static_cast<std::size_t>(product_of({weights + padded * (2 * gates_ + 3), kFloat})));
    float* to = packed_.as<float>();
    panels_.weights = to;
    pack_gates(spec.weights, units, 0, first_gates, to);
    to += padded * units * first_gates;
    panels_.candidate = to;
    if (first_gates < gates_) pack_gates(spec.weights, units, first_gates, gates_, to);
    to += padded * units * (gates_ - first_gates);
    panels_.input_bias = to;
    if (!spec.input_bias.empty()) pack_gates(spec.input_bias, 1, 0, gates_, to);
    to += padded * gates_;
    panels_.recurrent_bias = to;
    if (!spec.recurrent_bias.empty()) pack_gates(spec.recurrent_bias, 1, 0, gates_, to);
    to += padded * gates_;
    if (!spec.peepholes.empty()) {
      panels_.peepholes = to;
      pack_gates(spec.peepholes, 1, 0, 3, to);
    }
  }

  // Packs gates first .. last - 1 of rows [gate][unit] of `depth` elements to [block][depth][gate][lane].
  void pack_gates(const std::vector<float>& rows, std::int64_t depth, std::int64_t first, std::int64_t last, float* to) const {
    const std::int64_t lanes = kernels_.lanes, units = task_.units, gates = last - first;
    for (std::int64_t gate = first; gate < last; ++gate)
      for (std::int64_t unit = 0; unit < units; ++unit)
        for (std::int64_t k = 0; k < depth; ++k)
          to[((unit / lanes * depth + k) * gates + gate - first) * lanes + unit % lanes] =
              rows[static_cast<std::size_t>((gate * units + unit) * depth + k)];
  }

  RecurrentTask task_;
  const RecurrentKernels& kernels_;
  Place inputs_, y_, last_hidden_;
  std::optional<Place> hidden_, cell_, lengths_, continues_, last_cell_, cells_;
  std::string name_;
  std::int64_t gates_;
  AlignedBytes packed_;
  RecurrentPanels panels_;
};

CellKind cell_kind_named(const std::string& name) {
  if (name == "lstm") return CellKind::kLstm;
  if (name == "gru") return CellKind::kGru;
  if (name == "gru_linear") return CellKind::kGruLinear;
  if (name == "rnn") return CellKind::kRnn;
  throw std::invalid_argument("recurrent: there is no cell '" + name + "'");
}

CellFunction function_named(const std::string& name) {
  static const std::pair<const char*, CellFunction> kNames[] = {
      {"sigmoid", CellFunction::kSigmoid},
      {"tanh", CellFunction::kTanh},
      {"relu", CellFunction::kRelu},
      {"affine", CellFunction::kAffine},
      {"leakyrelu", CellFunction::kLeakyRelu},
      {"thresholdedrelu", CellFunction::kThresholdedRelu},
      {"scaledtanh", CellFunction::kScaledTanh},
      {"hardsigmoid", CellFunction::kHardSigmoid},
      {"elu", CellFunction::kElu},
      {"softsign", CellFunction::kSoftsign},
      {"softplus", CellFunction::kSoftplus},
  };
  for (const auto& [known, function] : kNames)
    if (name == known) return function;
  throw std::invalid_argument("recurrent: there is no function '" + name + "'");
}

void bind(nanobind::module_& module) {
  using Spec = RecurrentFloatSpec;
  using Functions = std::vector<std::tuple<std::string, double, double>>;  // name, alpha, beta
  SpecClass<Spec>(module, "RecurrentFloatSpec")
      .required("inputs", &Spec::inputs)
      .required("y", &Spec::y)
      .required("last_hidden", &Spec::last_hidden)
      .field("last_cell", &Spec::last_cell)
      .field("cells", &Spec::cells)
      .field("hidden", &Spec::hidden)
      .field("cell", &Spec::cell)
      .field("lengths", &Spec::lengths)
      .field("continues", &Spec::continues)
      .required_as<std::string>("kind", [](Spec* spec, const std::string& name) { spec->kind = cell_kind_named(name); })
      .required("steps", &Spec::steps)
      .required("batch", &Spec::batch)
      .required("units", &Spec::units)
      .required("y_step", &Spec::y_step)
      .required("weights", &Spec::weights)
      .field("input_bias", &Spec::input_bias)
      .field("recurrent_bias", &Spec::recurrent_bias)
      .field("peepholes", &Spec::peepholes)
      .required_as<Functions>("functions",
                              [](Spec* spec, const Functions& given) {
                                if (given.empty() || given.size() > 3)
                                  throw std::invalid_argument("recurrent: expected one to three functions");
                                for (std::size_t k = 0; k < given.size(); ++k) {
                                  const auto& [name, alpha, beta] = given[k];
                                  spec->functions[k] = {function_named(name), alpha, beta};
                                }
                              })
      .field("is_reverse", &Spec::is_reverse)
      .field("input_forget", &Spec::input_forget)
      .field("clip", &Spec::clip)
      .field("cell_clip", &Spec::cell_clip)
      .field("is_precise", &Spec::is_precise)
      .required("operator_name", &Spec::operator_name);
  bind_kernel<Spec>(module, "recurrent_float32", kVectorWidths, [](const Spec& spec, Isa isa) {
    nanobind::gil_scoped_release released;
    return make_recurrent_float(spec, isa);
  });
}

const Binding binding(bind);

}  // namespace

double precise_function(const CellActivation& activation, double x) {
  const double alpha = activation.alpha, beta = activation.beta;
  switch (activation.function) {
    case CellFunction::kSigmoid: return 1 / (1 + std::exp(-x));
    case CellFunction::kTanh: return std::tanh(x);
    case CellFunction::kRelu: return x < 0 ? 0 : x;
    case CellFunction::kAffine: return alpha * x + beta;
    case CellFunction::kLeakyRelu: return x < 0 ? alpha * x : x;
    case CellFunction::kThresholdedRelu: return x > alpha ? x : 0 * x;
    case CellFunction::kScaledTanh: return alpha * std::tanh(beta * x);
    case CellFunction::kHardSigmoid: {
      const double line = alpha * x + beta;
      return line < 0 ? 0 : line > 1 ? 1 : line;
    }
    case CellFunction::kElu: return x < 0 ? alpha * std::expm1(x) : x;
    case CellFunction::kSoftsign: return x / (1 + std::fabs(x));
    case CellFunction::kSoftplus: return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
  }
  return x;
}

std::shared_ptr<Step> make_recurrent_float(const RecurrentFloatSpec& spec, Isa isa) {
  return std::make_shared<RecurrentStep>(spec, isa);
}

}  // namespace tpuconvert
