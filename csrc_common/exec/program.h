// A recorded program: a flat list of kernel calls over a planned arena, run in one call without the interpreter.
//
// Each instruction holds its arguments ready-made (absolute pointers into arena, weights and inputs) and its kernels by number of
// rows; levels agree bit for bit, so the choice never shows.
// Callers run sub-ranges [first, last): the recorder cuts at every layer and at every attention | FFN seam.
#pragma once
#include <vector>

#include "exec/kernel.h"
#include "exec/team.h"

namespace octavo {

constexpr int kMaxBands = 4;

// A kernel, and the rows from which it runs.
struct Band {
  int64_t from;
  const KernelRow* row;
};

struct Instruction {
  Band bands[kMaxBands];  // ascending, the first from 0 on
  int num_bands;
  Rows rows;  // how many there are
  alignas(16) uint8_t args[kMaxArgsBytes];

  const KernelRow& kernel(int64_t num_rows) const {
    int at = 0;
    while (at + 1 < num_bands && bands[at + 1].from <= num_rows) ++at;
    return *bands[at].row;
  }
};

class Program {
 public:
  size_t add(const Instruction& instruction) {
    list_.push_back(instruction);
    return list_.size() - 1;
  }
  const std::vector<Instruction>& list() const { return list_; }
  std::vector<Instruction>& list() { return list_; }

  // Runs instructions [first, last) on the team. `clock` (seconds) is filled per instruction if not null.
  void run(Team& team, const Step& step, size_t first, size_t last, double* clock, double (*now)()) const {
    auto op = [&](size_t i, const Lane& lane) {
      const Instruction& ins = list_[first + i];
      if (clock && lane.share->is_opener()) {
        const double start = now();
        clock[first + i] = -start;
        if (i > 0) clock[first + i - 1] += start;
      }
      ins.kernel(num_rows(ins.rows, step)).run(ins.args, step, lane);
    };
    if (first >= last) return;
    team.run(last - first, op);
    if (clock) clock[last - 1] += now();
  }

 private:
  std::vector<Instruction> list_;
};

}  // namespace octavo
