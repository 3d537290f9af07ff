/* SPDX-License-Identifier: MIT */
#include "support/f64_cases.h"

#include "support/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_context *f64_context;
static int complaints;

int f64_open_context(void **state)
{
    (void)state;
    return attn_context_create(&f64_context, &(attn_context_options){.threads = 2}) != ATTN_OK;
}

int f64_close_context(void **state)
{
    (void)state;
    return close_context_of_tests(f64_context);
}

void f64_complain(const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_error("%s\n", text);
    complaints++;
}

void f64_end(void)
{
    int n = complaints;
    complaints = 0;
    if (n)
        fail_msg("%d complaints", n);
}

/* --------------------------------------------------------------------------------------------------- problems */

static int64_t or_one(int64_t x)
{
    return x ? x : 1;
}

static void lay_grid(const f64_grid *g, attn_problem *p)
{
    int64_t token = g->heads * g->channels, q = token, k = token, rows = 1;
    for (int a = g->axes - 1; a >= 0; a--) {
        int64_t size = g->size[a] ? g->size[a] : g->n[a] * or_one(g->step);
        p->dims[1 + a] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = g->n[a], .q = q, .o = q, .lse = rows};
        p->dims[1 + g->axes + a] = (attn_dim){.role = ATTN_ROLE_KEY, .n = g->taps[a], .k = k, .v = k};
        p->windows[a] = (attn_window){.query_dim = 1 + a,
                                      .key_dim = 1 + g->axes + a,
                                      .size = size,
                                      .step = g->step,
                                      .dilation = g->dilation,
                                      .border = g->border,
                                      .offset = g->moved - (g->taps[a] / 2) * or_one(g->dilation)};
        q *= g->n[a], k *= size, rows *= g->n[a];
    }
    int channel = 1 + 2 * g->axes;
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH, .n = g->heads, .lse = rows};
    p->dims[0].q = p->dims[0].k = p->dims[0].v = p->dims[0].o = g->channels;
    p->dims[channel] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = g->channels, .q = 1, .k = 1};
    p->dims[channel + 1] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = g->channels, .v = 1, .o = 1};
    p->ndims = channel + 2, p->nwindows = g->axes;
    p->flags = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    p->direction = ATTN_DIRECTION_BACKWARD;
}

static int last_of(const attn_problem *p, attn_role role)
{
    int found = 0;
    for (int d = 0; d < p->ndims; d++)
        found = p->dims[d].role == role ? d : found;
    return found;
}

/* Adds a relative table with a row for every distance. Without a window, distances run from -(queries - 1) to keys -
 * 1. */
static void add_table(attn_problem *p, attn_relative_kind kind, int axis, unsigned add)
{
    int channel = last_of(p, kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT);
    int head = last_of(p, ATTN_ROLE_BATCH), axes = p->nwindows ? p->nwindows : 1;
    int64_t n = p->dims[channel].n, width = n;
    attn_relative *r = &p->relatives[p->nrelatives++];
    *r = (attn_relative){.kind = kind};
    if (p->nwindows) {
        const attn_window *w = &p->windows[axis];
        int64_t taps = p->dims[w->key_dim].n * or_one(w->dilation), step = or_one(w->step);
        int64_t away = w->offset < 0 ? -w->offset : w->offset, across = p->dims[w->query_dim].n * step;
        r->query_dim = w->query_dim, r->key_dim = w->key_dim;
        r->offset = away + taps + (w->border == ATTN_BORDER_SHIFT ? across + w->size : 0);
        r->rows = 2 * r->offset + 1;
    } else {
        r->query_dim = last_of(p, ATTN_ROLE_QUERY), r->key_dim = last_of(p, ATTN_ROLE_KEY);
        r->offset = p->dims[r->query_dim].n;
        r->rows = r->offset + p->dims[r->key_dim].n + 1;
    }
    if (add & F64_RANGES) {
        r->begin = axes > 1 ? axis * n / axes : n / 3;
        r->end = axes > 1 ? (axis + 1) * n / axes : n - 1;
        width = r->end - r->begin;
    }
    r->row_stride = width, r->stride[channel] = 1;
    if (add & F64_OF_HEADS)
        r->stride[head] = width * r->rows;
}

static void add_bias(attn_problem *p)
{
    int64_t stride = 1;
    for (int d = p->ndims - 1; d >= 0; d--)
        if (p->dims[d].role == ATTN_ROLE_KEY || d == last_of(p, ATTN_ROLE_BATCH)) {
            p->dims[d].bias = stride;
            stride *= p->dims[d].n;
        }
    p->flags |= ATTN_WITH_BIAS | ATTN_WANT_DBIAS;
}

static void add_places(attn_problem *p)
{
    int64_t stride = 1;
    for (int i = p->nwindows - 1; i >= 0; i--) {
        p->dims[p->windows[i].key_dim].mask = stride;
        stride *= p->windows[i].size;
    }
    p->flags |= ATTN_WITH_MASK;
}

