// The linear ops in plain C++: the twin of platforms/reference, and the level every other one must equal bit for bit.
//
// One panel of 16 outputs and one row at a time; formulas are those of platforms/ops.py (linear), layouts those of
// packed/panels.h. Include once per translation unit; defines linear_{bf16,f16,f32,q4g32,q8g32,q4k}.
#pragma once
#include "packed/panels.h"
#include "ref/epilogue.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

using vec::float_of_bf16;
using vec::float_of_f16;
using vec::fma_scalar;

inline float half_lane(const uint8_t* p, int lane) {
  uint16_t h;
  std::memcpy(&h, p + 2 * lane, 2);
  return float_of_f16(h);
}

struct DenseBf16 {
  static constexpr PackedKind kKind = PackedKind::bf16;
  static float weight(const uint8_t* record, int i, int lane) {
    return float_of_bf16(reinterpret_cast<const uint16_t*>(record)[(i / 2 * 16 + lane) * 2 + i % 2]);
  }
  static float input(const LinearArgs& a, int64_t row, int64_t i) {
    return float_of_bf16(static_cast<const uint16_t*>(a.x)[row * a.ldx + i]);
  }
};

struct DenseF16 {
  static constexpr PackedKind kKind = PackedKind::f16;
  static float weight(const uint8_t* record, int i, int lane) {
    return float_of_f16(reinterpret_cast<const uint16_t*>(record)[i * 16 + lane]);
  }
  static float input(const LinearArgs& a, int64_t row, int64_t i) { return static_cast<const float*>(a.x)[row * a.ldx + i]; }
};

struct DenseF32 {
  static constexpr PackedKind kKind = PackedKind::f32;
  static float weight(const uint8_t* record, int i, int lane) { return reinterpret_cast<const float*>(record)[i * 16 + lane]; }
  static float input(const LinearArgs& a, int64_t row, int64_t i) { return static_cast<const float*>(a.x)[row * a.ldx + i]; }
};

// dot32: per block of 32 inputs an even and an odd fma chain from +0, then acc += e + o. Inputs beyond k are +0.
template <class Dense>
inline void dense_record(const LinearArgs& a, int64_t row, int64_t block, const uint8_t* record, float* acc) {
  float x[32];
  for (int i = 0; i < 32; ++i) x[i] = 32 * block + i < a.k ? Dense::input(a, row, 32 * block + i) : 0.0f;
  for (int lane = 0; lane < 16; ++lane) {
    float e = 0.0f, o = 0.0f;
    for (int i = 0; i < 32; i += 2) {
      e = fma_scalar(x[i], Dense::weight(record, i, lane), e);
      o = fma_scalar(x[i + 1], Dense::weight(record, i + 1, lane), o);
    }
    acc[lane] = acc[lane] + (e + o);
  }
}

// Input 4c + i of a group sits in byte (c, lane, i): low nibbles are inputs 0..15, high nibbles 16..31.
inline int code4(const uint8_t* codes, int input, int lane) {
  const uint8_t byte = codes[((input % 16) / 4 * 16 + lane) * 4 + input % 4];
  return input < 16 ? byte & 15 : byte >> 4;
}

inline void grouped_end(const LinearArgs& a, int64_t row, int64_t group, int lane, int32_t isum, const uint8_t* scales,
                        float* acc) {
  const float s = a.scales[row * a.lds + group];
  const int32_t asum = a.sums[row * a.lds + group];
  if (a.flags & kZero8) isum -= 8 * asum;
  acc[lane] = fma_scalar(static_cast<float>(isum), s * half_lane(scales, lane), acc[lane]);
  if (a.flags & kHasMin) acc[lane] = fma_scalar(static_cast<float>(asum), s * half_lane(scales + 32, lane), acc[lane]);
}

inline void q4g32_record(const LinearArgs& a, int64_t row, int64_t group, const uint8_t* record, float* acc) {
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx + 32 * group;
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = 0;
    for (int i = 0; i < 32; ++i) isum += x[i] * code4(record, i, lane);
    grouped_end(a, row, group, lane, isum, record + 256, acc);
  }
}

inline void q8g32_record(const LinearArgs& a, int64_t row, int64_t group, const uint8_t* record, float* acc) {
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx + 32 * group;
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = 0;
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = record[(i / 4 * 16 + lane) * 4 + i % 4];
      isum += x[i] * static_cast<int8_t>(byte);
    }
    grouped_end(a, row, group, lane, isum, record + 512, acc);
  }
}

inline void k_end(const LinearArgs& a, int64_t row, int64_t block, int lane, int32_t isum, int32_t msum, const uint8_t* d,
                  bool has_min, float* acc) {
  const float s = a.scales[row * a.lds + block];
  acc[lane] = fma_scalar(static_cast<float>(isum), s * half_lane(d, lane), acc[lane]);
  if (has_min) acc[lane] = fma_scalar(static_cast<float>(msum), -(s * half_lane(d + 32, lane)), acc[lane]);
}

inline void q4k_record(const LinearArgs& a, int64_t row, int64_t block, const uint8_t* record, float* acc) {
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.ldx + 256 * block;
  const int32_t* sums = a.sums + 16 * (row * a.lds + block);
  const uint8_t* sub_scales = record + 2048;
  const uint8_t* sub_mins = sub_scales + 128;
  for (int lane = 0; lane < 16; ++lane) {
    int32_t isum = 0, msum = 0;
    for (int sub = 0; sub < 8; ++sub) {
      int32_t dot = 0;
      for (int i = 0; i < 32; ++i) dot += x[32 * sub + i] * code4(record + 256 * sub, i, lane);
      isum += sub_scales[16 * sub + lane] * dot;
      msum += sub_mins[16 * sub + lane] * (sums[2 * sub] + sums[2 * sub + 1]);
    }
    k_end(a, row, block, lane, isum, msum, sub_mins + 128, true, acc);
  }
}

using Record = void (*)(const LinearArgs&, int64_t row, int64_t block, const uint8_t* record, float* acc);

inline void run_records(const void* raw, const Step& step, const Lane& lane, PackedKind kind, Record one) {
  const auto& a = *static_cast<const LinearArgs*>(raw);
  const int64_t rows = num_rows(a.rows, step);
  const int64_t bytes = record_bytes(kind, a.flags), inputs = record_inputs(kind, a.flags), blocks = round_up(a.k, inputs) / inputs;
  for (int64_t begin, end; lane.claim(round_up(a.n, kPanel) / kPanel * rows, 1, &begin, &end);) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t panel = unit / rows, row = unit % rows;
      const uint8_t* record = static_cast<const uint8_t*>(a.weight) + panel * blocks * bytes;
      float acc[16] = {};
      for (int64_t b = 0; b < blocks; ++b) one(a, row, b, record + b * bytes, acc);
      finish<vec::F32x1>(a, row, panel * kPanel, acc);
    }
  }
}

}  // namespace

void linear_bf16(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, DenseBf16::kKind, dense_record<DenseBf16>);
}
void linear_f16(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, DenseF16::kKind, dense_record<DenseF16>);
}
void linear_f32(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, DenseF32::kKind, dense_record<DenseF32>);
}
void linear_q4g32(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q4g32, q4g32_record);
}
void linear_q8g32(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q8g32, q8g32_record);
}
void linear_q4k(const void* raw, const Step& step, const Lane& lane) {
  run_records(raw, step, lane, PackedKind::q4k, q4k_record);
}

}  // namespace octavo::OCTAVO_ISA_NS
