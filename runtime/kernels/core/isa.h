// The instruction sets that have kernels.
#pragma once

#include <string>
#include <vector>

namespace tpuconvert {

// Instruction sets. Those of one processor architecture are in ascending order: each one includes those before it.
// kScalar is portable code, compiled for the baseline of the architecture.
// kAmx is AVX512-VNNI with the tile registers of AMX-INT8.
enum class Isa { kScalar, kAvx2, kAvxVnni, kAvx512Vnni, kAmx, kNeon, kDotprod, kI8mm };

// True if kernels for AVX512-VNNI run, so that AVX-512 may be used.
constexpr bool has_avx512(Isa isa) { return isa == Isa::kAvx512Vnni || isa == Isa::kAmx; }

const char* name_of(Isa isa);

// Instruction sets that the CPU, the operating system and the compiler of this build support, in ascending order; never
// empty. The first call asks the operating system for the permission to use the tile registers of AMX, which all
// threads of the process share.
const std::vector<Isa>& available_isas();

// Throws std::invalid_argument for an unknown name, and for an instruction set that is not available: its kernels would
// end the process with an illegal instruction.
Isa isa_named(const std::string& name);

// True if the CPU has the VEX encoding of the 256-bit dot product (AVX-VNNI). CPUs with AVX512-VNNI and VL have the EVEX
// encoding.
bool has_vex_dot_products();

// True if subnormal arithmetic is as fast as normal arithmetic.
bool has_quick_subnormals();

}  // namespace tpuconvert
