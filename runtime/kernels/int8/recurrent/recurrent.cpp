// The step of an integer recurrent layer: packs weights once, and shares out the rows of the batch.
#include "int8/recurrent/recurrent.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/aligned.h"
#include "core/bind_spec.h"
#include "core/extents.h"
#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kLargestSum = std::int64_t{1} << 30, kTable = 1 << 16;
constexpr int kLargestShift = 30, kTablePadding = 8;

void require(bool is_true, const char* message) {
  if (!is_true) throw std::invalid_argument(std::string("recurrent_int8: ") + message);
}

const RecurrentInt8Kernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return kRecurrentInt8Avx512Vnni;
  if (isa >= Isa::kAvxVnni) return has_vex_dot_products() ? kRecurrentInt8AvxVnniVex : kRecurrentInt8AvxVnniEvex;
  if (isa >= Isa::kAvx2) return kRecurrentInt8Avx2;
#elif defined(__aarch64__)
  // kDotprod multiplies words of the unsigned state like kNeon: its dot products have operands of the same sign.
  if (isa == Isa::kI8mm) return kRecurrentInt8I8mm;
  if (isa != Isa::kScalar) return kRecurrentInt8Neon;
#else
  static_cast<void>(isa);
#endif
  return kRecurrentInt8Scalar;
}

class RecurrentInt8Step final : public Step {
 public:
  RecurrentInt8Step(const RecurrentInt8Spec& spec, Isa isa)
      : task_(spec), kernels_(kernels_of(isa)), inputs_(spec.inputs), y_(spec.y), last_hidden_(spec.last_hidden),
        hidden_(spec.hidden), cell_(spec.cell), lengths_(spec.lengths), last_cell_(spec.last_cell),
        name_(spec.operator_name), gates_(gates_of(spec.kind)),
        state_bytes_(spec.kind == IntCellKind::kGru || spec.kind == IntCellKind::kGruLinear ? 2 : 1) {
    check(spec);
    const int first_gates = spec.kind == IntCellKind::kGru ? 2 : gates_;
    pack(spec, 0, first_gates, matrices_[0], constants_.gates);
    if (first_gates < gates_) pack(spec, first_gates, gates_, matrices_[1], constants_.candidate);
    tables_ = spec.tables;
    tables_.resize(tables_.size() + kTablePadding);
    for (int index = 0; index < table_count(spec.kind); ++index)
      constants_.tables[index] = tables_.data() + index * kTable + kTable / 2;
    task_.y_shift = -spec.y_shift;
  }

  void run(const Run& run) const override {
    RecurrentInt8Tensors tensors;
    tensors.inputs = run.at<const std::int16_t>(inputs_);
    tensors.y = run.at<std::uint8_t>(y_);
    tensors.last_hidden = run.at<std::uint8_t>(last_hidden_);
    if (hidden_) tensors.hidden = run.at<const std::uint8_t>(*hidden_);
    if (cell_) tensors.cell = run.at<const std::int16_t>(*cell_);
    if (last_cell_) tensors.last_cell = run.at<std::int16_t>(*last_cell_);
    if (lengths_) tensors.lengths = checked_lengths(run);
    const std::int64_t tiles = (task_.batch + kernels_.tile_rows - 1) / kernels_.tile_rows;
    const std::int64_t parts = std::min<std::int64_t>(run.threads(), tiles);
    run.parallel(static_cast<int>(parts), [&, this](int part, int worker) {
      const std::int64_t first = tiles * part / parts * kernels_.tile_rows;
      const std::int64_t last = std::min(tiles * (part + 1) / parts * kernels_.tile_rows, task_.batch);
      kernels_.run(task_, constants_, tensors, first, last, run.scratch(worker) + lengths_bytes());
    });
  }

