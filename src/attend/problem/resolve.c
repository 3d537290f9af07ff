/* SPDX-License-Identifier: MIT
 * Sets the defaults of a checked problem and clears the fields that its direction does not use, so that later code sees
 * one form of each setting. */
#include "attend/problem/problem.h"
#include "attend/scores/score.h"

#include <math.h>

static double default_scale(const attn_problem *p)
{
    double channels = 1;
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_CONTRACT)
            channels *= (double)p->dims[i].n;
    return attn__score_of(p)->by_root && channels > 0 ? 1 / sqrt(channels) : 1;
}

static void resolve_windows(attn_problem *p)
{
    for (int i = 0; i < p->nwindows; i++) {
        attn_window *w = &p->windows[i];
        w->step = w->step ? w->step : 1;
        w->dilation = w->dilation ? w->dilation : 1;
    }
}

static void resolve_tables(attn_problem *p)
{
    for (int i = 0; i < p->nrelatives; i++) {
        attn_relative *r = &p->relatives[i];
        int last = attn__last_dim(p, attn__table_role(r));
        if (r->begin == 0 && r->end == 0)
            r->end = last < 0 ? 1 : p->dims[last].n;
    }
}

static void resolve_strides(attn_problem *p, attn_dim *dim)
{
    if (!p->own_grad_strides) {
        dim->dq = dim->q, dim->dk = dim->k, dim->dv = dim->v;
        dim->dout = dim->o, dim->dbias = dim->bias;
    }
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
        if (!attn__operand_used(p, op))
            *attn__stride_at(dim, op) = 0;
}

void attn__resolve_problem(attn_problem *p)
{
    const unsigned backward_only = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES |
                                   ATTN_WANT_DW | ATTN_WANT_DSINKS | ATTN_WITH_DLSE;
    p->flags &=
        p->direction == ATTN_DIRECTION_BACKWARD ? ~(unsigned)(ATTN_WANT_LSE | ATTN_WANT_WEIGHTS) : ~backward_only;
    if (!(p->flags & ATTN_WANT_WEIGHTS))
        p->npicks = 0;
    if (p->scale == 0)
        p->scale = default_scale(p);
    if (p->width == 0)
        p->width = 1;
    resolve_windows(p);
    resolve_tables(p);
    for (int i = 0; i < p->ndims; i++)
        resolve_strides(p, &p->dims[i]);
}
