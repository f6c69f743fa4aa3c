// The instruction sets that kernels are written for, and the choice between them.
#pragma once

#include <string>
#include <vector>

namespace tpuconvert {

// In ascending order: each one includes those before it.
enum class Isa { kScalar, kAvx2, kAvxVnni, kAvx512Vnni };

const char* name_of(Isa isa);

// Throws std::invalid_argument for a name that is none of those.
Isa isa_named(const std::string& name);

// What this processor and operating system can run, in ascending order; never empty.
std::vector<Isa> available_isas();

// Whether arithmetic with subnormal numbers takes no longer than with others.
bool has_quick_subnormals();

}  // namespace tpuconvert
