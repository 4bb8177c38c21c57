// What all pack_<format> share: writing one lane of a record, sharing out the work, noting what is not finite.
//
// Work is shared out by panel. A panel may hold rows of several tensors (first_row not a multiple of 16): only the lanes of
// this tensor are written, and the lanes beyond total_n are zeroed by the tensor that ends there. Rows are read as streams,
// one per lane; a record is written whole before the next. A value, scale or minimum that is not finite (its exponent is all
// ones) is packed as it is and noted in `bad`.
#pragma once
#include "contract/linear.h"
#include "packed/panels.h"
#include "vec/scalar.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// `n` dwords of one lane: dword c goes to record byte (c * 16 + lane) * 4.
inline void scatter(uint8_t* record, int lane, const void* source, int n) {
  const uint8_t* from = static_cast<const uint8_t*>(source);
  for (int c = 0; c < n; ++c) std::memcpy(record + (c * 16 + lane) * 4, from + 4 * c, 4);
}

inline void put_half(uint8_t* at, int lane, uint16_t h) { std::memcpy(at + 2 * lane, &h, 2); }

inline bool is_bad_f16(uint16_t h) { return (h & 0x7C00) == 0x7C00; }
inline bool is_bad_bf16(uint16_t h) { return (h & 0x7F80) == 0x7F80; }
inline bool is_bad_f32(uint32_t u) { return (u & 0x7F800000u) == 0x7F800000u; }

// All threads write the same value, so the order does not matter.
inline void note_bad(const PackArgs& a, bool is_bad) {
  if (is_bad) __atomic_store_n(a.bad, 1, __ATOMIC_RELAXED);
}

// Calls body(panel, first lane, end lane, row of the first lane, end of the zeroed lanes) for every panel of the tensor.
template <class Body>
inline void run_panels(const PackArgs& a, const Lane& lane, Body&& body) {
  const int64_t first = a.first_row / kPanel, last = round_up(a.first_row + a.n, kPanel) / kPanel;
  const bool ends_here = a.first_row + a.n >= a.total_n;
  for (int64_t begin, end; lane.claim(last - first, 1, &begin, &end);)
    for (int64_t p = first + begin; p < first + end; ++p) {
      const int64_t low = a.first_row > p * kPanel ? a.first_row - p * kPanel : 0;
      const int64_t left = a.first_row + a.n - p * kPanel;
      const int64_t high = left < kPanel ? left : kPanel;
      body(p, static_cast<int>(low), static_cast<int>(high), p * kPanel + low - a.first_row,
           static_cast<int>(ends_here ? kPanel : high));
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
