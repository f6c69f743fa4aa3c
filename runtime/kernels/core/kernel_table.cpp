#include "core/kernel_table.h"

#include <utility>

namespace tpuconvert {

namespace {

std::vector<KernelEntry>& entries() {
  static std::vector<KernelEntry> all;
  return all;
}

}  // namespace

void add_kernel(KernelEntry entry) { entries().push_back(std::move(entry)); }

const std::vector<KernelEntry>& kernel_table() { return entries(); }

}  // namespace tpuconvert
