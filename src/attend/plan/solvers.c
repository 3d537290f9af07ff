/* SPDX-License-Identifier: MIT
 * The solver table, made from solvers.inc. */
#include "attend/plan/solver.h"

#define X(name) extern const attn__solver attn__solver_##name;
#include "attend/plan/solvers.inc"
#undef X

const attn__solver *const attn__solvers[] = {
#define X(name) &attn__solver_##name,
#include "attend/plan/solvers.inc"
#undef X
};

const int attn__solver_count = (int)(sizeof attn__solvers / sizeof *attn__solvers);

const char *attn_solver_name(int i)
{
    return i >= 0 && i < attn__solver_count ? attn__solvers[i]->name : NULL;
}
