// Arguments of the linear ops: inputs are first brought into the weight format's input form (`prepare_*`), then multiplied
// with packed weights (csrc_common/packed/*.h). Input forms, row-major, k padded with zeros to a multiple of 32:
//
//   bf16   q uint16 [rows, ldq]                                           (prepare_bf16; for bf16 weights)
//   f32    the float32 rows themselves, no preparation                    (f16 and f32 weights; k tail handled by the kernel)
//   i8gN   q int8 [rows, ldq], scales f32 [rows, lds], sums i32 [rows, lds]      per N = 32, 64, 128 values (grouped weights)
//   i8g256 q int8 [rows, ldq], scales f32 [rows, lds] per 256, sums i32 [rows, 16 * lds] per 16 values (K-quants)
//   i8row  q int8 [rows, ldq], one scale f32 and one sum i32 per row, lds apart (one scale per output)
//
// i8gN rows are padded to whole groups, i8row rows to 64 values.
#pragma once
#include "exec/kernel.h"

namespace octavo {

struct PrepareArgs {
  const float* x;
  int64_t ldx;
  int64_t k;
  void* q;
  int64_t ldq;    // elements
  float* scales;  // null for bf16
  int32_t* sums;  // null for bf16
  int64_t lds;    // scale entries per row
  Rows rows;
};
inline constexpr Field kPrepareFields[] = {
    OCTAVO_FIELD(PrepareArgs, x, pointer),      OCTAVO_FIELD(PrepareArgs, ldx, i64),  OCTAVO_FIELD(PrepareArgs, k, i64),
    OCTAVO_FIELD(PrepareArgs, q, pointer),      OCTAVO_FIELD(PrepareArgs, ldq, i64),  OCTAVO_FIELD(PrepareArgs, scales, pointer),
    OCTAVO_FIELD(PrepareArgs, sums, pointer),   OCTAVO_FIELD(PrepareArgs, lds, i64),  OCTAVO_FIELD(PrepareArgs, rows, rows),
};

// Activation codes, in the order of platforms.types.Activation.
enum ActivationKind : int32_t { kNone, kSilu, kGelu, kGeluTanh, kRelu, kRelu2, kTanh, kSigmoid };

// y = residual + gate * act(scale * (x . w) + bias), each step rounded alone and skipped where absent.
struct LinearArgs {
  const void* x;         // prepared inputs
  int64_t ldx;           // elements
  const float* scales;   // of the inputs, or null
  const int32_t* sums;   // of the inputs, or null
  int64_t lds;
  const void* weight;    // packed panels of 16 outputs
  int64_t n;             // outputs
  int64_t k;             // inputs
  const float* bias;     // [n] or null
  const float* gate;     // [rows, ldgate] or null
  int64_t ldgate;
  const float* residual; // [rows, ldres] or null; may be y itself
  int64_t ldres;
  float* y;
  int64_t ldy;
  float scale;
  int32_t activation;    // ActivationKind
  int32_t flags;         // of the packed layout: kHasMin
  Rows rows;
#if !defined(OCTAVO_GPU)
  uint16_t* narrow;      // null, or bfloat16 [rows, ldnarrow], written instead of y: what prepare_bf16 makes of it; n is a multiple of 32
  int64_t ldnarrow;
#endif
};
inline constexpr Field kLinearFields[] = {
    OCTAVO_FIELD(LinearArgs, x, pointer),        OCTAVO_FIELD(LinearArgs, ldx, i64),
    OCTAVO_FIELD(LinearArgs, scales, pointer),   OCTAVO_FIELD(LinearArgs, sums, pointer),
    OCTAVO_FIELD(LinearArgs, lds, i64),          OCTAVO_FIELD(LinearArgs, weight, pointer),
    OCTAVO_FIELD(LinearArgs, n, i64),            OCTAVO_FIELD(LinearArgs, k, i64),
    OCTAVO_FIELD(LinearArgs, bias, pointer),     OCTAVO_FIELD(LinearArgs, gate, pointer),
    OCTAVO_FIELD(LinearArgs, ldgate, i64),       OCTAVO_FIELD(LinearArgs, residual, pointer),
    OCTAVO_FIELD(LinearArgs, ldres, i64),        OCTAVO_FIELD(LinearArgs, y, pointer),
    OCTAVO_FIELD(LinearArgs, ldy, i64),          OCTAVO_FIELD(LinearArgs, scale, f32),
    OCTAVO_FIELD(LinearArgs, activation, i32),   OCTAVO_FIELD(LinearArgs, flags, i32),
    OCTAVO_FIELD(LinearArgs, rows, rows),
#if !defined(OCTAVO_GPU)
    OCTAVO_OPTIONAL(LinearArgs, narrow, pointer), OCTAVO_OPTIONAL(LinearArgs, ldnarrow, i64),
#endif
};

// pack_<format>: checkpoint rows [n, k] -> packed panels. Rows land at outputs first_row .. first_row + n of a weight of
// `total_n` outputs, so that stacked tensors (q, k, v) become one weight.
struct PackArgs {
  const void* source;
  int64_t row_bytes;   // of the source; for transposed dense sources: bytes of one [n] row
  int64_t n;
  int64_t k;
  void* packed;
  int64_t first_row;
  int64_t total_n;
  int32_t transposed;  // dense only: source is [k, n]
  int32_t flags;       // of the packed layout, where scales are kept apart
  const void* scales;  // [n, groups of a row], kept apart, or null
  const uint8_t* zeros;  // zero points, the same shape, or null
  int64_t groups;      // of a row of scales
  int32_t* bad;        // set to 1 if a value, scale or minimum was not finite
};
inline constexpr Field kPackFields[] = {
    OCTAVO_FIELD(PackArgs, source, pointer),  OCTAVO_FIELD(PackArgs, row_bytes, i64), OCTAVO_FIELD(PackArgs, n, i64),
    OCTAVO_FIELD(PackArgs, k, i64),           OCTAVO_FIELD(PackArgs, packed, pointer), OCTAVO_FIELD(PackArgs, first_row, i64),
    OCTAVO_FIELD(PackArgs, total_n, i64),     OCTAVO_FIELD(PackArgs, transposed, i32), OCTAVO_FIELD(PackArgs, flags, i32),
    OCTAVO_FIELD(PackArgs, scales, pointer),  OCTAVO_FIELD(PackArgs, zeros, pointer),  OCTAVO_FIELD(PackArgs, groups, i64),
    OCTAVO_FIELD(PackArgs, bad, pointer),
};

}  // namespace octavo
