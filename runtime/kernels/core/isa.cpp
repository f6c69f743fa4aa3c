#include "core/isa.h"

#include <stdexcept>

namespace tpuconvert {

namespace {

struct Entry {
  Isa isa;
  const char* name;
};

constexpr Entry kEntries[] = {
    {Isa::kScalar, "scalar"}, {Isa::kAvx2, "avx2"}, {Isa::kAvxVnni, "avxvnni"}, {Isa::kAvx512Vnni, "avx512vnni"}};

}  // namespace

const char* name_of(Isa isa) { return kEntries[static_cast<int>(isa)].name; }

Isa isa_named(const std::string& name) {
  for (const Entry& entry : kEntries)
    if (name == entry.name) return entry.isa;
  throw std::invalid_argument("unknown instruction set '" + name + "'");
}

std::vector<Isa> available_isas() {
  std::vector<Isa> found{Isa::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
  if (has_avx2) found.push_back(Isa::kAvx2);
  // CPUs with AVX-VNNI have the VEX encoding of the 256-bit dot product, those with AVX512-VNNI and VL the EVEX encoding.
#if defined(__GNUC__) && __GNUC__ >= 11
  const bool has_avxvnni = has_avx2 && __builtin_cpu_supports("avxvnni");
#else
  const bool has_avxvnni = false;
#endif
  if (has_avxvnni || has_avx512) found.push_back(Isa::kAvxVnni);
  if (has_avx512) found.push_back(Isa::kAvx512Vnni);
#endif
  return found;
}

bool has_quick_subnormals() {
#if defined(__x86_64__)
  // Measured on Zen 4. Other CPUs with AVX-512 handle subnormal results in microcode, in more than a hundred cycles.
  __builtin_cpu_init();
  static const bool is_quick = __builtin_cpu_is("amd") != 0;
  return is_quick;
#else
  return false;
#endif
}

}  // namespace tpuconvert
