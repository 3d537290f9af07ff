/* SPDX-License-Identifier: MIT
 *
 * Draws the dims and features of a random problem. random_arrays.c sets its strides and allocates its arrays.
 */
#include "support/random_problem.h"

#include "support/random_arrays.h"

#include "attend/scores/score.h"

#include <math.h>
#include <stdio.h>

static int below(attn__rng *g, int n)
{
    return (int)attn__rng_below(g, (uint64_t)n);
}

static bool chance(attn__rng *g, int percent)
{
    return below(g, 100) < percent;
}

static int64_t length(attn__rng *g)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 33, 47, 48, 49, 65};
    return sizes[below(g, (int)(sizeof sizes / sizeof *sizes))];
}

static int64_t channels(attn__rng *g)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 32, 33, 40};
    return sizes[below(g, (int)(sizeof sizes / sizeof *sizes))];
}

static void add(attn_problem *p, attn_role role, int64_t n)
{
    p->dims[p->ndims++] = (attn_dim){.role = role, .n = n};
}

/* Adds two BATCH dims and one dim of each other role. Fast solvers support such problems. */
static void plain_dims(attn__rng *g, attn_problem *p)
{
    add(p, ATTN_ROLE_BATCH, 1 + below(g, 2));
    add(p, ATTN_ROLE_BATCH, 1 + below(g, 3));
    add(p, ATTN_ROLE_QUERY, length(g));
    add(p, ATTN_ROLE_KEY, length(g));
    add(p, ATTN_ROLE_CONTRACT, channels(g));
    add(p, ATTN_ROLE_VALUE, chance(g, 60) ? p->dims[4].n : channels(g));
}

static void mixed_dims(attn__rng *g, attn_problem *p)
{
    static const attn_role roles[] = {ATTN_ROLE_BATCH, ATTN_ROLE_QUERY, ATTN_ROLE_KEY, ATTN_ROLE_CONTRACT,
                                      ATTN_ROLE_VALUE};
    for (int r = 0; r < 5; r++) {
        int n = roles[r] == ATTN_ROLE_BATCH ? below(g, 4) : 1 + chance(g, 40);
        for (int i = 0; i < n; i++)
            add(p, roles[r], roles[r] == ATTN_ROLE_BATCH ? 1 + below(g, 3) : n > 1 ? 1 + below(g, 7) : length(g));
    }
    for (int i = p->ndims - 1; i > 0 && chance(g, 90); i--) {
        int j = below(g, i + 1);
        attn_dim swap = p->dims[i];
        p->dims[i] = p->dims[j];
        p->dims[j] = swap;
    }
    if (chance(g, 3))
        p->dims[below(g, p->ndims)].n = 0;
}

/* Adds a query axis for each key axis, because windows and relative tables need such pairs. Sometimes adds one more
 * query axis. */
static void paired_dims(attn__rng *g, attn_problem *p)
{
    int axes = 1 + below(g, 3);
    add(p, ATTN_ROLE_BATCH, 1 + below(g, 2));
    add(p, ATTN_ROLE_BATCH, 1 + below(g, 3));
    if (chance(g, 20))
        add(p, ATTN_ROLE_QUERY, 1 + below(g, 3));
    for (int i = 0; i < axes; i++) {
        int64_t n = axes == 1 ? length(g) : axes == 2 ? 1 + below(g, 14) : 1 + below(g, 6);
        add(p, ATTN_ROLE_QUERY, n);
        add(p, ATTN_ROLE_KEY, chance(g, 80) ? n : 1 + below(g, 9));
    }
    add(p, ATTN_ROLE_CONTRACT, channels(g));
    add(p, ATTN_ROLE_VALUE, channels(g));
}

static double work_of(const attn_problem *p)
{
    double pairs = 1, size[2] = {1, 1};
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role <= ATTN_ROLE_KEY)
            pairs *= (double)p->dims[i].n;
        else
            size[p->dims[i].role - ATTN_ROLE_CONTRACT] *= (double)p->dims[i].n;
    return pairs * (size[0] + size[1]);
}

