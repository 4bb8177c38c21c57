// Arguments of greedy_head: the token of the greatest logit of each row, of logits that are never all in memory.
//
// The outputs of `linear` are cut into parts. A thread that has claimed one lets the product's own kernel compute some panels
// of it at a time into `room`, looks for the greatest there while they are in its caches, and keeps (value, id) per part and
// row; a second stage picks among the parts. Values and order are those of linear, softcap and a greedy `sample`.
#pragma once
#include "contract/linear.h"

namespace octavo {

struct GreedyHeadArgs {
  LinearArgs linear;      // of the whole head, but for y and ldy, which are not read
  const KernelRow* few;   // kernels of the product; `many` from many_from rows on
  const KernelRow* many;
  int64_t many_from;
  int64_t panel_bytes;    // of packed weights: 16 outputs
  float softcap;          // 0: none
  float* room;            // [threads][room_bytes]
  int64_t room_bytes;     // at least greedy_room_bytes(most rows)
  float* values;          // [parts, ldparts] the greatest logit
  int32_t* places;        // [parts, ldparts] its id, -1 for none
  int64_t ldparts;
  int64_t parts;          // 1 to the number of panels
  int32_t* y;             // out [rows, ldy] ids, -1 where no logit is a number
  int64_t ldy;
  int32_t stage;          // GreedyStage
};

enum GreedyStage : int32_t { kGreedyLook, kGreedyPick };

// Panels whose logits a thread holds at a time: 128 KiB, which fit in L2 beside the weights of a group of panels; less, and the
// product's kernel would work on shorter runs of memory (32 KiB were tried: a fifth slower with 16 rows).
constexpr int64_t kGreedyRoom = 128 << 10, kGreedyPanels = 32;
constexpr int64_t greedy_panels(int64_t rows) {
  return kGreedyRoom / (64 * rows) > kGreedyPanels ? kGreedyRoom / (64 * rows) : kGreedyPanels;
}
// Rows are a panel further apart than they are long: a power of two apart they would share one set of the cache.
constexpr int64_t greedy_stride(int64_t rows) { return 16 * (greedy_panels(rows) + 1); }
constexpr int64_t greedy_room_bytes(int64_t rows) { return (kGreedyRoom > 64 * kGreedyPanels * rows ? kGreedyRoom : 64 * kGreedyPanels * rows) + 64 * rows; }

inline constexpr Field kGreedyHeadFields[] = {
    OCTAVO_FIELD(GreedyHeadArgs, linear.x, pointer),          OCTAVO_FIELD(GreedyHeadArgs, linear.ldx, i64),
    OCTAVO_FIELD(GreedyHeadArgs, linear.scales, pointer),     OCTAVO_FIELD(GreedyHeadArgs, linear.sums, pointer),
    OCTAVO_FIELD(GreedyHeadArgs, linear.lds, i64),            OCTAVO_FIELD(GreedyHeadArgs, linear.weight, pointer),
    OCTAVO_FIELD(GreedyHeadArgs, linear.n, i64),              OCTAVO_FIELD(GreedyHeadArgs, linear.k, i64),
    OCTAVO_FIELD(GreedyHeadArgs, linear.bias, pointer),       OCTAVO_FIELD(GreedyHeadArgs, linear.gate, pointer),
    OCTAVO_FIELD(GreedyHeadArgs, linear.ldgate, i64),         OCTAVO_FIELD(GreedyHeadArgs, linear.residual, pointer),
    OCTAVO_FIELD(GreedyHeadArgs, linear.ldres, i64),          OCTAVO_FIELD(GreedyHeadArgs, linear.scale, f32),
    OCTAVO_FIELD(GreedyHeadArgs, linear.activation, i32),     OCTAVO_FIELD(GreedyHeadArgs, linear.flags, i32),
    OCTAVO_FIELD(GreedyHeadArgs, linear.rows, rows),          OCTAVO_FIELD(GreedyHeadArgs, few, kernel),
    OCTAVO_FIELD(GreedyHeadArgs, many, kernel),               OCTAVO_FIELD(GreedyHeadArgs, many_from, i64),
    OCTAVO_FIELD(GreedyHeadArgs, panel_bytes, i64),           OCTAVO_FIELD(GreedyHeadArgs, softcap, f32),
    OCTAVO_FIELD(GreedyHeadArgs, room, pointer),              OCTAVO_FIELD(GreedyHeadArgs, room_bytes, i64),
    OCTAVO_FIELD(GreedyHeadArgs, values, pointer),            OCTAVO_FIELD(GreedyHeadArgs, places, pointer),
    OCTAVO_FIELD(GreedyHeadArgs, ldparts, i64),               OCTAVO_FIELD(GreedyHeadArgs, parts, i64),
    OCTAVO_FIELD(GreedyHeadArgs, y, pointer),                 OCTAVO_FIELD(GreedyHeadArgs, ldy, i64),
    OCTAVO_FIELD(GreedyHeadArgs, stage, i32),
};

}  // namespace octavo