static void add_features(attn_problem *p, const f64_case *c)
{
    for (int axis = 0; axis < (p->nwindows ? p->nwindows : 1); axis++)
        for (int kind = 0; kind < 3; kind++)
            if (c->add >> kind & 1 && (p->nwindows < 3 || kind == axis))
                add_table(p, (attn_relative_kind)kind, axis, c->add);
    if (c->add & F64_TABLES)
        p->flags |= ATTN_WANT_DTABLES;
    if (c->add & F64_BIAS)
        add_bias(p);
    if (c->add & F64_PLACES)
        add_places(p);
    if (c->add & F64_BAND)
        p->bands[p->nbands++] = p->nwindows
                                    ? (attn_band){p->windows[0].query_dim, p->windows[0].key_dim, -2, 3}
                                    : (attn_band){last_of(p, ATTN_ROLE_QUERY), last_of(p, ATTN_ROLE_KEY), -2, 3};
    if (c->score != ATTN_SCORE_DOT)
        p->score = c->score;
    if (c->score == ATTN_SCORE_ADDITIVE || c->score == ATTN_SCORE_CONCAT) {
        p->dims[last_of(p, ATTN_ROLE_CONTRACT)].w = 1;
        p->flags |= ATTN_WANT_DW;
    }
    p->flags |= c->with;
    p->dtype = c->f32 ? ATTN_F32 : ATTN_F64;
    p->seed = 5;
    p->width = c->width != 0 ? c->width : p->width;
    p->mask_fill = c->fill != 0 ? c->fill : p->mask_fill;
    p->dropout = c->dropout != 0 ? c->dropout : p->dropout;
    p->softcap = c->softcap != 0 ? c->softcap : p->softcap;
}

/* Sets the offsets of three packed sequences: one with the largest length, one of length 0, and one with the
 * remaining positions. If there is space, a gap precedes each sequence. */
static void set_offsets(random_problem *r)
{
    static int32_t q[64], k[64];
    const attn_packed *packed = &r->forward.packed;
    int64_t n = r->forward.dims[packed->batch_dim].n;
    int64_t longest[] = {r->forward.dims[packed->query_dim].n, r->forward.dims[packed->key_dim].n};
    int64_t all[] = {packed->queries, packed->keys};
    int32_t *offsets[] = {q, k};
    for (int side = 0; side < 2; side++)
        for (int64_t s = 0; s <= n && s < 64; s++) {
            int64_t before = s ? offsets[side][s - 1] : 0;
            int64_t length = s == 0 ? 1 : s == 2 ? 0 : longest[side] - (s > 2 && longest[side] > 0);
            offsets[side][s] = (int32_t)(before + length < all[side] ? before + length : all[side]);
        }
    r->arrays.q_offsets = q, r->arrays.k_offsets = k;
}

static void set_index(random_problem *r)
{
    static int32_t index[4096];
    int64_t low = 0;
    for (int d = 0; d < r->forward.ndims; d++)
        if (r->forward.dims[d].role == ATTN_ROLE_QUERY && r->forward.dims[d].bias < 0)
            low += r->forward.dims[d].bias * (r->forward.dims[d].n - 1);
    for (int i = 0; i < 4096; i++)
        index[i] = (int32_t)((i * 7 + i / 5) % r->forward.bias_index.rows);
    r->arrays.bias_index = index - low;
}

void f64_make(random_problem *r, const f64_case *c)
{
    memset(r, 0, sizeof *r);
    attn_problem *p = &r->backward;
    if (c->grid)
        lay_grid(c->grid, p);
    else if (attn_problem_parse(p, f64_context, c->text, ATTN_DIRECTION_BACKWARD) != ATTN_OK)
        fail_msg("%s: %s", c->text, attn_context_error(f64_context));
    add_features(p, c);
    r->forward = *p;
    r->forward.direction = ATTN_DIRECTION_FORWARD;
    r->forward.flags = (p->flags & ATTN_WITH_ALL & ~(unsigned)ATTN_WITH_DLSE) | ATTN_WANT_LSE;
    if (p->flags & ATTN_WITH_PACKED)
        set_offsets(r);
    if (p->flags & ATTN_WITH_BIAS_INDEX)
        set_index(r);
    random_problem_arrays(r, 5);
    random_problem_poison(r);
}

const char *f64_name(const f64_case *c)
{
    static char text[300];
    const f64_grid *g = c->grid;
    int n = g ? snprintf(text, sizeof text, "grid of %d axes, border %d, step %d, dilation %d", g->axes, (int)g->border,
                         (int)g->step, (int)g->dilation)
              : snprintf(text, sizeof text, "%s", c->text);
    snprintf(text + n, sizeof text - (size_t)n,
             " (add %u, width %g, fill %g, dropout %g, cap %g, with 0x%x, score %d%s)", c->add, c->width, c->fill,
             c->dropout, c->softcap, c->with, (int)c->score, c->f32 ? ", f32" : "");
    return text;
}

/* ----------------------------------------------------------------------------------------------------- running */

attn_plan *f64_plan(attn_context *context, const attn_problem *p, int threads, const f64_case *c)
{
    attn_plan *plan;
    attn_plan_options options = {.solver = c->any ? NULL : "blocked", .threads = threads};
    if (attn_plan_create(&plan, context, p, &options) == ATTN_OK)
        return plan;
    f64_complain("%s, %s: %s", f64_name(c), p->direction == ATTN_DIRECTION_BACKWARD ? "backward" : "forward",
                 attn_context_error(context));
    attn_context_clear_error(context);
    return NULL;
}

bool f64_run(attn_context *context, const attn_problem *p, const attn_arrays *arrays, const f64_case *c)
{
    attn_plan *plan = f64_plan(context, p, 0, c);
    if (!plan)
        return false;
    attn_status status = attn_plan_execute(plan, arrays, NULL);
    if (status != ATTN_OK)
        f64_complain("%s: %s", f64_name(c), attn_context_error(context));
    attn_plan_destroy(plan);
    return status == ATTN_OK;
}