static void cut_to_size(attn__rng *g, attn_problem *p)
{
    while (work_of(p) > 40000) {
        attn_dim *dim = &p->dims[below(g, p->ndims)];
        dim->n -= dim->n > 3 ? dim->n / 3 : dim->n > 1;
    }
}

int random_dim(attn__rng *g, const attn_problem *p, attn_role role)
{
    int dims[ATTN_MAX_DIMS], n = 0;
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == role)
            dims[n++] = i;
    return n ? dims[below(g, n)] : -1;
}

static void draw_windows(attn__rng *g, attn_problem *p, int percent)
{
    for (int key = 0; key < p->ndims && p->nwindows < ATTN_MAX_WINDOWS; key++) {
        if (p->dims[key].role != ATTN_ROLE_KEY || !chance(g, percent))
            continue;
        p->dims[key].n = p->dims[key].n > 7 ? 1 + below(g, 7) : p->dims[key].n;
        attn_window w = {.query_dim = random_dim(g, p, ATTN_ROLE_QUERY),
                         .key_dim = key,
                         .step = below(g, 3),
                         .dilation = below(g, 4),
                         .border = (attn_border)below(g, 3)};
        int64_t taps = p->dims[key].n, dilation = w.dilation ? w.dilation : 1, step = w.step ? w.step : 1;
        w.size = p->dims[w.query_dim].n * step + below(g, 3) - 1;
        w.offset = chance(g, 70) ? -(taps / 2) * dilation : below(g, 9) - 4;
        if (w.size < taps * dilation && (w.border == ATTN_BORDER_SHIFT || w.size < 0))
            w.size = taps * dilation;
        p->windows[p->nwindows++] = w;
    }
}

static const attn_window *window_on(const attn_problem *p, int key_dim)
{
    for (int i = 0; i < p->nwindows; i++)
        if (p->windows[i].key_dim == key_dim)
            return &p->windows[i];
    return NULL;
}

static int query_for(attn__rng *g, const attn_problem *p, int key_dim)
{
    const attn_window *w = window_on(p, key_dim);
    return w ? w->query_dim : random_dim(g, p, ATTN_ROLE_QUERY);
}

static void draw_bands(attn__rng *g, attn_problem *p)
{
    int n = chance(g, 40) ? 1 + chance(g, 20) : 0;
    for (int i = 0; i < n; i++) {
        int key = random_dim(g, p, ATTN_ROLE_KEY);
        attn_band band = {.query_dim = query_for(g, p, key), .key_dim = key, .lo = INT64_MIN, .hi = INT64_MAX};
        int64_t tq = p->dims[band.query_dim].n, tk = p->dims[key].n;
        if (chance(g, 70))
            band.hi = chance(g, 40) ? 0 : chance(g, 50) ? tk - tq : below(g, 9) - 4;
        if (chance(g, 30))
            band.lo = (band.hi == INT64_MAX ? 0 : band.hi) - below(g, 12);
        p->bands[p->nbands++] = band;
    }
}

static void draw_table(attn__rng *g, attn_problem *p, int key, int query)
{
    attn_relative r = {.kind = (attn_relative_kind)below(g, 3), .query_dim = query, .key_dim = key};
    attn_role role = r.kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT;
    const attn_window *w = window_on(p, key);
    int64_t tq = p->dims[r.query_dim].n, tk = p->dims[key].n, last = 0;
    r.offset = tq - 1;
    r.rows = tq + tk - 1 + below(g, 2);
    if (w) {
        int64_t reach = (w->size + tq * (w->step ? w->step : 1) + tk * (w->dilation ? w->dilation : 1) + 8);
        r.offset = reach;
        r.rows = 2 * reach + 1;
    }
    r.rows = r.rows > 0 ? r.rows : 1;
    for (int d = 0; d < p->ndims; d++)
        if (p->dims[d].role == role)
            last = p->dims[d].n;
    if (chance(g, 30) && last > 1) {
        r.begin = below(g, (int)last);
        r.end = r.begin + 1 + below(g, (int)(last - r.begin));
    }
    p->relatives[p->nrelatives++] = r;
}

