// Requantization of rows of sums with vectors of 8 lanes.
#include "int8/lanes/lanes_256.h"

namespace tpuconvert {
namespace {

using Lanes = Lanes256;

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/epilogue/epilogue_rows_tile.h"

namespace tpuconvert {

RowFunction row_function_avx2(const RowVariant& variant) { return function_for(variant); }

BlockFunction block_of_rows_avx2(const RowVariant& variant) { return block_for(variant); }

}  // namespace tpuconvert
