// Where the parts of a group's record of 4-bit weights with scales apart are (packed/panels.h): codes, scales, zero points.
#pragma once
#include "packed/panels.h"

namespace octavo {

struct I4Record {
  __attribute__((always_inline)) explicit I4Record(int32_t of_flags)
      : flags(of_flags),
        num_inputs(group_inputs(flags)),
        num_bytes(record_bytes(PackedKind::i4, flags)),
        scales_at(num_inputs * kPanel / 2),
        zeros_at(scales_at + scale_bytes(flags) * kPanel) {}

  __attribute__((always_inline)) int64_t inputs() const { return num_inputs; }
  __attribute__((always_inline)) int64_t bytes() const { return num_bytes; }

  const int32_t flags;
  const int64_t num_inputs, num_bytes, scales_at, zeros_at;
};

}  // namespace octavo