  std::vector<Span> spans() const override {
    const auto bytes = [this](std::int64_t size) {
      return static_cast<std::size_t>(product_of({task_.batch, task_.units, size}));
    };
    const std::size_t inputs = static_cast<std::size_t>(product_of({task_.steps, task_.batch, task_.units, gates_, 2}));
    const std::size_t alignment = static_cast<std::size_t>(state_bytes_);
    std::vector<Span> all{Span::reads_slack(inputs_, inputs, 2), Span::writes(last_hidden_, bytes(state_bytes_), alignment)};
    for (std::int64_t step : {std::int64_t{0}, task_.steps - 1}) {
      Place place = y_;
      place.offset += static_cast<std::size_t>(step * task_.y_step);
      all.push_back(Span::writes(place, bytes(1), 1));
    }
    if (hidden_) all.push_back(Span::reads(*hidden_, bytes(state_bytes_), alignment));
    if (cell_) all.push_back(Span::reads(*cell_, bytes(2), 2));
    if (last_cell_) all.push_back(Span::writes(*last_cell_, bytes(2), 2));
    if (lengths_) all.push_back(Span::reads(*lengths_, static_cast<std::size_t>(task_.batch * 4), 4));
    return all;
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(product_of({kernels_.tile_rows, recurrent_int8_row_bytes(task_.units)})) +
           lengths_bytes();
  }
  std::size_t packed_bytes() const override { return matrices_[0].size() + matrices_[1].size(); }
  const char* kind() const override { return "recurrent_int8"; }

 private:
  static int table_count(IntCellKind kind) {
    return kind == IntCellKind::kLstm ? 3 : kind == IntCellKind::kRnn ? 1 : 2;
  }
  static std::size_t vector_size(std::int64_t count) { return static_cast<std::size_t>(count); }

  void check(const RecurrentInt8Spec& spec) const {
    require(spec.steps >= 1 && spec.batch >= 1 && spec.units >= 1, "an extent is below 1");
    const std::int64_t width = product_of({spec.units, gates_});
    require(spec.weights.size() == vector_size(product_of({width, spec.units})), "the weights do not fit");
    for (const std::vector<std::int32_t>* item : {&spec.bias, &spec.multipliers, &spec.shifts})
      require(item->size() == vector_size(width), "the parameters of the columns do not fit");
    require(spec.y_step >= product_of({spec.batch, spec.units}), "steps of y overlap");
    require((spec.kind == IntCellKind::kLstm) == last_cell_.has_value(), "the last cell is that of an lstm");
    require(spec.tables.size() == vector_size(table_count(spec.kind) * kTable), "the tables do not fit");
    const int finer = spec.kind == IntCellKind::kGru ? 15 : 0;
    require(spec.y_shift <= 0 && finer - spec.y_shift <= kLargestShift, "the shift of y is out of range");
    require(spec.y_zero >= 0 && spec.y_zero <= 255, "the zero point of y is out of range");
    require(spec.product_shift >= 15 && spec.product_shift <= kLargestShift, "the shift of a product is out of range");
    require(spec.cell_limit >= 0, "the limit of a cell is negative");
    product_of({spec.steps, spec.batch, width, 2});
    product_of({spec.steps, spec.y_step});
    for (std::int64_t row = 0; row < width; ++row) {
      const auto place = static_cast<std::size_t>(row);
      std::int64_t sum = std::abs(std::int64_t{spec.bias[place]});
      for (std::int64_t k = 0; k < spec.units; ++k)
        sum += 255 * std::abs(spec.weights[static_cast<std::size_t>(row * spec.units + k)]);
      require(sum < kLargestSum, "a sum may exceed 30 bits");
      require(spec.shifts[place] <= 0 && spec.shifts[place] >= -kLargestShift, "a shift is out of range");
    }
  }

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

