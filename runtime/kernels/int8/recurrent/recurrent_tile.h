// Steps of integer recurrent layers. Include after the definition of `Lanes` for an instruction set.
#pragma once

#include <cstddef>
#include <cstring>

#include "int8/recurrent/recurrent.h"

namespace tpuconvert {
namespace {

#define LANES_INLINE inline __attribute__((always_inline))

using V = Lanes::V;
constexpr int kLanes = Lanes::kLanes, kVectors = kRecurrentVectors;

// x / 2^bits; ties round away from zero.
LANES_INLINE V divide_by_power(V x, int bits) {
  const V half = Lanes::broadcast(1 << (bits - 1));
  return Lanes::shift_right(Lanes::add(Lanes::add(x, half), Lanes::sign(x)), bits);
}

// Rescales by multiplier * 2^-31 and a right shift, with two roundings. |x| < 2^31, and the first result is below 2^30.
LANES_INLINE V rescale(V x, V multiplier, V shift) {
  const V high = Lanes::multiply_high(x, multiplier);
  const V one = Lanes::broadcast(1);
  const V half = Lanes::shift_right_by(Lanes::shift_left_by(one, shift), one);
  const V correction = Lanes::bit_and(Lanes::sign(high), Lanes::negative_if_positive(shift));
  return Lanes::shift_right_by(Lanes::add(Lanes::add(high, half), correction), shift);
}

LANES_INLINE V clamp(V x, int low, int high) {
  return Lanes::smaller(Lanes::larger(x, Lanes::broadcast(low)), Lanes::broadcast(high));
}

LANES_INLINE V saturate_16(V x) { return clamp(x, -32768, 32767); }

// Buffers of one row of a tile.
struct Row {
  std::int32_t* sums = nullptr;      // [columns]
  std::int32_t* state = nullptr;     // cell of an LSTM, or hidden state of a GRU
  std::int32_t* update = nullptr;    // gate of a GRU
  Lanes::Item* hidden = nullptr;     // operand of the matmul: stored bytes
  Lanes::Item* candidate = nullptr;  // operand of the matmul of the candidate of a GRU
  std::uint8_t* y = nullptr;         // stored bytes

  Row() = default;
  Row(std::uint8_t* scratch, std::int64_t padded) {
    sums = reinterpret_cast<std::int32_t*>(scratch);
    state = sums + 4 * padded + kVectors * 16;
    update = state + padded;
    auto* rest = reinterpret_cast<std::uint8_t*>(update + padded);
    hidden = reinterpret_cast<Lanes::Item*>(rest);
    candidate = reinterpret_cast<Lanes::Item*>(rest + 2 * padded + 64);
    y = rest + 4 * padded + 128;
  }
};

// Writes the sums of `kGroups` panels for `kRows` rows.
template <int kRows, int kGroups>
LANES_INLINE void multiply_panels(const RecurrentMatrix& matrix, std::int64_t panel, const Lanes::Item* const* states,
                                  std::int32_t* const* to) {
  V sums[kRows][kGroups * kVectors];
  for (auto& row : sums)
    for (V& sum : row) sum = Lanes::broadcast(0);
  const std::int64_t panel_items = matrix.words * kVectors * kLanes * Lanes::kItems;
  const auto* weights = static_cast<const Lanes::Weight*>(matrix.panels) + panel * panel_items;
  for (std::int64_t word = 0; word < matrix.words; ++word) {
    V values[kRows];
    for (int row = 0; row < kRows; ++row) {
      std::int32_t bits;
      std::memcpy(&bits, states[row] + word * Lanes::kItems, sizeof bits);
      values[row] = Lanes::broadcast(bits);
    }
    for (int group = 0; group < kGroups; ++group)
      for (int vector = 0; vector < kVectors; ++vector) {
        const Lanes::Weight* at =
            weights + group * panel_items + (word * kVectors + vector) * kLanes * Lanes::kItems;
        const V w = Lanes::load(reinterpret_cast<const std::int32_t*>(at));
        for (int row = 0; row < kRows; ++row) {
          V& sum = sums[row][group * kVectors + vector];
          sum = Lanes::dot(sum, values[row], w);
        }
      }
  }
  for (int row = 0; row < kRows; ++row)
    for (int vector = 0; vector < kGroups * kVectors; ++vector)
      Lanes::store(to[row] + (panel * kVectors + vector) * kLanes, sums[row][vector]);
}

template <int kRows>
void multiply(const RecurrentMatrix& matrix, const Lanes::Item* const* states, std::int32_t* const* to) {
  constexpr int kGroups = kRows * 2 * kVectors <= Lanes::kAccumulators ? 2 : 1;
  std::int64_t panel = 0;
  for (; panel + kGroups <= matrix.panel_count; panel += kGroups)
    multiply_panels<kRows, kGroups>(matrix, panel, states, to);
  for (; panel < matrix.panel_count; ++panel) multiply_panels<kRows, 1>(matrix, panel, states, to);
}

// The steps of `kRows` rows.
template <IntCellKind kKind, int kRows>
class Tile {
 public:
  Tile(const RecurrentInt8Task& task, const RecurrentInt8Constants& constants, const RecurrentInt8Tensors& tensors,
       std::int64_t first, std::uint8_t* scratch)
      : task_(task), constants_(constants), tensors_(tensors), first_(first), padded_(padded_units(task.units)) {
    const std::int64_t bytes = recurrent_int8_row_bytes(task.units);
    std::memset(scratch, 0, static_cast<std::size_t>(bytes * kRows));
    for (int row = 0; row < kRows; ++row) rows_[row] = Row(scratch + row * bytes, padded_);
  }

