/* SPDX-License-Identifier: MIT
 * Windows over one to three axes, at a cost linear in the positions: neighbouring queries in the lanes, what a tap
 * reaches is a strip read a few positions further.  window_solver.h says how. */
#include "attend/solve/window_solver.h"

/* Each multiply-add has a load of its own, and backward computes scores twice.  Whole axes so short that flash
 * attention's tiles stay nearly empty cost less than there if several heads fill the lanes, as measured. */
static double cost(const attn__canonical *canonical)
{
    enum { SMALL = 256, SEVERAL = 4 }; /* numbers of a head's keys and values; heads */
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    double channels = (double)(canonical->contract.size + canonical->value.size);
    if (canonical->problem.nwindows == 0 && (double)canonical->key.size * channels <= SMALL &&
        attn__window_woven(canonical) >= SEVERAL)
        return 0.9 * pairs * channels;
    return pairs * (canonical->backward ? 2 : 1) * (30 + channels);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    attn__window_run(canonical, recipe->data, arrays, workspace);
}

const attn__solver attn__solver_window = {
    .name = "window", .refuse = attn__window_refuse, .cost = cost, .plan = attn__window_plan, .apply = apply};
