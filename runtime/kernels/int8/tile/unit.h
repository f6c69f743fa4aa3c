// The unit that multiplies the register tiles of an instruction set.
#pragma once

#include "core/isa.h"
#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

// AMX has no kernels in a build whose compiler lacks it; available_isas() does not contain it there.
inline TileUnit tile_unit(Isa isa) {
#if defined(TPUCONVERT_HAS_AMX)
  if (isa == Isa::kAmx) return TileUnit::kAmx;
#endif
  static_cast<void>(isa);
  return TileUnit::kVnni;
}

// Tile registers of the thread during a run. They are cleared at its end.
class TileRegisters {
 public:
  explicit TileRegisters(TileUnit unit) : unit_(unit) {}
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
  ~TileRegisters() {
#if defined(TPUCONVERT_HAS_AMX)
    if (rows_ != 0) release_amx();
#endif
  }

  // Prepares the registers for blocks of these numbers of rows, and chunks of `chunk_bytes`; for VNNI, does nothing.
  void configure(int first_rows, int second_rows, std::size_t chunk_bytes) {
#if defined(TPUCONVERT_HAS_AMX)
    const bool is_ready = first_rows == rows_ && second_rows == second_rows_ && chunk_bytes == chunk_bytes_;
    if (unit_ == TileUnit::kVnni || is_ready) return;
    configure_amx(first_rows, second_rows, chunk_bytes);
    rows_ = first_rows;
    second_rows_ = second_rows;
    chunk_bytes_ = chunk_bytes;
#else
    static_cast<void>(first_rows), static_cast<void>(second_rows), static_cast<void>(chunk_bytes);
#endif
  }

 private:
  [[maybe_unused]] TileUnit unit_;  // the members are not used in a build without AMX
  [[maybe_unused]] int rows_ = 0, second_rows_ = 0;
  [[maybe_unused]] std::size_t chunk_bytes_ = 0;
};

}  // namespace tpuconvert::avx512
