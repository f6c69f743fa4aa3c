// The table of kernels: every function that makes a step, with the instruction sets that it has an implementation for.
#pragma once

#include <string>
#include <vector>

#include "core/variants.h"

namespace tpuconvert {

struct KernelEntry {
  std::string name;
  std::vector<Isa> variants;  // ascending; an instruction set that is missing runs the next lower variant
};

void add_kernel(KernelEntry entry);

// All kernels, in the order of their registration.
const std::vector<KernelEntry>& kernel_table();

}  // namespace tpuconvert