  void run() {
    for (int row = 0; row < kRows; ++row) load_states(row);
    for (std::int64_t n = 0; n < task_.steps; ++n) {
      const std::int64_t time = task_.is_reverse ? task_.steps - 1 - n : n;
      run_step(time);
      for (int row = 0; row < kRows; ++row) {
        std::uint8_t* y = tensors_.y + time * task_.y_step + (first_ + row) * task_.units;
        if (is_inside(row, time)) {
          std::memcpy(y, rows_[row].y, static_cast<std::size_t>(task_.units));
        } else {
          std::memset(y, task_.y_zero, static_cast<std::size_t>(task_.units));
        }
      }
    }
    for (int row = 0; row < kRows; ++row) store_states(row);
  }

 private:
  static constexpr bool kIsGru = kKind == IntCellKind::kGru || kKind == IntCellKind::kGruLinear;

  bool is_inside(int row, std::int64_t time) const {
    return tensors_.lengths == nullptr || time < tensors_.lengths[first_ + row];
  }

  void load_states(int index) {
    Row& row = rows_[index];
    const std::int64_t from = (first_ + index) * task_.units;
    for (std::int64_t unit = 0; unit < task_.units; ++unit) {
      if (kIsGru) {
        row.state[unit] = tensors_.hidden == nullptr ? 0 : static_cast<const std::int16_t*>(tensors_.hidden)[from + unit];
      } else {
        row.y[unit] = tensors_.hidden == nullptr ? static_cast<std::uint8_t>(task_.y_zero)
                                                 : static_cast<const std::uint8_t*>(tensors_.hidden)[from + unit];
        row.hidden[unit] = row.y[unit];
        if (kKind == IntCellKind::kLstm && tensors_.cell != nullptr) row.state[unit] = tensors_.cell[from + unit];
      }
    }
    if (kIsGru)
      for (std::int64_t unit = 0; unit < task_.units; unit += kLanes)
        store_output(row, unit, output_of(Lanes::load(row.state + unit), 0));
  }

  void store_states(int index) {
    Row& row = rows_[index];
    const std::int64_t to = (first_ + index) * task_.units;
    for (std::int64_t unit = 0; unit < task_.units; ++unit) {
      if (kIsGru) {
        static_cast<std::int16_t*>(tensors_.last_hidden)[to + unit] = static_cast<std::int16_t>(row.state[unit]);
      } else {
        static_cast<std::uint8_t*>(tensors_.last_hidden)[to + unit] = row.y[unit];
        if (kKind == IntCellKind::kLstm) tensors_.last_cell[to + unit] = static_cast<std::int16_t>(row.state[unit]);
      }
    }
  }

