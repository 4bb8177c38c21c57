// Packed layouts whose codes are kept in bit planes, so that a weight takes the bits that its format says.
//
// A chunk is 32 inputs of a panel: eight dwords of four inputs for each of 16 outputs, as in q8g32, but each code's low bits
// stand in one plane and its high bits, if any, in a second one behind it. A plane of b bits (4, 2 or 1) is b vectors of 64
// bytes, [b][16][4]: byte (v mod b, lane, i) holds, at bit b * (v / b), the bits of input 4v + i. A plane of 4 bits is q4g32's.
//
//            low   high   bytes of a chunk   and then
//   q6k      4     2      384                per 256 inputs, behind 8 chunks: scales i8 [16][16], d f16[16]          3,360 B
//   q5k      4     1      320                scales u8 [8][16], minima u8 [8][16], d f16[16], dmin f16[16]           2,880 B
//   q3k      2     1      192                scales i8 [16][16], d f16[16]                                           1,824 B
//   q2k      2     -      128                scale | minimum << 4, u8 [16][16], d f16[16], dmin f16[16]              1,344 B
//   q5g32    4     1      320                per 32 inputs: d f16[16], with kHasMin m f16[16]                   352, 384 B
//
// Codes are unsigned: q6k has zero point 32, q3k 4, q5g32 without minima 16, taken off in int32.
#pragma once
#include <cstdint>

namespace octavo {

// Everything about one layout. `low`, `high`: bits of the planes; `group`: inputs per sub-scale; K-quants have 256 inputs.
template <int low, int high, int group, int zero, bool has_min, bool has_pairs = false>
struct KPlanes {
  static constexpr int kLow = low, kHigh = high, kGroup = group, kZero = zero;
  static constexpr bool kMin = has_min;
  static constexpr bool kPairs = has_pairs;      // a scale and its minimum share a byte
  static constexpr bool kSigned = !has_min;      // of the sub-scales
  static constexpr bool kFolds = low == 2;       // sub-scale times code fits a byte: 15 * 3; -31 * 4 to 32 * 4 (negated it does)
  static constexpr int64_t kChunk = 64 * (low + high);
  static constexpr int64_t kScalesAt = 8 * kChunk;
  static constexpr int64_t kFieldBytes = 256 / group * 16;  // of scales, or of minima
  static constexpr int64_t kMinsAt = kScalesAt + kFieldBytes;
  static constexpr int64_t kHalvesAt = kMinsAt + (has_min && !has_pairs ? kFieldBytes : 0);
  static constexpr int64_t kBytes = kHalvesAt + (has_min ? 64 : 32);
};

using PlanesQ6k = KPlanes<4, 2, 16, 32, false>;
using PlanesQ5k = KPlanes<4, 1, 32, 0, true>;
using PlanesQ3k = KPlanes<2, 1, 16, 4, false>;
using PlanesQ2k = KPlanes<2, 0, 16, 0, true, true>;

template <bool has_min>
struct PlanesQ5g32 {
  static constexpr int kLow = 4, kHigh = 1, kZero = has_min ? 0 : 16;
  static constexpr bool kMin = has_min;
  static constexpr int64_t kChunk = 64 * (kLow + kHigh), kHalvesAt = kChunk, kBytes = kHalvesAt + (has_min ? 64 : 32);
};

}  // namespace octavo
