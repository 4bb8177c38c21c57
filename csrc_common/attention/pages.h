// Where a sequence's keys and values lie: addresses of the 32-token tiles inside KV pages (layout: contract/attention.h).
// Baseline code; a namespace per level keeps inline symbols apart.
#pragma once
#include <cstring>

#include "contract/attention.h"

namespace octavo::OCTAVO_ISA_NS {

constexpr int64_t kTileTokens = 32;

// One kv head of one sequence. Positions are absolute; the page of a position must not be the null page.
struct HeadPages {
  const int32_t* table;  // the sequence's row of the block table
  uint8_t* base;         // pool + layer offset + kv head offset
  int64_t page_bytes;
  int64_t block_tokens;
  int64_t head_dim;
  int64_t element_bytes;
  bool is_one_tile;  // pages of one tile: no division

  template <class Args>
  HeadPages(const Args& a, const Step& step, int64_t seq, int64_t kv_head)
      : table(step.groups[a.group].block_table + seq * step.groups[a.group].table_stride),
        base(step.pool + a.layer_offset + kv_head * kv_head_bytes(a.kv_type, a.block_tokens, a.head_dim)),
        page_bytes(a.page_bytes),
        block_tokens(a.block_tokens),
        head_dim(a.head_dim),
        element_bytes(kv_element_bytes(a.kv_type)),
        is_one_tile(a.block_tokens == kTileTokens) {}

  uint8_t* page(int64_t position) const {
    return base + table[is_one_tile ? position / kTileTokens : position / block_tokens] * page_bytes;
  }
  int64_t tile_bytes() const { return kTileTokens * head_dim * element_bytes; }
  int64_t sub_block(int64_t position) const { return is_one_tile ? 0 : position % block_tokens / kTileTokens; }
  uint8_t* k_tile(int64_t position) const { return page(position) + sub_block(position) * tile_bytes(); }
  uint8_t* v_tile(int64_t position) const {
    return page(position) + block_tokens * head_dim * element_bytes + sub_block(position) * tile_bytes();
  }
  // int8 and fp8 only: the 32 scales of the tile.
  float* k_scales(int64_t position) const {
    return reinterpret_cast<float*>(page(position) + 2 * block_tokens * head_dim) + sub_block(position) * kTileTokens;
  }
  float* v_scales(int64_t position) const { return k_scales(position) + block_tokens; }
};

}  // namespace octavo::OCTAVO_ISA_NS
