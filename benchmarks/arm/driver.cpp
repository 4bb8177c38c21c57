// Runs one kernel of csrc_neon once between two marks, for counting its instructions (counts.py).
//
//   driver KERNEL name=value ...
//
// linear_*: n, k, rows, flags (packed/panels.h). prepare_*: k, rows. paged_attention_* and kv_append_*: heads, kv_heads, head_dim,
// tokens (new, of one sequence), length (with them). A first pair of marks holds the same call of a function that does nothing:
// what is counted there belongs to the call. Memory holds bytes below 64, which are finite in every format.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "contract/attention.h"
#include "contract/linear.h"
#include "exec/registry.h"
#include "packed/panels.h"

extern "C" {
[[gnu::noinline]] void count_begin() { asm volatile("" ::: "memory"); }
[[gnu::noinline]] void count_end() { asm volatile("" ::: "memory"); }
}

namespace octavo {
namespace {

using Sizes = std::map<std::string, int64_t>;

struct Kind {
  const char* name;
  PackedKind kind;
};
constexpr Kind kKinds[] = {
    {"linear_bf16", PackedKind::bf16},   {"linear_f16", PackedKind::f16},     {"linear_f32", PackedKind::f32},
    {"linear_q4g32", PackedKind::q4g32}, {"linear_q8g32", PackedKind::q8g32}, {"linear_q5g32", PackedKind::q5g32},
    {"linear_q4k", PackedKind::q4k},     {"linear_q5k", PackedKind::q5k},     {"linear_q6k", PackedKind::q6k},
    {"linear_q3k", PackedKind::q3k},     {"linear_q2k", PackedKind::q2k},     {"linear_w8a8", PackedKind::w8a8},
    {"linear_i4", PackedKind::i4},
};

// Memory that starts at a cache line, with room behind it. Filled in long runs: what runs between marks is not all that is logged.
template <class T>
T* filled(int64_t count) {
  constexpr size_t kPattern = 4096;
  static uint8_t pattern[kPattern];
  for (uint32_t i = 0, state = 1; i < kPattern && !pattern[kPattern - 1]; ++i) {
    state = state * 1664525u + 1013904223u;
    pattern[i] = static_cast<uint8_t>(state >> 26 | 1);
  }
  const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 2 * kPattern - 1) / kPattern * kPattern;
  auto* at = static_cast<uint8_t*>(std::aligned_alloc(64, bytes));
  for (size_t i = 0; i < bytes; i += kPattern) std::memcpy(at + i, pattern, kPattern);
  return reinterpret_cast<T*>(at);
}

void call(Kernel kernel, const void* args, const Step& step) {
  std::atomic<uint64_t> word{0};
  Share share{&word};
  const Lane lane{0, 1, &share, filled<uint8_t>(kScratchBytes), kScratchBytes};
  Kernel volatile chosen = kernel;
  count_begin();
  chosen(args, step, lane);
  count_end();
}

[[gnu::noinline]] void nothing(const void*, const Step&, const Lane&) { asm volatile("" ::: "memory"); }

void measure(const KernelRow& row, const void* args, const Step& step) {
  call(nothing, args, step);
  call(row.run, args, step);
}

void linear(const KernelRow& row, Sizes& sizes) {
  LinearArgs a{};
  a.n = sizes["n"], a.k = sizes["k"], a.flags = static_cast<int32_t>(sizes["flags"]);
  a.ldx = round_up(a.k, 256), a.lds = a.ldx / 32, a.ldy = a.n, a.scale = 1.0f;
  a.rows = {kFixed, static_cast<int32_t>(sizes["rows"])};
  const int64_t rows = sizes["rows"];
  a.x = filled<float>(rows * a.ldx), a.scales = filled<float>(rows * a.lds), a.sums = filled<int32_t>(rows * a.lds * 16);
  a.y = filled<float>(rows * a.n);
  for (const Kind& kind : kKinds)
    if (!std::strcmp(kind.name, row.op)) a.weight = filled<uint8_t>(packed_bytes(kind.kind, a.flags, a.n, a.k));
  if (!a.weight) std::exit(3);
  measure(row, &a, Step{});
}

void prepare(const KernelRow& row, Sizes& sizes) {
  PrepareArgs a{};
  const int64_t rows = sizes["rows"];
  a.k = sizes["k"], a.ldx = a.k, a.ldq = round_up(a.k, 256), a.lds = a.ldq / 32;
  a.rows = {kFixed, static_cast<int32_t>(rows)};
  a.x = filled<float>(rows * a.ldx), a.q = filled<uint16_t>(rows * a.ldq);
  a.scales = filled<float>(rows * a.lds), a.sums = filled<int32_t>(rows * a.lds * 16);
  measure(row, &a, Step{});
}

int32_t kv_type(const std::string& op) {
  const std::string type = op.substr(op.rfind('_') + 1);
  return type == "f32" ? kKVF32 : type == "bf16" ? kKVBF16 : type == "f16" ? kKVF16 : type == "fp8" ? kKVF8 : kKVI8;
}

// One sequence whose pages lie one after the other.
template <class Args>
void paged(const KernelRow& row, Sizes& sizes, Args& a) {
  const int32_t tokens = static_cast<int32_t>(sizes["tokens"]), length = static_cast<int32_t>(sizes["length"]);
  a.kv_heads = sizes["kv_heads"], a.head_dim = sizes["head_dim"], a.block_tokens = 32, a.kv_type = kv_type(row.op);
  a.page_bytes = a.kv_heads * kv_head_bytes(a.kv_type, a.block_tokens, a.head_dim);
  const int32_t pages = (length + 31) / 32;
  std::vector<int32_t> table, positions, of_token(static_cast<size_t>(tokens), 0);
  for (int32_t p = 1; p <= pages; ++p) table.push_back(p);
  for (int32_t t = length - tokens; t < length; ++t) positions.push_back(t);
  const int32_t starts[] = {0, tokens};
  Step step{};
  step.num_tokens = tokens, step.num_seqs = 1, step.positions = positions.data(), step.query_start = starts;
  step.kv_len = &length, step.token_seq = of_token.data(), step.pool = filled<uint8_t>((pages + 1) * a.page_bytes);
  step.groups[0] = {table.data(), pages};
  measure(row, &a, step);
}

void attention(const KernelRow& row, Sizes& sizes) {
  PagedAttentionArgs a{};
  const int64_t width = sizes["heads"] * sizes["head_dim"];
  a.heads = sizes["heads"], a.ldq = a.ldy = width, a.scale = 0.125f;
  a.q = filled<float>(sizes["tokens"] * width), a.y = filled<float>(sizes["tokens"] * width);
  paged(row, sizes, a);
}

void append(const KernelRow& row, Sizes& sizes) {
  KVAppendArgs a{};
  const int64_t width = sizes["kv_heads"] * sizes["head_dim"];
  a.ldk = a.ldv = width, a.k = filled<float>(sizes["tokens"] * width), a.v = filled<float>(sizes["tokens"] * width);
  paged(row, sizes, a);
}

int run(int count, char** words) {
  size_t num_rows = 0;
  const KernelRow* rows = kernel_rows(&num_rows);
  Sizes sizes;
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    sizes[word.substr(0, word.find('='))] = std::atoll(word.c_str() + word.find('=') + 1);
  }
  for (size_t i = 0; i < num_rows; ++i) {
    if (count < 2 || std::strcmp(rows[i].name, words[1])) continue;
    const std::string op = rows[i].op;
    if (op.rfind("linear_", 0) == 0) return linear(rows[i], sizes), 0;
    if (op.rfind("prepare_", 0) == 0) return prepare(rows[i], sizes), 0;
    if (op.rfind("paged_attention_", 0) == 0) return attention(rows[i], sizes), 0;
    if (op.rfind("kv_append_", 0) == 0) return append(rows[i], sizes), 0;
  }
  std::fprintf(stderr, "driver KERNEL name=value ...: no kernel of products, attention or their inputs is named %s\n",
               count < 2 ? "" : words[1]);
  return 2;
}

}  // namespace
}  // namespace octavo

int main(int count, char** words) { return octavo::run(count, words); }