/* Draws windows for all key dims, each along the query dim before it, or sometimes only tables. */
static void draw_paired(attn__rng *g, attn_problem *p)
{
    bool windows = chance(g, 60);
    if (windows)
        draw_windows(g, p, 100);
    for (int i = 0; i < p->nwindows; i++)
        p->windows[i].query_dim = p->windows[i].key_dim - 1;
    for (int i = 0; i < p->nwindows; i++) {
        attn_window *w = &p->windows[i];
        int64_t taps = p->dims[w->key_dim].n, dilation = w->dilation ? w->dilation : 1, step = w->step ? w->step : 1;
        w->size = p->dims[w->query_dim].n * step + below(g, 3) - 1;
        if (w->size < taps * dilation && (w->border == ATTN_BORDER_SHIFT || w->size < 0))
            w->size = taps * dilation;
    }
}

static void draw_paired_tables(attn__rng *g, attn_problem *p)
{
    for (int key = 0; key < p->ndims; key++)
        for (int i = 0; p->dims[key].role == ATTN_ROLE_KEY && i < 2; i++)
            if (p->nrelatives < ATTN_MAX_RELATIVE && chance(g, 60))
                draw_table(g, p, key, key - 1);
}

static void draw_score(attn__rng *g, attn_problem *p)
{
    static const attn_score kernels[] = {ATTN_SCORE_BOXCAR, ATTN_SCORE_CONSTANT, ATTN_SCORE_TRIANGULAR};
    if (chance(g, 65))
        return;
    p->score = (attn_score)below(g, ATTN_SCORE_COUNT);
    if (p->score == ATTN_SCORE_DOT && chance(g, 50))
        p->normalization = ATTN_NORMALIZATION_MEAN;
    if (p->score == ATTN_SCORE_CONCAT)
        p->normalization = chance(g, 60) ? ATTN_NORMALIZATION_MEAN : ATTN_NORMALIZATION_SOFTMAX;
    if (chance(g, 30)) {
        p->score = kernels[below(g, 3)];
        p->normalization = ATTN_NORMALIZATION_SUM;
    }
    p->width = p->score >= ATTN_SCORE_GAUSSIAN && chance(g, 80) ? 0.5 + 4 * attn__rng_uniform(g) : 0;
}

static void draw_packed(attn__rng *g, attn_problem *p)
{
    attn_packed packed = {.batch_dim = random_dim(g, p, ATTN_ROLE_BATCH),
                          .query_dim = random_dim(g, p, ATTN_ROLE_QUERY),
                          .key_dim = random_dim(g, p, ATTN_ROLE_KEY)};
    if (packed.batch_dim < 0)
        return;
    for (int i = 0; i < p->nwindows; i++)
        if (p->windows[i].query_dim == packed.query_dim || p->windows[i].key_dim == packed.key_dim)
            return;
    packed.queries = p->dims[packed.batch_dim].n * p->dims[packed.query_dim].n + 2;
    packed.keys = p->dims[packed.batch_dim].n * p->dims[packed.key_dim].n + 3;
    packed.align_ends = chance(g, 40);
    p->flags |= ATTN_WITH_PACKED;
    p->packed = packed;
}

static void draw_blocks(attn__rng *g, attn_problem *p)
{
    if (p->nwindows || (p->flags & ATTN_WITH_PACKED))
        return;
    p->flags |= ATTN_WITH_BLOCKS;
    p->blocks = (attn_blocks){random_dim(g, p, ATTN_ROLE_QUERY), random_dim(g, p, ATTN_ROLE_KEY), 1 + below(g, 40),
                              1 + below(g, 40)};
}

