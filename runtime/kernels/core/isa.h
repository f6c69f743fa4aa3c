// The instruction sets that have kernels.
#pragma once

#include <string>
#include <vector>

namespace tpuconvert {

// Instruction sets. Those of one processor architecture are in ascending order: each one includes those before it.
// kScalar is portable code, compiled for the baseline of the architecture.
enum class Isa { kScalar, kAvx2, kAvxVnni, kAvx512Vnni, kNeon, kDotprod, kI8mm };

const char* name_of(Isa isa);

// Throws std::invalid_argument for an unknown name.
Isa isa_named(const std::string& name);

// Instruction sets that the CPU and operating system support, in ascending order; never empty.
std::vector<Isa> available_isas();

// True if subnormal arithmetic is as fast as normal arithmetic.
bool has_quick_subnormals();

}  // namespace tpuconvert
