#include "core/isa.h"

#include <stdexcept>

#if defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__) && defined(TPUCONVERT_HAS_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#define TPUCONVERT_CAN_USE_AMX
#endif
#endif

namespace tpuconvert {

namespace {

struct Entry {
  Isa isa;
  const char* name;
};

constexpr Entry kEntries[] = {
    {Isa::kScalar, "scalar"},         {Isa::kAvx2, "avx2"},       {Isa::kAvxVnni, "avxvnni"},
    {Isa::kAvx512Vnni, "avx512vnni"}, {Isa::kAmx, "amx"},         {Isa::kNeon, "neon"},
    {Isa::kDotprod, "dotprod"},       {Isa::kI8mm, "i8mm"}};

#if defined(TPUCONVERT_CAN_USE_AMX)
// True if the CPU has AMX-TILE and AMX-INT8, the operating system saves the tile registers, and it permits this process
// to use them. Linux refuses while a thread has a signal stack that is too small to save them.
bool enable_amx() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;                   // CPUID leaf 7, EDX
  constexpr unsigned kOsXsave = 1u << 27;                                  // CPUID leaf 1, ECX
  constexpr unsigned kTileState = 3u << 17;                                // XCR0: XTILECFG and XTILEDATA
  constexpr long kRequestPermission = 0x1023, kTileData = 18;              // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (~edx & (kTile | kInt8)) != 0) return false;
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (~eax & kTileState) == 0 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

#if defined(__aarch64__)
struct ArmFeatures {
  bool has_dotprod = false, has_i8mm = false;
};

#if defined(__APPLE__)
bool has_feature(const char* name) {
  int value = 0;
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

ArmFeatures arm_features() { return {has_feature("hw.optional.arm.FEAT_DotProd"), has_feature("hw.optional.arm.FEAT_I8MM")}; }
#elif defined(__linux__)
// Bits of the auxiliary vector, written out because the headers of older systems lack them.
constexpr unsigned long kHwcapAsimdDp = 1ul << 20, kHwcap2I8mm = 1ul << 13;

ArmFeatures arm_features() {
  return {(getauxval(AT_HWCAP) & kHwcapAsimdDp) != 0, (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0};
}
#else
ArmFeatures arm_features() { return {}; }
#endif
#endif

std::vector<Isa> find_isas() {
  std::vector<Isa> found{Isa::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
  if (has_avx2) found.push_back(Isa::kAvx2);
  if ((has_avx2 && has_vex_dot_products()) || has_avx512) found.push_back(Isa::kAvxVnni);
  if (has_avx512) found.push_back(Isa::kAvx512Vnni);
#if defined(TPUCONVERT_CAN_USE_AMX)
  if (has_avx512 && enable_amx()) found.push_back(Isa::kAmx);
#endif
#elif defined(__aarch64__)
  const ArmFeatures features = arm_features();
  found.push_back(Isa::kNeon);  // every AArch64 processor has it
  if (features.has_dotprod) found.push_back(Isa::kDotprod);
  if (features.has_dotprod && features.has_i8mm) found.push_back(Isa::kI8mm);
#endif
  return found;
}

}  // namespace

const char* name_of(Isa isa) { return kEntries[static_cast<int>(isa)].name; }

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = find_isas();
  return found;
}

Isa isa_named(const std::string& name) {
  for (const Isa isa : available_isas())
    if (name == name_of(isa)) return isa;
  for (const Entry& entry : kEntries)
    if (name == entry.name) throw std::invalid_argument("this machine does not support the instruction set '" + name + "'");
  throw std::invalid_argument("unknown instruction set '" + name + "'");
}

bool has_vex_dot_products() {
#if defined(__x86_64__)
  // CPUID leaf 7, subleaf 1, EAX. Clang before version 15 does not know the name for __builtin_cpu_supports.
  constexpr unsigned kAvxVnni = 1u << 4;
  static const bool has_vnni = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
  }();
  return has_vnni;
#else
  return false;
#endif
}

bool has_quick_subnormals() {
#if defined(__x86_64__)
  // Measured on Zen 4. Other CPUs with AVX-512 handle subnormal results in microcode, in more than a hundred cycles.
  __builtin_cpu_init();
  static const bool is_quick = __builtin_cpu_is("amd") != 0;
  return is_quick;
#elif defined(__aarch64__)
  return true;  // the vector units compute subnormal numbers without a trap
#else
  return false;
#endif
}

}  // namespace tpuconvert