static void draw_picks(attn__rng *g, random_problem *r)
{
    attn_problem *p = &r->forward;
    for (int d = 0; d < p->ndims && p->npicks < ATTN_MAX_PICKS; d++) {
        if (p->dims[d].role > ATTN_ROLE_QUERY || p->dims[d].n == 0 || !chance(g, 30))
            continue;
        int64_t *index = r->pick_index[p->npicks];
        int n = below(g, 5);
        for (int i = 0; i < n; i++)
            index[i] = below(g, (int)p->dims[d].n);
        p->picks[p->npicks++] = (attn_pick){d, n, index};
    }
}

enum form { PLAIN, PAIRED, MIXED };

/* Draws top_k, hardmax, or scores without normalization, if the other features allow it. */
static void draw_normalization(attn__rng *g, attn_problem *p)
{
    bool softmax = p->normalization == ATTN_NORMALIZATION_SOFTMAX, few = p->mask_fill == 0;
    if (softmax && chance(g, 12))
        p->top_k = 1 + below(g, chance(g, 50) ? 4 : 40);
    else if (softmax && few && !(p->flags & (ATTN_WITH_SINKS | ATTN_WITH_DLSE)) && chance(g, 8))
        p->normalization = ATTN_NORMALIZATION_HARDMAX;
    else if (p->normalization == ATTN_NORMALIZATION_MEAN && chance(g, 40))
        p->normalization = ATTN_NORMALIZATION_NONE;
}

/* Draws a sigmoid, if the other features allow it. */
static void draw_sigmoid(attn__rng *g, attn_problem *p)
{
    if (p->normalization == ATTN_NORMALIZATION_SUM || p->mask_fill != 0 || p->top_k ||
        (p->flags & (ATTN_WITH_SINKS | ATTN_WITH_DLSE)) || !chance(g, 10))
        return;
    p->normalization = ATTN_NORMALIZATION_SIGMOID;
    p->flags &= ~(unsigned)ATTN_WANT_LSE;
    p->own_sigmoid_bias = chance(g, 50);
    if (p->own_sigmoid_bias && chance(g, 80))
        p->sigmoid_bias = 4 * attn__rng_uniform(g) - 3;
}

static void draw_features(attn__rng *g, random_problem *r, enum form form)
{
    attn_problem *p = &r->forward;
    if (form == PAIRED)
        draw_paired(g, p);
    else if (chance(g, form == PLAIN ? 5 : 35))
        draw_windows(g, p, 60);
    draw_bands(g, p);
    if (form == MIXED || chance(g, 20))
        draw_score(g, p);
    if (form == PAIRED && p->normalization != ATTN_NORMALIZATION_SUM)
        draw_paired_tables(g, p);
    int tables = form != PAIRED && chance(g, form == PLAIN ? 5 : 30) ? 1 + below(g, 3) : 0;
    for (int i = 0; i < tables && p->normalization != ATTN_NORMALIZATION_SUM; i++) {
        int key = random_dim(g, p, ATTN_ROLE_KEY);
        draw_table(g, p, key, query_for(g, p, key));
    }
    p->flags = ATTN_WANT_LSE;
    p->flags |= chance(g, 30) && p->normalization != ATTN_NORMALIZATION_SUM ? ATTN_WITH_BIAS : 0;
    p->flags |= chance(g, 25) ? ATTN_WITH_MASK : 0;
    p->flags |= chance(g, 25) ? ATTN_WITH_LENS : 0;
    p->broadcast = ATTN_WITH_BIAS | ATTN_WITH_MASK | ATTN_WITH_BLOCKS; /* some have no stride in any dim */
    p->lens_dim = random_dim(g, p, ATTN_ROLE_KEY);
    if (chance(g, 25))
        p->scale = 0.1 + attn__rng_uniform(g);
    if (chance(g, 15) && p->normalization == ATTN_NORMALIZATION_SOFTMAX)
        p->mask_fill = chance(g, 40) ? -1e6 : chance(g, 50) ? -10000 : -2.5;
    if (chance(g, 20)) {
        p->dropout = chance(g, 50) ? 0.1 : 0.7;
        p->seed = attn__rng_u32(g), p->stream = attn__rng_u32(g);
        r->arrays.seed_offset = attn__rng_u32(g);
        p->weights_dropped = chance(g, 50);
    }
    if (chance(g, 30)) {
        p->flags |= ATTN_WANT_WEIGHTS;
        draw_picks(g, r);
        if (chance(g, 30))
            p->flags &= ~(unsigned)ATTN_WANT_LSE;
    }
}