  // Packs gates first .. last - 1. Weights have the width of the items of a word.
  void pack(const RecurrentInt8Spec& spec, int first, int last, AlignedBytes& to, RecurrentMatrix& matrix) {
    const std::int64_t units = spec.units, padded = padded_units(units), lanes = kernels_.lanes, items = kernels_.items;
    const std::int64_t panel = kRecurrentVectors * lanes, width = static_cast<std::int64_t>(sizeof(std::int32_t)) / items;
    matrix.words = (units + items - 1) / items;
    matrix.panel_count = (padded * (last - first) + panel - 1) / panel;
    const std::int64_t columns = matrix.panel_count * panel;
    const std::int64_t weights = product_of({columns, matrix.words, std::int64_t{sizeof(std::int32_t)}});
    to = AlignedBytes(static_cast<std::size_t>(weights + product_of({columns, 3, std::int64_t{sizeof(std::int32_t)}})));
    auto* packed = to.as<std::int8_t>();
    auto* bias = reinterpret_cast<std::int32_t*>(packed + weights);
    auto *multipliers = bias + columns, *shifts = multipliers + columns;
    matrix.panels = packed;
    matrix.bias = bias;
    matrix.multipliers = multipliers;
    matrix.shifts = shifts;
    for (int gate = first; gate < last; ++gate)
      for (std::int64_t unit = 0; unit < units; ++unit) {
        const std::int64_t column = (gate - first) * padded + unit;
        const auto row = static_cast<std::size_t>(gate * units + unit);
        std::int64_t total = 0;
        for (std::int64_t k = 0; k < units; ++k) {
          const std::int8_t weight = spec.weights[row * static_cast<std::size_t>(units) + static_cast<std::size_t>(k)];
          total += weight;
          const std::int64_t word = (column / panel * matrix.words + k / items) * panel + column % panel;
          std::int8_t* at = packed + word * 4 + k % items * width;
          if (width == 1) {
            *at = weight;
          } else {
            const std::int16_t wide = weight;
            std::memcpy(at, &wide, sizeof wide);
          }
        }
        bias[column] = static_cast<std::int32_t>(spec.bias[row] - spec.y_zero * total);
        multipliers[column] = spec.multipliers[row];
        shifts[column] = -spec.shifts[row];
      }
  }

  RecurrentInt8Task task_;
  const RecurrentInt8Kernels& kernels_;
  Place inputs_, y_, last_hidden_;
  std::optional<Place> hidden_, cell_, lengths_, last_cell_;
  std::string name_;
  int gates_;
  std::int64_t state_bytes_;
  AlignedBytes matrices_[2];
  std::vector<std::int16_t> tables_;
  RecurrentInt8Constants constants_;
};

IntCellKind cell_kind_named(const std::string& name) {
  if (name == "lstm") return IntCellKind::kLstm;
  if (name == "gru") return IntCellKind::kGru;
  if (name == "gru_linear") return IntCellKind::kGruLinear;
  if (name == "rnn") return IntCellKind::kRnn;
  throw std::invalid_argument("recurrent_int8: there is no cell '" + name + "'");
}

void bind(nanobind::module_& module) {
  using Spec = RecurrentInt8Spec;
  SpecClass<Spec>(module, "RecurrentInt8Spec")
      .required("inputs", &Spec::inputs)
      .required("y", &Spec::y)
      .required("last_hidden", &Spec::last_hidden)
      .field("last_cell", &Spec::last_cell)
      .field("hidden", &Spec::hidden)
      .field("cell", &Spec::cell)
      .field("lengths", &Spec::lengths)
      .required_as<std::string>("kind", [](Spec* spec, const std::string& name) { spec->kind = cell_kind_named(name); })
      .required("steps", &Spec::steps)
      .required("batch", &Spec::batch)
      .required("units", &Spec::units)
      .required("y_step", &Spec::y_step)
      .required("weights", &Spec::weights)
      .required("bias", &Spec::bias)
      .required("multipliers", &Spec::multipliers)
      .required("shifts", &Spec::shifts)
      .required("tables", &Spec::tables)
      .required("y_multiplier", &Spec::y_multiplier)
      .required("y_shift", &Spec::y_shift)
      .required("y_zero", &Spec::y_zero)
      .field("is_reverse", &Spec::is_reverse)
      .field("input_forget", &Spec::input_forget)
      .field("is_forget_given", &Spec::is_forget_given)
      .field("product_shift", &Spec::product_shift)
      .field("cell_limit", &Spec::cell_limit)
      .required("operator_name", &Spec::operator_name);
  bind_kernel<Spec>(module, "recurrent_int8", kUnsignedDots, [](const Spec& spec, Isa isa) {
    nanobind::gil_scoped_release released;
    return make_recurrent_int8(spec, isa);
  });
}

const Binding binding(bind);

}  // namespace

std::shared_ptr<Step> make_recurrent_int8(const RecurrentInt8Spec& spec, Isa isa) {
  return std::make_shared<RecurrentInt8Step>(spec, isa);
}

}  // namespace tpuconvert
