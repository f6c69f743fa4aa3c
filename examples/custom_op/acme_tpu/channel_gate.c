/* acme_channel_gate: the bytes of ChannelGate.reference in channel_gate.py. */
#include <tpuconvert_custom.h>

TPUCONVERT_KERNEL int acme_channel_gate(const tpuconvert_tensor *operands, int32_t operand_count,
                                        const tpuconvert_tensor *results, int32_t result_count,
                                        const tpuconvert_parameter *parameters, int32_t parameter_count, char *message,
                                        int64_t message_size) {
  const tpuconvert_parameter *limit = tpuconvert_find(parameters, parameter_count, "limit");
  const float *x, *gate;
  float *y;
  int64_t channels, plane, c, i;
  if (operand_count != 2 || result_count != 1 || limit == 0)
    return tpuconvert_fail(message, message_size, "it takes two operands and a limit");
  if (operands[0].dtype != TPUCONVERT_FLOAT32 || operands[1].dtype != TPUCONVERT_FLOAT32)
    return tpuconvert_fail(message, message_size, "it takes FLOAT32");
  x = (const float *)operands[0].data;
  gate = (const float *)operands[1].data;
  y = (float *)results[0].data;
  channels = operands[1].elements;
  plane = operands[0].shape[2] * operands[0].shape[3];
  for (c = 0; c < channels; ++c) {
    const int is_open = gate[c] > (float)limit->real;
    for (i = 0; i < plane; ++i) y[c * plane + i] = is_open ? x[c * plane + i] : 0.0f;
  }
  return 0;
}
