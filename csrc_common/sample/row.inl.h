// One row from logits to token: look, weigh, finish. The first two work on parts of a row, so that several threads can share it;
// the last brings the parts together. Parts meet in exact sums, maxima and lists, so no cut shows in the result.
#pragma once
#include "sample/draw.inl.h"
#include "sample/filters.inl.h"
#include "sample/report.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

constexpr int kMaxParts = 64;

// What the row's first filter needs of the whole vocabulary; `best` is greedy, `draw` has no filter.
enum class Way { best, draw, top_k, typical, top_p, min_p };

inline Way way_of(const SampleArgs& a, int64_t r) {
  if (!(a.temperature[r] > 0.0f)) return Way::best;
  if (a.top_k[r] > 0 && a.top_k[r] < a.vocab) return Way::top_k;
  if (a.typical_p[r] < 1.0f) return Way::typical;
  if (a.top_p[r] < 1.0f) return Way::top_p;
  return a.min_p[r] > 0.0f ? Way::min_p : Way::draw;
}

// What was found in one part of a row.
struct Part {
  Best best;          // before tempering
  Best drawn;         // by value and noise
  float report_top;   // of the values whose log-probabilities are asked for
  float floor;        // values above it are listed
  uint64_t mass;
  int64_t listed, reported;  // lengths of the part's lists
};

// A row's memory: lists with room for every id, where each part lists at its own ids; sums of segments; parts.
struct Slot {
  List list, best;
  float* sums;
  Part* parts;

  Slot(const SampleArgs& a, int64_t index) {
    const int64_t room = sample_room(a.vocab);
    float* at = reinterpret_cast<float*>(static_cast<uint8_t*>(a.work) + index * a.work_bytes);
    list = {at, reinterpret_cast<int32_t*>(at + room), at + 2 * room, 0};
    best = {at + 3 * room, reinterpret_cast<int32_t*>(at + 4 * room), nullptr, 0};
    sums = at + 5 * room;
    parts = reinterpret_cast<Part*>(at + 6 * room);
  }
};
static_assert(kMaxParts * sizeof(Part) <= kSamplePartBytes, "parts lie at the end of a row's memory");

struct Row {
  const SampleArgs& a;
  int64_t r;
  Slot slot;
  int64_t num_parts;
  float* buffer;  // of the thread, kVocabSegment values
  Way way;
  Source source, reported;

  Row(const SampleArgs& args, int64_t row, int64_t slot_index, int64_t parts, float* segment)
      : a(args),
        r(row),
        slot(args, slot_index),
        num_parts(parts),
        buffer(segment),
        way(way_of(args, row)),
        source(edited_source(args, row)),
        reported(args.raw_logprobs ? raw_source(args, row) : source) {}

  int64_t num_segments() const { return (a.vocab + kVocabSegment - 1) / kVocabSegment; }
  Range all() const { return {0, a.vocab}; }
  Range range_of(int64_t part) const {
    const int64_t begin = part * num_segments() / num_parts, end = (part + 1) * num_segments() / num_parts;
    return {begin * kVocabSegment, smaller(end * kVocabSegment, a.vocab)};
  }
  bool is_listed() const { return way != Way::best && way != Way::draw; }
  bool is_reported_early() const { return is_reported(a, r) && a.raw_logprobs; }

  void look(int64_t index) const;
  void weigh(int64_t index) const;
  void finish();

 private:
  List listed() const;
  float top() const;
  void filter(List* list) const;
  void filter_top_p_of_all(List* list) const;
  void report_listed(List* list, int32_t token) const;
  void report(int32_t token) const;
};

// First pass: the best, the draw or the top-k of a part, and the best of what is reported.
inline void Row::look(int64_t index) const {
  const Range range = range_of(index);
  Part& part = slot.parts[index];
  part = {};
  if (way == Way::top_k) {
    List list = slot.list.from(range.begin);
    list_best(source, range, a.top_k[r], buffer, &list);
    part.listed = list.n;
  } else if (way == Way::draw) {
    Draw draw = draw_of(a, r);
    draw_range(source, range, buffer, &draw);
    part.drawn = draw.best;
  } else {
    part.best = best_of(source, range, buffer);
  }
  if (!is_reported_early()) return;
  List best = slot.best.from(range.begin);
  list_best(reported, range, num_best(a, r), buffer, &best);
  part.reported = best.n;
  part.report_top = top_of(best);
}

// The greatest value of the row, tempered.
inline float Row::top() const {
  float top = -kInf;
  for (int64_t p = 0; p < num_parts; ++p) top = slot.parts[p].best.value > top ? slot.parts[p].best.value : top;
  return tempered<vec::F32x1>(top, source.temperature);
}