  // Stored bytes of a value with the scale of a state, or 2^shift times finer.
  LANES_INLINE V output_of(V x, int shift) const {
    const V scaled = rescale(x, Lanes::broadcast(task_.y_multiplier), Lanes::broadcast(task_.y_shift + shift));
    return clamp(Lanes::add(scaled, Lanes::broadcast(task_.y_zero)), 0, 255);
  }

  LANES_INLINE void store_output(Row& row, std::int64_t unit, V y) const {
    Lanes::store_bytes(row.y + unit, y);
    Lanes::store_items(row.hidden + unit, y);
  }

  // Rescaled product of the state, of the columns of a gate.
  LANES_INLINE V product(const RecurrentMatrix& matrix, const Row& row, int gate, std::int64_t unit) const {
    const std::int64_t column = gate * padded_ + unit;
    const V sum = Lanes::add(Lanes::load(row.sums + column), Lanes::load(matrix.bias + column));
    return rescale(sum, Lanes::load(matrix.multipliers + column), Lanes::load(matrix.shifts + column));
  }

  LANES_INLINE V sum_of(const RecurrentMatrix& matrix, const Row& row, const std::int16_t* inputs, int gate, int input_gate,
                        std::int64_t unit) const {
    const V input = Lanes::load_words(inputs + input_gate * task_.units + unit);
    return saturate_16(Lanes::add(input, product(matrix, row, gate, unit)));
  }

  LANES_INLINE V look_up(int table, V x) const { return Lanes::gather(constants_.tables[table], x); }

  void run_step(std::int64_t time) {
    const Lanes::Item* states[kRows];
    std::int32_t* sums[kRows];
    for (int row = 0; row < kRows; ++row) {
      states[row] = rows_[row].hidden;
      sums[row] = rows_[row].sums;
    }
    multiply<kRows>(constants_.gates, states, sums);
    const std::int64_t width = gates_of(kKind) * task_.units;
    const std::int16_t* inputs = tensors_.inputs + (time * task_.batch + first_) * width;
    if constexpr (kKind == IntCellKind::kGru) {
      for (int row = 0; row < kRows; ++row) {
        if (is_inside(row, time)) open_gates(rows_[row], inputs + row * width);
        states[row] = rows_[row].candidate;
      }
      multiply<kRows>(constants_.candidate, states, sums);
    }
    for (int row = 0; row < kRows; ++row)
      if (is_inside(row, time)) finish_row(rows_[row], inputs + row * width);
  }

  // The gates of a GRU, and the operand of the matmul of its candidate.
  void open_gates(Row& row, const std::int16_t* inputs) {
    for (std::int64_t unit = 0; unit < task_.units; unit += kLanes) {
      Lanes::store(row.update + unit, look_up(0, sum_of(constants_.gates, row, inputs, 0, 0, unit)));
      const V reset = look_up(0, sum_of(constants_.gates, row, inputs, 1, 1, unit));
      const V kept = Lanes::multiply(reset, Lanes::load(row.state + unit));
      Lanes::store_items(row.candidate + unit, output_of(kept, 15));
    }
  }

