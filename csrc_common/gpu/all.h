// Every GPU kernel, by family: what a build for one chip compiles, and what the host lists.
#pragma once
#include "gpu/attention.inl.h"
#include "gpu/greedy_head.inl.h"
#include "gpu/kv_append.inl.h"
#include "gpu/linear.inl.h"
#include "gpu/linear_groups.inl.h"
#include "gpu/linear_k256.inl.h"
#include "gpu/linear_mma.inl.h"
#include "gpu/norm.inl.h"
#include "gpu/pack.inl.h"
#include "gpu/prepare.inl.h"
#include "gpu/sample.inl.h"
#include "gpu/token.inl.h"
