// Keys and values of attention on matrix units in pages, by runs of 16 positions; straight from memory to the registers of the wave
// that multiplies them.
#pragma once

#include "gpu/attention_mma_rows.h"

#if defined(OCTAVO_HAS_MMA)

namespace octavo::gpu {

// Where 16 neighbouring positions lie, the first of them a multiple of 16.
struct Run {
  const uint8_t* keys;
  int32_t slot;  // in the page
};

// Pages of one kv head of one sequence, by run.
template <class KV>
struct RunPages {
  const int32_t* table;
  const uint8_t* base;
  int64_t page_bytes;
  uint32_t magic;  // division by what a page holds
  int32_t runs, row_bytes, values_from;

  OCTAVO_GPU_FN RunPages(const PagedAttentionArgs& a, const Step& step, int64_t seq, int64_t kv_head) {
    const HeadPages<KV> pages(a, step, seq, kv_head);
    table = pages.table;
    base = pages.base;
    page_bytes = a.page_bytes;
    runs = static_cast<int32_t>(a.block_tokens) / kTokenRun;
    magic = (0x80000000u + static_cast<uint32_t>(runs) - 1) / static_cast<uint32_t>(runs);
    row_bytes = static_cast<int32_t>(a.head_dim * sizeof(typename KV::T));
    values_from = static_cast<int32_t>(a.block_tokens) * row_bytes;
  }

  OCTAVO_GPU_FN int32_t block_of(int32_t run) const {  // run * runs < 2^31
    return static_cast<int32_t>(static_cast<uint64_t>(static_cast<uint32_t>(run)) * magic >> 31);
  }
  OCTAVO_GPU_FN int32_t page_of(int32_t run) const { return load_uniform(table + block_of(run)); }
  OCTAVO_GPU_FN Run run(int32_t run, int32_t page) const {
    const int32_t slot = (run - block_of(run) * runs) * kTokenRun;
    return {base + page * page_bytes + slot * row_bytes, slot};
  }

  // The scale of key i of 32, or of value i - 32.
  OCTAVO_GPU_FN float scale(const Run& first, const Run& second, int i) const {
    const Run both[2] = {{first.keys, first.slot}, {second.keys, second.slot}};  // of one's own: others would then lie in scratch memory
    const Run& run = i % 32 < kTokenRun ? both[0] : both[1];
    const int32_t slot = run.slot;
    const uint8_t* keys = run.keys;
    const auto* scales = reinterpret_cast<const float*>(keys - slot * row_bytes + 2 * values_from) + slot;
    const float scale = scales[i / 32 * (runs * kTokenRun) + i % kTokenRun];
    return CodesOf<KV>::kFactor == 1.0f ? scale : scale * (1.0f / CodesOf<KV>::kFactor);
  }
};

// Tiles of 16 dimensions that head_dim fills at least: smaller heads have kernels of their own.
template <int kSteps>
constexpr int kFewestTilesOf = kSteps <= 2 ? 1 : kSteps <= 4 ? 4 : 2 * kSteps - 4;

// The runs of tile after tile, page numbers read ahead of their use.
template <class KV>
struct TileRuns {
  RunPages<KV> pages;
  int32_t last_run = 0, page = 0, other_page = 0;
  Run first{}, second{};
  OCTAVO_GPU_FN explicit TileRuns(const RunPages<KV>& p) : pages(p) {}
  OCTAVO_GPU_FN int32_t run(int32_t tile, int half) const { return 2 * tile + half < last_run ? 2 * tile + half : last_run; }
  OCTAVO_GPU_FN void start(int32_t tile, int32_t, int32_t to) {
    last_run = to / kTokenRun;
    page = pages.page_of(run(tile, 0));
    other_page = pages.page_of(run(tile, 1));
  }
  OCTAVO_GPU_FN void next(int32_t tile, int32_t apart) {
    const int32_t next = pages.page_of(run(tile + apart, 0)), other_next = pages.page_of(run(tile + apart, 1));
    first = pages.run(run(tile, 0), page);
    second = pages.run(run(tile, 1), other_page);
    page = next;
    other_page = other_next;
  }
};

template <class KV>
struct PageTiles : TileRuns<KV> {
  using Units = KVUnits<KV>;
  using Rows = QueryRows;
  using KeyUnit = Words4;
  using T = typename KV::T;
  static constexpr bool kHasScales = KV::kHasScales;
  static constexpr int kElementBytes = sizeof(T);
  using TileRuns<KV>::TileRuns;
  OCTAVO_GPU_FN void fetch_scales(float* to) const {
#pragma unroll
    for (int at = 0; at < 64; at += kWave) to[at + lane()] = this->pages.scale(this->first, this->second, at + lane());
  }

  template <int kSteps, int kHalves>
  struct Keys {
    const uint8_t* at[kHalves][kUnits];
    int32_t row_bytes;
    OCTAVO_GPU_FN void load(Words4& to, int half, int u, int load) const {
      const bool is_there = 64 * load + 64 <= kFewestTilesOf<kSteps> * 16 * kElementBytes ||
                            16 * opaque(unit_q(u)) < row_bytes - 64 * load;
      const int32_t instead = load > 0 ? 64 * (load - 1) : -16 * unit_q(u);
      to = *reinterpret_cast<const Words4*>(at[half][u] + (is_there ? 64 * load : instead));
    }
  };
  template <int kSteps, int kHalves>
  OCTAVO_GPU_FN Keys<kSteps, kHalves> keys(int first_half) const {
    Keys<kSteps, kHalves> to;
    to.row_bytes = opaque_uniform(this->pages.row_bytes);
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int token = token_of_row(first_half + half, opaque(unit_row(u)));
        to.at[half][u] = (token < kTokenRun ? this->first.keys : this->second.keys) +
                         static_cast<uint32_t>(token % kTokenRun * to.row_bytes + 16 * opaque(unit_q(u)));
      }
    return to;
  }

  struct Values {
    const uint8_t* at[kUnits];
    OCTAVO_GPU_FN void load(typename Units::ValueUnit (&to)[kUnits], int tile, bool is_there) const {
      const uint32_t offset = is_there ? 16u * static_cast<uint32_t>(tile) * kTokenRun * kElementBytes : 0;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) to[u] = *reinterpret_cast<const typename Units::ValueUnit*>(at[u] + offset);
    }
  };
  OCTAVO_GPU_FN Values values() const {
    Values to;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int q = opaque(unit_q(u));
      to.at[u] = (q < 2 ? this->first.keys : this->second.keys) + this->pages.values_from +
                 static_cast<uint32_t>(opaque(unit_row(u)) * kTokenRun + q % 2 * kUnit) * static_cast<uint32_t>(sizeof(T));
    }
    return to;
  }
};

}  // namespace octavo::gpu

#endif
