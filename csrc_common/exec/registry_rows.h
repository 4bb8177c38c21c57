// The rows of a module, from the kernels.inc and the levels of its own folder; included by its registry.cpp alone.
#pragma once
#include "exec/registry.h"

#include "contract/attention.h"
#include "contract/greedy_head.h"
#include "contract/linear.h"
#include "contract/sample.h"
#include "contract/token.h"
#include "cpu_features.h"

namespace octavo {

#define OCTAVO_KERNEL(op, level, Args, fields)    \
  namespace level {                               \
  void op(const void*, const Step&, const Lane&); \
  }
#include "kernels.inc"
#undef OCTAVO_KERNEL

namespace {

constexpr uint64_t required_of(const char* level) {
  for (const Level& row : kLevels) {
    const char* a = row.name;
    const char* b = level;
    while (*a && *a == *b) ++a, ++b;
    if (*a == *b) return row.required;
  }
  return ~0ull;
}

#define OCTAVO_KERNEL(op, level, Args, fields) \
  static_assert(sizeof(Args) <= kMaxArgsBytes && required_of(#level) != ~0ull, #op "__" #level);
#include "kernels.inc"
#undef OCTAVO_KERNEL

const KernelRow kRows[] = {
#define OCTAVO_KERNEL(op, level, Args, fields)                                             \
  KernelRow{#op,    #op "__" #level, #level,         required_of(#level), &level::op, \
            fields, sizeof(fields) / sizeof(fields[0]), sizeof(Args)},
#include "kernels.inc"
#undef OCTAVO_KERNEL
};

}  // namespace

const KernelRow* kernel_rows(size_t* count) {
  *count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}

}  // namespace octavo
