// linear_bf16 at amx: TDPBF16PS, whose order of operations is the contract's dot32 (docs/numerics.md, "Float products"), on tiles of
// 32 inputs (tiles_dense.inl.h). Rows: bf16, padded with zeros to a multiple of 32 by prepare_bf16.
#include "linear/tiles_dense.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

struct Bf16Tiles {
  using Sum = float;
  static constexpr PackedKind kPacked = PackedKind::bf16;
  static constexpr bool kIsInt = false;
  static constexpr int64_t kInputs = 32;

  template <int R>
  static void end(const LinearArgs& a, int64_t row, int64_t panel, float* sums) {
    finish_tile<V, R, 1>(a, row, panel * kPanel, sums);
  }
};
static_assert(record_bytes(Bf16Tiles::kPacked, 0) == kRecord);

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  run_dense<Bf16Tiles>(*static_cast<const LinearArgs*>(raw), step, lane);
}

}  // namespace octavo::OCTAVO_ISA_NS
