// What the products by vectors of SVE share: the length that is there, and the end of a tile.
#pragma once
#include "linear/panels.inl.h"
#include "linear/tile_walk.inl.h"
#include "sve/vectors.inl.h"

namespace octavo::OCTAVO_ISA_NS {
namespace {

// Sums [R][16] of a tile of a panel. One copy serves all formats and lengths.
template <int R>
__attribute__((noinline)) void finish_panel(const LinearArgs& a, const TileAt& at, float* sums) {
  finish_tile<V, R, 1>(a, at.row, at.panel * kPanel, sums);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA_NS
