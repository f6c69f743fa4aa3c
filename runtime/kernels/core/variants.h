// Selection among the implementations of a kernel.
#pragma once

#include <vector>

#include "core/isa.h"

// Selects the implementation for an instruction set. Platforms other than x86-64 have only the scalar one, so the other
// arguments need not be declared there.
#if defined(__x86_64__)
#define TPU_SELECT(isa, scalar, avx2, avx512) \
  ((isa) == Isa::kAvx512Vnni ? (avx512) : (isa) != Isa::kScalar ? (avx2) : (scalar))
#else
#define TPU_SELECT(isa, scalar, avx2, avx512) (static_cast<void>(isa), (scalar))
#endif

namespace tpuconvert {

// The instruction sets of kernels with one implementation, of kernels that use TPU_SELECT, and of kernels that also
// have a variant for 256-bit byte dot products.
inline const std::vector<Isa> kScalarOnly{Isa::kScalar};
inline const std::vector<Isa> kVectorWidths{Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni};
inline const std::vector<Isa> kAllIsas{Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni};

}  // namespace tpuconvert
