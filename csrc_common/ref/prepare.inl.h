// prepare_i8gN, prepare_i8row, and prepare_bf16 from its own header: float32 rows -> the input form of a weight format (contract/linear.h).
//
// int8 per group (or row): s = amax / 127, q = half-even(x / s), both true divisions; the sums of q (per group, per 16 or per
// row) let kernels take zero points and minima off. amax 0, and amax so small that s is flushed, give zeros and scale 0. A group that holds a
// NaN or an infinity gives zeros and scale NaN, so that its row's outputs are NaN and no other row's. Inputs beyond k are
// padded with zeros to whole groups (rows: to 64 values). One body for every level, over the vector class V.
#pragma once
#include "ref/prepare_bf16.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Sixteen int32 in [-127, 127] -> int8; returns their sum.
inline int32_t store_codes(int8_t* q, const V::I (&v)[16 / V::kLanes]) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm512_cvtepi32_epi8(v[0]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), bytes);
  const __m128i halves = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());  // of q + 128
  return _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_shuffle_epi32(halves, 0x4E))) - 16 * 128;
#elif defined(__AVX2__)
  const __m256i words = _mm256_packs_epi32(v[0], v[1]);  // 0-3 8-11 | 4-7 12-15
  const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm_shuffle_epi32(_mm_packs_epi16(low, high), 0xD8));
  __m128i s = _mm_madd_epi16(_mm_add_epi16(low, high), _mm_set1_epi16(1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
#elif defined(__aarch64__)
  const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(v[0]), vreinterpretq_s16_s32(v[1]));
  const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(v[2]), vreinterpretq_s16_s32(v[3]));
  const int8x16_t bytes = vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
  vst1q_s8(q, bytes);
  return vaddlvq_s8(bytes);
#else
  int32_t sum = 0;
  for (int i = 0; i < 16; i += V::kLanes) {
    alignas(64) int32_t lanes[V::kLanes];
    std::memcpy(lanes, &v[i / V::kLanes], sizeof lanes);
    for (int j = 0; j < V::kLanes; ++j) {
      q[i + j] = static_cast<int8_t>(lanes[j]);
      sum += lanes[j];
    }
  }
  return sum;
#endif
}

// Largest |x| of n values (a multiple of 16), NaN if one of them is not finite.
inline float peak(const float* x, int64_t n) {
#if defined(__aarch64__)  // magnitudes are in the order of their bits, what is not finite above all
  uint32x4_t most[4];
  for (auto& part : most) part = vdupq_n_u32(0);
  for (int64_t i = 0; i < n; i += 16)
    for (int p = 0; p < 4; ++p) {
      const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + i + 4 * p));
      most[p] = vmaxq_u32(most[p], vbicq_u32(bits, vdupq_n_u32(0x80000000u)));
    }
  const uint32_t bits = vmaxvq_u32(vmaxq_u32(vmaxq_u32(most[0], most[1]), vmaxq_u32(most[2], most[3])));
  float top;
  std::memcpy(&top, &bits, sizeof top);
  return bits < 0x7F800000u ? top : __builtin_nanf("");
#else
  constexpr int kParts = 16 / V::kLanes;
  V::F top[kParts], poison[kParts];
  for (int p = 0; p < kParts; ++p) top[p] = poison[p] = V::zero();
  for (int64_t i = 0; i < n; i += 16)
    for (int p = 0; p < kParts; ++p) {
      const V::F v = V::load(x + i + p * V::kLanes);
      top[p] = V::max(V::abs(v), top[p]);
      poison[p] = V::fma(v, V::zero(), poison[p]);  // inf * 0 and NaN * 0 are NaN
    }
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const bool is_bad = _mm512_cmp_ps_mask(poison[0], _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0;
  const __m256 both = _mm256_max_ps(_mm512_castps512_ps256(top[0]), _mm512_extractf32x8_ps(top[0], 1));
#else
  const __m256 bad = _mm256_cmp_ps(_mm256_add_ps(poison[0], poison[1]), _mm256_setzero_ps(), _CMP_NEQ_UQ);
  const bool is_bad = _mm256_movemask_ps(bad) != 0;
  const __m256 both = _mm256_max_ps(top[0], top[1]);
#endif
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  most = _mm_max_ss(most, _mm_movehdup_ps(most));
  return is_bad ? __builtin_nanf("") : _mm_cvtss_f32(most);
#else
  alignas(64) float lanes[16], bad[16];
  for (int p = 0; p < kParts; ++p) {
    V::store(lanes + p * V::kLanes, top[p]);
    V::store(bad + p * V::kLanes, poison[p]);
  }
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) {
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
      bad[i] = bad[i] + bad[i + half];
    }
  return bad[0] == 0.0f ? lanes[0] : __builtin_nanf("");
