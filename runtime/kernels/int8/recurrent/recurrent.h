// Integer recurrent layers: the steps of one direction, given the rescaled sums of the inputs of all steps.
//
// The operators lstm_int, gru_int and rnn_int define the integers; every instruction set gives the same. Sequences are
// independent: threads and register tiles share out the rows of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// kGru multiplies the state by the reset gate before its matmul, kGruLinear after it.
enum class IntCellKind { kLstm, kGru, kGruLinear, kRnn };

// Number of gates, which are consecutive column blocks of the inputs and of the weights.
inline int gates_of(IntCellKind kind) { return kind == IntCellKind::kLstm ? 4 : kind == IntCellKind::kRnn ? 1 : 3; }

struct RecurrentInt8Task {
  IntCellKind kind = IntCellKind::kLstm;
  std::int64_t steps = 1, batch = 1, units = 1;
  std::int64_t y_step = 0;  // bytes from one step of y to the next
  bool is_reverse = false;
  bool input_forget = false, is_forget_given = false;  // one of the gates i and f of an LSTM is 32767 minus the other
  int product_shift = 15;                              // right shift of i * g of an LSTM
  std::int32_t cell_limit = 0;                         // 0 means none
  std::int32_t y_multiplier = 0, y_shift = 0;          // right shift
  std::int32_t y_zero = 0;                             // stored zero point, which includes 128
};

// A matrix in panels of kVectors vectors of columns, and the parameters of its columns. Every gate has as many columns as
// units, padded to whole vectors. The bias includes the compensation for the stored state, which is never negative.
struct RecurrentMatrix {
  const void* panels = nullptr;                // [panel][depth / items per word][vector][lane][items of a word]
  const std::int32_t* bias = nullptr;          // [columns]
  const std::int32_t* multipliers = nullptr;   // [columns]
  const std::int32_t* shifts = nullptr;        // [columns], right shifts
  std::int64_t panel_count = 0, words = 0;
};

struct RecurrentInt8Constants {
  RecurrentMatrix gates;      // all gates; for kGru without the candidate
  RecurrentMatrix candidate;  // for kGru only
  const std::int16_t* tables[3] = {};  // entry for 0; 32768 entries before it, and 32768 with padding from it on
};

struct RecurrentInt8Tensors {
  const std::int16_t* inputs = nullptr;   // [steps, batch, gates * units]
  const void* hidden = nullptr;           // [batch, units], stored INT8, or INT16 for a GRU; null for zeros
  const std::int16_t* cell = nullptr;     // [batch, units], or null for zeros
  const std::int32_t* lengths = nullptr;  // [batch], or null
  std::uint8_t* y = nullptr;              // first step, [batch, units]
  void* last_hidden = nullptr;            // [batch, units], as hidden
  std::int16_t* last_cell = nullptr;      // [batch, units]; for kLstm only
};

constexpr int kRecurrentVectors = 4;  // vectors of a panel

struct RecurrentInt8Kernels {
  int lanes;      // columns of a vector
  int items;      // state elements of a 32-bit word: 4 bytes or 2 words of 16 bits
  int tile_rows;  // rows that are computed together
  // Computes rows first <= row < last of the batch. `scratch` has recurrent_int8_scratch bytes.
  void (*run)(const RecurrentInt8Task& task, const RecurrentInt8Constants& constants, const RecurrentInt8Tensors& tensors,
              std::int64_t first, std::int64_t last, std::uint8_t* scratch);
};

extern const RecurrentInt8Kernels kRecurrentInt8Scalar, kRecurrentInt8Avx2, kRecurrentInt8AvxVnniVex,
    kRecurrentInt8AvxVnniEvex, kRecurrentInt8Avx512Vnni, kRecurrentInt8Neon, kRecurrentInt8I8mm;

// Units padded to whole vectors of every instruction set.
inline std::int64_t padded_units(std::int64_t units) { return (units + 15) / 16 * 16; }

// Bytes of the scratch of one row of a tile.
inline std::int64_t recurrent_int8_row_bytes(std::int64_t units) {
  // Sums of four gates and one panel, a state and a gate of 32 bits, two states of 16 bits, and one of 8 bits.
  return padded_units(units) * (4 * 4 + 2 * 4 + 2 * 2 + 1) + 64 * 4 + 4 * 64;
}

struct RecurrentInt8Spec : RecurrentInt8Task {
  Place inputs, y, last_hidden;
  std::optional<Place> hidden, cell, lengths, last_cell;
  std::vector<std::int8_t> weights;  // [gates * units, units]
  std::vector<std::int32_t> bias, multipliers, shifts;  // [gates * units]; shifts are those of the operator, at most 0
  std::vector<std::int16_t> tables;  // [tables, 65536], see RecurrentInt8Constants
  std::string operator_name;  // for messages
};

// Throws std::invalid_argument for invalid extents, and for parameters beyond the bounds of the kernel: right shifts are at
// most 30, and sums, also with the bias and rescaled, are below 2^30 in magnitude.
std::shared_ptr<Step> make_recurrent_int8(const RecurrentInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
