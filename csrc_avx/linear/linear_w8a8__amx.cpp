// linear_w8a8 at amx: TDPBSUD on tiles of 64 inputs, exact int32 sums (tiles_dense.inl.h).
// Rows: int8, padded with zeros to a multiple of 64 by prepare_i8row.
#include "linear/tiles_dense.inl.h"
#include "linear/w8a8_end.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct W8a8Tiles {
  using Sum = int32_t;
  static constexpr PackedKind kPacked = PackedKind::w8a8;
  static constexpr bool kIsInt = true;
  static constexpr int64_t kInputs = 64;

  template <int R>
  static void end(const LinearArgs& a, int64_t row, int64_t panel, const int32_t* sums) {
    w8a8_end<R, 1>(a, row, panel, sums);
  }
};
static_assert(record_bytes(W8a8Tiles::kPacked, 0) == kRecord);

}  // namespace

void linear_w8a8(const void* raw, const Step& step, const Lane& lane) {
  run_dense<W8a8Tiles>(*static_cast<const LinearArgs*>(raw), step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