#endif
#endif
}

// Codes of n inputs (a multiple of 16) with scale s, zeros where s is zero or NaN; returns their sum.
inline int32_t codes_of(const float* x, int64_t n, float s, int8_t* q) {
  const bool is_empty = !(s > 0.0f);
  const V::F divisor = V::broadcast(is_empty ? 1.0f : s);
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i += 16) {
    V::I codes[16 / V::kLanes];
    for (int p = 0; p < 16; p += V::kLanes)
      codes[p / V::kLanes] = is_empty ? V::ibroadcast(0) : V::cvt_i32(V::div(V::load(x + i + p), divisor));
    sum += store_codes(q + i, codes);
  }
  return sum;
}

// One group of n inputs; `sums` gets one entry per `sum_every` of them.
template <int n, int sum_every>
inline void one_group(const float* x, int8_t* q, float* scale, int32_t* sums) {
  const float s = peak(x, n) / 127.0f;
  *scale = s;
  for (int i = 0; i < n; i += sum_every) sums[i / sum_every] = codes_of(x + i, sum_every, s, q + i);
}

// A whole row of k inputs, padded with zeros to a multiple of 64: two walks, one for the peak and one for the codes.
inline void one_row(const float* x, int64_t k, int8_t* q, float* scale, int32_t* sum) {
  alignas(64) float padded[64] = {};
  const int64_t whole = k / 64 * 64;
  std::memcpy(padded, x + whole, static_cast<size_t>(k - whole) * sizeof(float));
  const float first = whole ? peak(x, whole) : 0.0f, last = peak(padded, 64);
  float top = first > last ? first : last;  // a NaN in `last` is taken
  if (first != first) top = first;
  const float s = top / 127.0f;
  *scale = s;
  *sum = codes_of(x, whole, s, q);
  if (whole < k) *sum += codes_of(padded, 64, s, q + whole);
}

template <int group, int sum_every>
inline void prepare_i8(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const PrepareArgs*>(raw);
  run_pieces(a, step, lane, [&](int64_t row, int64_t first, int64_t last) {
    const float* x = a.x + row * a.ldx;
    int8_t* q = static_cast<int8_t*>(a.q) + row * a.ldq;
    float* scale = a.scales + row * a.lds + first / group;
    int32_t* sums = a.sums + group / sum_every * (row * a.lds + first / group);
    int64_t i = first;
    for (; i + group <= last; i += group, ++scale, sums += group / sum_every) one_group<group, sum_every>(x + i, q + i, scale, sums);
    if (i == last) return;
    alignas(64) float padded[group] = {};
    std::memcpy(padded, x + i, static_cast<size_t>(last - i) * sizeof(float));
    one_group<group, sum_every>(padded, q + i, scale, sums);
  });
}

}  // namespace

void prepare_i8g32(const void* raw, const Step& step, const Lane& lane) { prepare_i8<32, 32>(raw, step, lane); }
void prepare_i8g64(const void* raw, const Step& step, const Lane& lane) { prepare_i8<64, 64>(raw, step, lane); }
void prepare_i8g128(const void* raw, const Step& step, const Lane& lane) { prepare_i8<128, 128>(raw, step, lane); }
void prepare_i8row(const void* raw, const Step& step, const Lane& lane) {
  const auto& a = *static_cast<const PrepareArgs*>(raw);
  const int64_t rows = num_rows(a.rows, step);
  for (int64_t begin, end; lane.claim(rows, lane.worthwhile(rows, a.k), &begin, &end);)
    for (int64_t row = begin; row < end; ++row)
      one_row(a.x + row * a.ldx, a.k, static_cast<int8_t*>(a.q) + row * a.ldq, a.scales + row * a.lds, a.sums + row * a.lds);
}
void prepare_i8g256(const void* raw, const Step& step, const Lane& lane) { prepare_i8<256, 16>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
