// The kernel table: every function that makes a step, with the instruction sets for which it has an implementation.
#pragma once

#include <string>
#include <vector>

#include "core/variants.h"

namespace tpuconvert {

struct KernelEntry {
  std::string name;
  Variants variants;
};

void add_kernel(KernelEntry entry);

// All kernels, in the order of their registration.
const std::vector<KernelEntry>& kernel_table();

}  // namespace tpuconvert