// Second pass, for what needs the top of the row: masses and candidates of filters, sums of log-probabilities.
inline void Row::weigh(int64_t index) const {
  const Range range = range_of(index);
  Part& part = slot.parts[index];
  const float above = top();
  List list = slot.list.from(range.begin);
  if (above > -kInf) {
    if (way == Way::typical) {
      list_above(source, range, -kInf, buffer, &list);
    } else if (way == Way::top_p) {
      part.floor = guess_floor(source, above, a.top_p[r]);
      part.mass = weigh_range(source, range, above, part.floor, buffer, &list);
    } else if (way == Way::min_p) {  // exp(y - top) >= min_p, with room for rounding
      const float below = 0.01f - vec::log<vec::F32x1>(a.min_p[r]) + vec::F32x1::abs(above) * 0x1p-20f;
      list_above(source, range, bound_below(above - below, source.temperature), buffer, &list);
    }
    if (way != Way::top_k) part.listed = list.n;
  }
  if (!is_reported_early()) return;
  float top = -kInf;
  for (int64_t p = 0; p < num_parts; ++p) top = slot.parts[p].report_top > top ? slot.parts[p].report_top : top;
  if (top > -kInf) sum_segments(reported, range, top, buffer, slot.sums);
}

// The lists of all parts, one after another.
inline List joined(const List& whole, const Row& row, int64_t Part::*count) {
  List list = whole;
  for (int64_t p = 0; p < row.num_parts; ++p) {
    const int64_t from = row.range_of(p).begin, n = row.slot.parts[p].*count;
    std::memmove(list.y + list.n, whole.y + from, static_cast<size_t>(n) * 4);
    std::memmove(list.id + list.n, whole.id + from, static_cast<size_t>(n) * 4);
    list.n += n;
  }
  return list;
}

// Top-p over the whole vocabulary: its candidates suffice if the cut lies above their floor. The guessed floor hardly ever fails,
// the second one only by rounding, at values whose differences float32 does not resolve.
inline void Row::filter_top_p_of_all(List* list) const {
  const float above = top();
  uint64_t total = 0;
  for (int64_t p = 0; p < num_parts; ++p) total += slot.parts[p].mass;
  const uint64_t needed = needed_mass(total, a.top_p[r]);
  const float floors[] = {slot.parts[0].floor, sure_floor(a, above, total - needed), -kInf};
  for (int i = 0; i < 3; ++i) {
    if (i > 0) {
      list->n = 0;
      list_above(source, all(), bound_below(floors[i], source.temperature), buffer, list);
    }
    if (weigh_list(*list, above) >= needed && filter_top_p(list, needed).key < descending_bits(floors[i])) return;
  }
}

inline void Row::filter(List* list) const {
  if (way == Way::top_k) filter_top_k(list, a.top_k[r]);
  if (a.typical_p[r] < 1.0f && list->n) filter_typical(list, a.typical_p[r]);
  if (way == Way::top_p) {
    if (top() > -kInf) filter_top_p_of_all(list);
  } else if (a.top_p[r] < 1.0f && list->n) {
    filter_top_p(list, needed_mass(weigh_list(*list, top_of(*list)), a.top_p[r]));
  }
  if (a.min_p[r] > 0.0f && list->n) filter_min_p(list, a.min_p[r]);
}

inline void Row::report_listed(List* list, int32_t token) const {
  const float top = top_of(*list);
  sum_segments(*list, top, num_segments(), slot.sums);
  const float log_sum = log_total(slot.sums, num_segments());
  int64_t at = 0;
  while (list->id[at] != token) ++at;
  a.logprobs[r] = (list->y[at] - top) - log_sum;
  a.ranks[r] = rank_among(*list, list->y[at], token);
  if (list->n > num_best(a, r)) keep_best(list, num_best(a, r));
  write_best(a, r, list, top, log_sum);
}

inline void Row::report(int32_t token) const {
  List best = slot.best;
  if (is_reported_early()) {
    best = joined(slot.best, *this, &Part::reported);
    if (best.n > num_best(a, r)) keep_best(&best, num_best(a, r));
  } else {
    list_best(reported, all(), num_best(a, r), buffer, &best);
    sum_segments(reported, all(), top_of(best), buffer, slot.sums);
  }
  const float top = top_of(best), log_sum = log_total(slot.sums, num_segments());
  const int64_t begin = token / kVocabSegment * kVocabSegment;
  float own = 0.0f;
  each_segment(reported, {begin, smaller(begin + kVocabSegment, a.vocab)}, buffer, [&](const float* x, int64_t start, int64_t) {
    own = tempered<vec::F32x1>(cleaned<vec::F32x1>(x[token - start]), reported.temperature);
  });
  a.logprobs[r] = (own - top) - log_sum;
  bool is_among_best = false;
  for (int64_t i = 0; i < best.n; ++i) is_among_best |= best.id[i] == token;
  a.ranks[r] = is_among_best ? rank_among(best, own, token) : rank_among(reported, all(), own, token, buffer);
  write_best(a, r, &best, top, log_sum);
}

// Brings the parts together: the token, and its log-probability.
inline void Row::finish() {
  Best best;
  List list = slot.list;
  if (is_listed()) {
    list = joined(slot.list, *this, &Part::listed);
    filter(&list);
    Draw draw = draw_of(a, r);
    draw_listed(list, &draw);
    best = draw.best;
  } else {
    for (int64_t p = 0; p < num_parts; ++p) {
      const Best& found = way == Way::draw ? slot.parts[p].drawn : slot.parts[p].best;
      if (found.value > best.value) best = found;
    }
  }
  a.ids[r] = best.id;
  report_nothing(a, r);
  if (best.id < 0 || !is_reported(a, r)) return;
  if (is_listed() && !a.raw_logprobs)
    report_listed(&list, best.id);
  else
    report(best.id);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