/* Draws one or two features. Without this function, problems with few features would be rare, because each feature
 * has its own chance. So some problems lose all features that were drawn before. Some of them also get the shape of
 * a decoding step, or wide heads. */
static void draw_one_feature(attn__rng *g, random_problem *r)
{
    attn_problem *p = &r->forward;
    bool softmax = p->normalization == ATTN_NORMALIZATION_SOFTMAX;
    int key = random_dim(g, p, ATTN_ROLE_KEY), query = query_for(g, p, key);
    switch (below(g, 13)) {
    case 0:
        p->flags |= p->normalization != ATTN_NORMALIZATION_SUM ? ATTN_WITH_BIAS : 0;
        break;
    case 1:
        p->flags |= ATTN_WITH_MASK;
        break;
    case 2:
        p->flags |= ATTN_WITH_LENS;
        break;
    case 3:
        p->bands[p->nbands++] = (attn_band){query, key, INT64_MIN, below(g, 5) - 1};
        break;
    case 4:
        p->bands[p->nbands++] = (attn_band){query, key, -below(g, 20), below(g, 20)};
        break;
    case 5:
        p->dropout = 0.3;
        p->seed = attn__rng_u32(g), p->stream = attn__rng_u32(g);
        break;
    case 6:
        if (!(p->flags & (ATTN_WITH_BLOCKS | ATTN_WITH_PACKED)))
            draw_packed(g, p);
        break;
    case 7:
        draw_blocks(g, p);
        break;
    case 8:
        p->softcap = chance(g, 50) ? 0.7 : 4;
        break;
    case 9:
        p->flags |= softmax && p->mask_fill == 0 ? ATTN_WITH_SINKS : 0;
        break;
    case 10:
        p->mask_fill = softmax && !(p->flags & ATTN_WITH_SINKS) ? -3 : 0;
        break;
    case 11:
        p->flags |= softmax ? ATTN_WITH_DLSE : 0;
        break;
    default:
        p->flags |= ATTN_WANT_WEIGHTS;
    }
}

static void draw_few_features(attn__rng *g, random_problem *r, enum form form)
{
    attn_problem *p = &r->forward;
    p->flags = ATTN_WANT_LSE;
    p->nbands = p->npicks = 0;
    p->softcap = p->mask_fill = p->dropout = 0;
    p->packed = (attn_packed){0}, p->blocks = (attn_blocks){0};
    if (form == PLAIN && p->nwindows + p->nrelatives == 0) {
        if (chance(g, 25))
            p->dims[2].n = 1 + below(g, 16);
        if (chance(g, 5))
            p->dims[4].n = 129 + below(g, 200), p->dims[5].n = 129 + below(g, 200);
        while (work_of(p) > 80000) {
            p->dims[2].n -= p->dims[2].n / 2;
            p->dims[3].n -= p->dims[3].n / 2;
        }
    }
    for (int n = 1 + chance(g, 60); n > 0; n--)
        draw_one_feature(g, r);
}

static void draw_backward(attn__rng *g, random_problem *r)
{
    attn_problem *p = &r->backward;
    *p = r->forward;
    p->direction = ATTN_DIRECTION_BACKWARD;
    bool all = chance(g, 80);
    p->flags |= all || chance(g, 50) ? ATTN_WANT_DQ : 0;
    p->flags |= all || chance(g, 50) ? ATTN_WANT_DK : 0;
    p->flags |= all || !(p->flags & (ATTN_WANT_DQ | ATTN_WANT_DK)) ? ATTN_WANT_DV : 0;
    if ((p->flags & ATTN_WITH_BIAS) && chance(g, 70))
        p->flags |= ATTN_WANT_DBIAS;
    if (p->nrelatives && (all || chance(g, 50)))
        p->flags |= ATTN_WANT_DTABLES;
    if (attn__score_of(p)->vectors > 0)
        p->flags |= ATTN_WANT_DW;
    p->accumulate = chance(g, 20);
    p->own_grad_strides = chance(g, 20);
}

