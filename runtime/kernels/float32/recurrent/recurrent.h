// Recurrent layers: the steps of one direction, given the inputs of all steps multiplied by the input weights.
//
// Element j of a sum of a state and its weights is accumulated in the order of the units by fused multiply-adds, so that
// results are equal on every instruction set. Sequences are independent: threads and register tiles share out the rows of
// a batch.
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
enum class CellKind { kLstm, kGru, kGruLinear, kRnn };

enum class CellFunction {
  kSigmoid, kTanh, kRelu, kAffine, kLeakyRelu, kThresholdedRelu, kScaledTanh, kHardSigmoid, kElu, kSoftsign, kSoftplus
};

struct CellActivation {
  CellFunction function = CellFunction::kTanh;
  double alpha = 0, beta = 0;
};

// Number of gates, which are consecutive column blocks of the inputs and of the weights.
inline int gates_of(CellKind kind) { return kind == CellKind::kLstm ? 4 : kind == CellKind::kRnn ? 1 : 3; }

struct RecurrentTask {
  CellKind kind = CellKind::kLstm;
  std::int64_t steps = 1, batch = 1, units = 1;
  std::int64_t y_step = 0;  // elements from one step of y, or of the cells, to the next
  bool is_reverse = false;
  bool input_forget = false;          // the forget gate of an LSTM is 1 minus its input gate
  double clip = 0, cell_clip = 0;     // limits of the sums and of the cell; 0 means none
  CellActivation functions[3];        // of the gates, of the candidate, of the new cell
};

// Weights in blocks of as many units as a vector has lanes; the units after the last one are 0.
struct RecurrentPanels {
  const float* weights = nullptr;     // [block][state unit][gate][lane]; for kGru without the candidate
  const float* candidate = nullptr;   // [block][state unit][lane]; for kGru only
  const float* input_bias = nullptr;      // [block][gate][lane]
  const float* recurrent_bias = nullptr;  // [block][gate][lane]
  const float* peepholes = nullptr;       // [block][3][lane], or null
};

struct RecurrentTensors {
  const float* inputs = nullptr;          // [steps, batch, gates * units]
  const float* hidden = nullptr;          // [batch, units], or null for zeros
  const float* cell = nullptr;            // [batch, units], or null for zeros
  const std::int32_t* lengths = nullptr;  // [batch], or null
  const float* continues = nullptr;       // [steps, batch], factors of the states before a step, or null
  float* y = nullptr;                     // first step, [batch, units]
  float* last_hidden = nullptr;           // [batch, units]
  float* last_cell = nullptr;             // [batch, units]; for kLstm only
  float* cells = nullptr;                 // cells after the first step, [batch, units], or null
};

struct RecurrentKernels {
  int lanes;      // units of a block
  int tile_rows;  // rows that are computed together
  // Computes rows first <= row < last of the batch. `scratch` has recurrent_scratch_bytes.
  void (*run)(const RecurrentTask& task, const RecurrentPanels& panels, const RecurrentTensors& tensors, std::int64_t first,
              std::int64_t last, std::uint8_t* scratch);
};

// For each instruction set, with sums in float32 and in float64. The latter computes functions by the C++ standard
// library, as the references do.
extern const RecurrentKernels kRecurrentScalar, kRecurrentScalarPrecise;
extern const RecurrentKernels kRecurrentAvx2, kRecurrentAvx2Precise;
extern const RecurrentKernels kRecurrentAvx512, kRecurrentAvx512Precise;
extern const RecurrentKernels kRecurrentNeon, kRecurrentNeonPrecise;

double precise_function(const CellActivation& activation, double x);

struct RecurrentFloatSpec : RecurrentTask {
  Place inputs, y, last_hidden;
  std::optional<Place> hidden, cell, lengths, continues, last_cell, cells;
  std::vector<float> weights;  // [gates * units, units]
  std::vector<float> input_bias, recurrent_bias, peepholes;  // empty for zeros
  bool is_precise = false;
  std::string operator_name;  // for messages
};

// Throws std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_recurrent_float(const RecurrentFloatSpec& spec, Isa isa);

}  // namespace tpuconvert
