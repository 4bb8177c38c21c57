// OCTAVO_INTERLEAVE(): a place where another thread that comes in between matters. The stress test makes threads wait there.
#pragma once

#ifndef OCTAVO_INTERLEAVE
#define OCTAVO_INTERLEAVE()
#endif