  void finish_row(Row& row, const std::int16_t* inputs) {
    for (std::int64_t unit = 0; unit < task_.units; unit += kLanes) {
      if constexpr (kKind == IntCellKind::kLstm) {
        store_output(row, unit, lstm(row, inputs, unit));
      } else if constexpr (kKind == IntCellKind::kRnn) {
        store_output(row, unit, output_of(look_up(0, sum_of(constants_.gates, row, inputs, 0, 0, unit)), 0));
      } else {
        V update, sum;
        if constexpr (kKind == IntCellKind::kGru) {
          update = Lanes::load(row.update + unit);
          sum = sum_of(constants_.candidate, row, inputs, 0, 2, unit);
        } else {
          update = look_up(0, sum_of(constants_.gates, row, inputs, 0, 0, unit));
          const V reset = look_up(0, sum_of(constants_.gates, row, inputs, 1, 1, unit));
          const V inner = Lanes::multiply(reset, saturate_16(product(constants_.gates, row, 2, unit)));
          const V input = Lanes::load_words(inputs + 2 * task_.units + unit);
          sum = saturate_16(Lanes::add(input, divide_by_power(inner, 15)));
        }
        const V kept = Lanes::multiply(update, Lanes::load(row.state + unit));
        const V fresh = Lanes::multiply(Lanes::subtract(Lanes::broadcast(1 << 15), update), look_up(1, sum));
        const V state = divide_by_power(Lanes::add(kept, fresh), 15);
        Lanes::store(row.state + unit, state);
        store_output(row, unit, output_of(state, 0));
      }
    }
  }

  LANES_INLINE V lstm(Row& row, const std::int16_t* inputs, std::int64_t unit) const {
    const RecurrentMatrix& gates = constants_.gates;
    V enter = look_up(0, sum_of(gates, row, inputs, 0, 0, unit));
    V forget = look_up(0, sum_of(gates, row, inputs, 2, 2, unit));
    if (task_.input_forget) {
      const V one = Lanes::broadcast(32767);
      if (task_.is_forget_given) {
        enter = Lanes::subtract(one, forget);
      } else {
        forget = Lanes::subtract(one, enter);
      }
    }
    const V candidate = look_up(1, sum_of(gates, row, inputs, 3, 3, unit));
    const V added = saturate_16(divide_by_power(Lanes::multiply(enter, candidate), task_.product_shift));
    const V kept = divide_by_power(Lanes::multiply(forget, Lanes::load(row.state + unit)), 15);
    V cell = saturate_16(Lanes::add(saturate_16(kept), added));
    if (task_.cell_limit > 0) cell = clamp(cell, -task_.cell_limit, task_.cell_limit);
    Lanes::store(row.state + unit, cell);
    const V leave = look_up(0, sum_of(gates, row, inputs, 1, 1, unit));
    return output_of(Lanes::multiply(leave, look_up(2, cell)), 0);
  }

  const RecurrentInt8Task& task_;
  const RecurrentInt8Constants& constants_;
  const RecurrentInt8Tensors& tensors_;
  const std::int64_t first_, padded_;
  Row rows_[kRows];
};

template <IntCellKind kKind>
void run_rows(const RecurrentInt8Task& task, const RecurrentInt8Constants& constants, const RecurrentInt8Tensors& tensors,
              std::int64_t first, std::int64_t last, std::uint8_t* scratch) {
  constexpr int kRows = Lanes::kTileRows;
  std::int64_t row = first;
  for (; row + kRows <= last; row += kRows) Tile<kKind, kRows>(task, constants, tensors, row, scratch).run();
  for (; row < last; ++row) Tile<kKind, 1>(task, constants, tensors, row, scratch).run();
}

void run_recurrent(const RecurrentInt8Task& task, const RecurrentInt8Constants& constants,
                   const RecurrentInt8Tensors& tensors, std::int64_t first, std::int64_t last, std::uint8_t* scratch) {
  switch (task.kind) {
    case IntCellKind::kLstm: return run_rows<IntCellKind::kLstm>(task, constants, tensors, first, last, scratch);
    case IntCellKind::kGru: return run_rows<IntCellKind::kGru>(task, constants, tensors, first, last, scratch);
    case IntCellKind::kGruLinear: return run_rows<IntCellKind::kGruLinear>(task, constants, tensors, first, last, scratch);
    case IntCellKind::kRnn: return run_rows<IntCellKind::kRnn>(task, constants, tensors, first, last, scratch);
  }
}

constexpr RecurrentInt8Kernels kKernels{kLanes, Lanes::kItems, Lanes::kTileRows, run_recurrent};

}  // namespace
}  // namespace tpuconvert
