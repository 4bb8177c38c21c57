// linear_bf16 at bf16fast: BFDOT and BFMMLA, for `--numerics fast` only.
//
// A step adds the products of two neighbouring inputs, summed by themselves before, to one sum per output, where the contract has two
// chains. FPCR.EBF is clear while kernels run (exec/wait.h), so the products, their sum and the new sum are each rounded to odd, and
// denormals count as zero. BFMMLA is two such steps, the pairs in order: the same bits as BFDOT's, so a row's do not depend on how
// many rows there are.
//
// Few rows: BFDOT by element takes weights as they are packed, four outputs x two inputs. A lone row takes two panels at a time, since
// four sums would each wait for the one before. From four rows on, BFMMLA over pairs of rows.
#include "linear/byte_pairs.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int64_t kRecord = record_bytes(PackedKind::bf16, 0);

struct Rows {
  static constexpr int kRows = 4, kPanels = 1, kSingles = 0, kInputBytes = 2;

  const LinearArgs& a;
  int64_t panel_bytes;

  // Rows come padded with zeros to whole records.
  template <int R, int C>
  [[gnu::noinline]] void tile(const TileAt& at) const {
    const uint16_t* x[R];
    for (int r = 0; r < R; ++r) x[r] = static_cast<const uint16_t*>(a.x) + (at.row + r) * a.ldx;
    const uint8_t* weights[C];
    for (int c = 0; c < C; ++c) weights[c] = static_cast<const uint8_t*>(a.weight) + (at.panel + c) * panel_bytes;
    F sum[R][C][4];
    for (auto& of_row : sum)
      for (auto& of_panel : of_row)
        for (F& s : of_panel) s = V::zero();
    Ahead<C> ahead(at, weights[0], panel_bytes);
    for (int64_t records = round_up(a.k, 32) / 32; records > 0; --records) {
      if (ahead.aim(weights[0])) each<0, kRecord / 64>([&](auto line) __attribute__((always_inline)) { ahead.ask(64 * line); });
      each<0, 4>([&](auto part) __attribute__((always_inline)) {
        bfloat16x8_t in[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) in[r] = vreinterpretq_bf16_u16(vld1q_u16(x[r] + 8 * part));
        each<0, 4>([&](auto pair) __attribute__((always_inline)) {
#pragma GCC unroll 2
          for (int c = 0; c < C; ++c) {
            Bytes w[4];
            load_four(weights[c], w);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
              for (int r = 0; r < R; ++r) sum[r][c][i] = vbfdotq_laneq_f32(sum[r][c][i], vreinterpretq_bf16_s8(w[i]), in[r], pair);
          }
        });
      });
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) x[r] += 32;
    }
    alignas(16) float sums[R * C * 16];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c)
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) V::store(sums + (r * C + c) * 16 + 4 * i, sum[r][c][i]);
    finish_tile<V, R, C>(a, at.row, at.panel * kPanel, sums);
  }
};

struct Pairs : BytePairs<F, 2> {
  template <int P>
  void finish(const TileAt& at, int64_t rows, const Sums<P>& sums) const {
    finish_pairs<P>(a, at, rows, sums);
  }
};

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t bytes = panel_bytes(PackedKind::bf16, 0, a.k);
  if (const Pairs pairs{a, bytes}; is_paired(pairs, step, lane)) return run_pairs(pairs, step, lane);
  const Rows few{a, bytes};
  run_units(a, step, lane, bytes, 16 * Rows::kRows, 1, [&](const Span& s) {
    int64_t panel = s.panel;
    const int64_t end = s.panel + s.panels;
    if (s.rows == 1) {
      if (s.is_first) ask_for_rows(few, s.row, 1);
      for (; panel + 2 <= end; panel += 2) few.tile<1, 2>(TileAt{s.row, panel, 0, 1, end, s.next});
    }
    tiles_of_panels<1>(few, s, panel);
  });
}

}  // namespace octavo::OCTAVO_ISA_NS