static attn_dtype draw_dtype(attn__rng *g)
{
    int x = below(g, 100);
    return x < 65 ? ATTN_F32 : x < 92 ? ATTN_BF16 : ATTN_F64;
}

void random_problem_make(random_problem *r, uint64_t number)
{
    attn__rng g = {.seed = 20201120, .stream = number};
    *r = (random_problem){.number = number};
    enum form form = chance(&g, 50) ? PLAIN : chance(&g, 40) ? PAIRED : MIXED;
    if (form == PLAIN)
        plain_dims(&g, &r->forward);
    else if (form == PAIRED)
        paired_dims(&g, &r->forward);
    else
        mixed_dims(&g, &r->forward);
    cut_to_size(&g, &r->forward);
    r->forward.dtype = draw_dtype(&g);
    draw_features(&g, r, form);
    /* A separate stream, because more draws from the other stream would change all problems. */
    attn__rng more = {.seed = 20201121, .stream = number};
    if (chance(&more, 15))
        draw_packed(&more, &r->forward);
    if (chance(&more, 15))
        r->forward.softcap = chance(&more, 50) ? 0.7 : 4;
    if (r->forward.normalization == ATTN_NORMALIZATION_SOFTMAX && r->forward.mask_fill == 0 && chance(&more, 12))
        r->forward.flags |= ATTN_WITH_SINKS;
    if (chance(&more, 15))
        draw_blocks(&more, &r->forward);
    attn__rng few = {.seed = 20201124, .stream = number};
    if (chance(&few, 40))
        draw_few_features(&few, r, form);
    attn__rng last = {.seed = 20201128, .stream = number};
    draw_normalization(&last, &r->forward);
    attn__rng squash = {.seed = 20201129, .stream = number};
    draw_sigmoid(&squash, &r->forward);
    draw_backward(&g, r);
    if ((r->forward.flags & ATTN_WITH_SINKS) && chance(&more, 80))
        r->backward.flags |= ATTN_WANT_DSINKS;
    if (r->forward.normalization == ATTN_NORMALIZATION_SOFTMAX && chance(&more, 12))
        r->backward.flags |= ATTN_WITH_DLSE;
    random_layout(&g, r, form == PLAIN);
    random_allocate(r);
    random_offsets(&more, r);
    random_index(r);
    random_fill(&g, r, chance(&g, 8) ? 120 : 1);
}

void random_problem_arrays(random_problem *r, uint64_t number)
{
    attn__rng g = {.seed = 1123, .stream = number};
    random_allocate(r);
    random_fill(&g, r, 1);
}

void random_problem_describe(const random_problem *r, char *text, size_t size)
{
    static const char letters[] = "?bqkcv";
    const attn_problem *p = &r->forward;
    int at = snprintf(text, size, "problem %llu:", (unsigned long long)r->number);
    for (int i = 0; i < p->ndims && at < (int)size; i++)
        at += snprintf(text + at, size - (size_t)at, " %c%lld", letters[p->dims[i].role], (long long)p->dims[i].n);
    if (at < (int)size)
        snprintf(text + at, size - (size_t)at,
                 " %s score %d norm %d with 0x%x packed %d bands %d windows %d tables %d fill %g "
                 "dropout %g softcap %g top %d accumulate %d own %d",
                 attn_dtype_name(p->dtype), (int)p->score, (int)p->normalization, r->backward.flags,
                 p->flags & ATTN_WITH_PACKED ? 1 + p->packed.align_ends : 0, p->nbands, p->nwindows, p->nrelatives,
                 p->mask_fill, p->dropout, p->softcap, (int)p->top_k, r->backward.accumulate,
                 r->backward.own_grad_strides);
}
