// Requantization of rows of sums with vectors of 4 lanes.
#if defined(__aarch64__)
#include "int8/lanes/lanes_neon.h"

namespace tpuconvert {
namespace {

using Lanes = LanesNeon;

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/epilogue/epilogue_rows_tile.h"

namespace tpuconvert {

RowFunction row_function_neon(const RowVariant& variant) { return function_for(variant); }

BlockFunction block_of_rows_neon(const RowVariant& variant) { return block_for(variant); }

}  // namespace tpuconvert

#endif
