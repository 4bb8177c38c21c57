// linear_q6k, linear_q5k, linear_q4k, linear_q3k and linear_q2k: the layouts of their records, run by the level's
// run_k<Layout>(args, step, lane) over its own KLayout and Q4kLayout.
#pragma once
#include "exec/kernel.h"

namespace octavo::OCTAVO_ISA_NS {

void linear_q6k(const void* raw, const Step& step, const Lane& lane) { run_k<KLayout<PlanesQ6k>>(raw, step, lane); }
void linear_q5k(const void* raw, const Step& step, const Lane& lane) { run_k<KLayout<PlanesQ5k>>(raw, step, lane); }
void linear_q4k(const void* raw, const Step& step, const Lane& lane) { run_k<Q4kLayout>(raw, step, lane); }
void linear_q3k(const void* raw, const Step& step, const Lane& lane) { run_k<KLayout<PlanesQ3k>>(raw, step, lane); }
void linear_q2k(const void* raw, const Step& step, const Lane& lane) { run_k<KLayout<PlanesQ2k>>(raw, step, lane); }

}  // namespace octavo::OCTAVO_ISA_NS
