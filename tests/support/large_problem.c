/* SPDX-License-Identifier: MIT */
#include "support/large_problem.h"

#include "support/cmocka.h"

#include "support/random_arrays.h"

#include <math.h>

/* Limit on the work of a problem: its pairs of queries and keys times its channels. The float64 evaluation takes
 * about 30 ns for each of these products. */
static const double most_work = 9e6;

/* The smallest numbers of queries, keys and channels. Every second problem uses `large_sizes`, for which both passes
 * take the AMX path. */
static const int64_t some_sizes[] = {64, 64, 16}, large_sizes[] = {256, 211, 48};

static int below(attn__rng *g, int n)
{
    return (int)attn__rng_below(g, (uint64_t)n);
}

static bool chance(attn__rng *g, int percent)
{
    return below(g, 100) < percent;
}

static int64_t rows(attn__rng *g, int64_t least)
{
    static const int64_t sizes[] = {64,  65,  67,  79,  96,  97,  127, 128, 129, 131, 160, 191, 209, 211,
                                    223, 224, 225, 240, 256, 257, 263, 271, 289, 293, 319, 331, 353, 400};
    int i = below(g, 28);
    while (sizes[i] < least)
        i = below(g, 28);
    return sizes[i];
}

static int64_t channels(attn__rng *g, int64_t least)
{
    static const int64_t sizes[] = {16, 17, 24, 31, 32, 37, 48, 53, 64, 65, 72, 79, 96, 97, 113, 128, 144, 160};
    int i = below(g, 18);
    while (sizes[i] < least)
        i = below(g, 18);
    return sizes[i];
}

/* ---------------------------------------------------------------------------------------------- shapes */

static double work_of(const attn_heads *h, int64_t group)
{
    return (double)(h->batch * h->kv_heads * group) * (double)(h->queries * h->keys) * (double)(h->dim + h->dim_value);
}

static void cut_to_size(attn__rng *g, attn_heads *h, int64_t *group, const int64_t at_least[3])
{
    int64_t *const sizes[] = {&h->batch, &h->kv_heads, group, &h->queries, &h->keys, &h->dim, &h->dim_value};
    const int64_t least[] = {1, 1, 1, at_least[0], at_least[1], at_least[2], at_least[2]};
    while (work_of(h, *group) > most_work) {
        int i = below(g, 7);
        int64_t n = i < 3 ? *sizes[i] - 1 : *sizes[i] * 3 / 4;
        *sizes[i] = n > least[i] ? n : least[i];
    }
}

static attn_heads draw_heads(attn__rng *g, uint64_t number)
{
    const int64_t *least = number % 2 ? large_sizes : some_sizes;
    int64_t group = chance(g, 35) ? 2 + below(g, 2) : 1;
    /* Each draw is a statement of its own, so that the draws have a fixed order. Otherwise a problem's number would
     * not define the problem. */
    attn_heads h = {.batch = 1 + below(g, 3)};
    h.kv_heads = 1 + below(g, 2);
    h.dim = channels(g, least[2]);
    h.layout = chance(g, 50) ? ATTN_LAYOUT_BHTD : ATTN_LAYOUT_BTHD;
    h.causal = (attn_causal)(below(g, 5) % 3);
    h.key_padding = chance(g, 20);
    h.queries = rows(g, least[0]);
    h.keys = chance(g, 25) ? h.queries : rows(g, least[1]);
    h.dim_value = chance(g, 50) ? h.dim : channels(g, least[2]);
    h.lens_per = chance(g, 40) ? 1 + below(g, 2) : 0;
    cut_to_size(g, &h, &group, least);
    h.heads = h.kv_heads * group;
    if (h.layout == ATTN_LAYOUT_BTHD && chance(g, 50)) /* makes q, k and v columns of one matrix */
        h.q_row = h.k_row = h.v_row = (h.heads + h.kv_heads) * h.dim + h.kv_heads * h.dim_value;
    return h;
}

/* -------------------------------------------------------------------------------------------- features */

static void draw_weights(attn__rng *g, random_problem *r)
{
    attn_problem *p = &r->forward;
    p->flags |= ATTN_WANT_WEIGHTS;
    for (int d = 0; d < p->ndims && p->npicks < ATTN_MAX_PICKS; d++) {
        if (p->dims[d].role > ATTN_ROLE_QUERY || !chance(g, 40))
            continue;
        int64_t *index = r->pick_index[p->npicks], n = 1 + below(g, 5);
        for (int64_t i = 0; i < n; i++)
            index[i] = below(g, (int)p->dims[d].n);
        p->picks[p->npicks++] = (attn_pick){d, n, index};
    }
}

/* Draws a band below, above or across the diagonal. */
static void draw_band(attn__rng *g, attn_problem *p)
{
    int query = random_dim(g, p, ATTN_ROLE_QUERY), key = random_dim(g, p, ATTN_ROLE_KEY);
    int64_t lo = below(g, 120) - 90;
    p->bands[p->nbands++] = (attn_band){query, key, lo, lo + below(g, 150)};
}

static void draw_features(attn__rng *g, random_problem *r)
{
    attn_problem *p = &r->forward;
    p->dtype = chance(g, 70) ? ATTN_F32 : ATTN_BF16;
    p->lens_dim = random_dim(g, p, ATTN_ROLE_KEY);
    p->flags |= chance(g, 80) ? ATTN_WANT_LSE : 0;
    p->flags |= chance(g, 35) ? ATTN_WITH_BIAS : 0;
    p->flags |= chance(g, 20) ? ATTN_WITH_MASK : 0;
    p->broadcast = ATTN_WITH_BIAS | ATTN_WITH_MASK | ATTN_WITH_BLOCKS; /* some have no stride in any dim */
    if (p->nbands == 0 && chance(g, 25))
        draw_band(g, p);
    if (chance(g, 20))
        p->scale = 0.05 + 0.2 * attn__rng_uniform(g);
    if (chance(g, 15))
        p->mask_fill = chance(g, 50) ? -10000 : -2.5;
    if (chance(g, 45)) {
        p->dropout = chance(g, 60) ? 0.1 : 0.7;
        p->seed = attn__rng_u32(g);
        p->stream = attn__rng_u32(g);
        r->arrays.seed_offset = attn__rng_u32(g);
        p->weights_dropped = chance(g, 50);
    }
    if (chance(g, 25))
        draw_weights(g, r);
}

static void draw_backward(attn__rng *g, random_problem *r, bool own)
{
    attn_problem *p = &r->backward;
    *p = r->forward;
    p->direction = ATTN_DIRECTION_BACKWARD;
    p->flags |= chance(g, 90) ? ATTN_WANT_DQ : 0;
    p->flags |= chance(g, 90) ? ATTN_WANT_DK : 0;
    p->flags |= chance(g, 90) || !(p->flags & (ATTN_WANT_DQ | ATTN_WANT_DK)) ? ATTN_WANT_DV : 0;
    if ((p->flags & ATTN_WITH_BIAS) && chance(g, 75))
        p->flags |= ATTN_WANT_DBIAS;
    p->accumulate = chance(g, 30);
    p->own_grad_strides = own && chance(g, 30);
}

/* ---------------------------------------------------------------------------------------------- layout */

/* Sets the strides of an array such as a bias: contiguous over the keys, over some batch dims and, unless
 * `keys_only` is true, over the queries. */
static void lay_scores(attn__rng *g, attn_problem *p, size_t field, bool keys_only)
{
    int64_t next = 1;
    for (int d = p->ndims - 1; d >= 0; d--) {
        attn_role role = p->dims[d].role;
        if (role > ATTN_ROLE_KEY || (role == ATTN_ROLE_QUERY && keys_only) ||
            (role == ATTN_ROLE_BATCH && chance(g, 50)))
            continue;
        *(int64_t *)(void *)((char *)&p->dims[d] + field) = chance(g, 15) ? -next : next;
        next *= p->dims[d].n;
    }
}

/* Sets contiguous strides for the requested weights. A picked dim has as many indices as picks, which may be more
 * than its length. */
static void lay_weights(attn_problem *p)
{
    int64_t next = 1;
    for (int d = p->ndims - 1; d >= 0; d--) {
        int64_t n = p->dims[d].n;
        if (p->dims[d].role > ATTN_ROLE_KEY)
            continue;
        for (int i = 0; i < p->npicks; i++)
            n = p->picks[i].dim == d ? p->picks[i].n : n;
        p->dims[d].weights = next;
        next *= n;
    }
}

/* Makes some strides of rows, heads and batches negative. Channels stay adjacent, because the AMX paths require it. */
static void turn_some(attn__rng *g, attn_problem *p)
{
    for (int d = 0; d < p->ndims; d++) {
        int64_t *const strides[] = {&p->dims[d].q, &p->dims[d].k, &p->dims[d].v, &p->dims[d].o, &p->dims[d].lse};
        for (int i = 0; i < 5 && p->dims[d].role <= ATTN_ROLE_KEY; i++)
            *strides[i] *= chance(g, 12) ? -1 : 1;
    }
}

/* Uses the strides of attn_problem_heads and reverses some of them. Bias and mask get the shape of the scores. */
static void lay_out_usual(attn__rng *g, random_problem *r, bool padded)
{
    attn_problem *p = &r->forward;
    if (p->flags & ATTN_WITH_BIAS)
        lay_scores(g, p, offsetof(attn_dim, bias), chance(g, 30));
    if ((p->flags & ATTN_WITH_MASK) && !padded)
        lay_scores(g, p, offsetof(attn_dim, mask), false);
    lay_weights(p);
    turn_some(g, p);
    for (int d = 0; d < p->ndims; d++)
        r->backward.dims[d] = p->dims[d];
}

/* Uses strides in any order of the dims, in which grouped heads stay together. Unless `plain` is true, strides also
 * have gaps, are negative or are 0. */
static void lay_out_otherwise(attn__rng *g, random_problem *r, bool grouped, bool plain)
{
    random_layout(g, r, plain);
    bool padding = chance(g, 30), keys_only = chance(g, 30);
    attn_problem *const both[] = {&r->forward, &r->backward};
    for (int i = 0; i < 2; i++) {
        attn_dim *query = &both[i]->dims[random_dim(g, both[i], ATTN_ROLE_QUERY)];
        query->mask = padding ? 0 : query->mask;
        query->bias = keys_only ? 0 : query->bias;
        if (grouped)
            both[i]->dims[2].k = both[i]->dims[2].v = 0;
    }
}

/* Sets some key lengths to 0. Masked keys and values keep their numbers. */
static void empty_some(attn__rng *g, random_problem *r)
{
    const array *lens = &r->array[ARRAY_LENS];
    for (int64_t i = 0; lens->block && lens->n > 1 && i < lens->n; i++)
        if (chance(g, 15))
            ((int32_t *)lens->block)[i] = 0;
}

void large_problem_make(random_problem *r, uint64_t number)
{
    attn__rng g = {.seed = 1904, .stream = number};
    bool usual = number % 5 < 3;
    *r = (random_problem){.number = number};
    attn_heads h = draw_heads(&g, number);
    assert_int_equal(attn_problem_heads(&r->forward, &h), ATTN_OK);
    draw_features(&g, r);
    draw_backward(&g, r, !usual);
    if (usual)
        lay_out_usual(&g, r, h.key_padding);
    else
        lay_out_otherwise(&g, r, h.heads > h.kv_heads, number % 5 < 4);
    random_allocate(r);
    random_index(r);
    random_fill(&g, r, chance(&g, 10) ? 30 : 1);
    empty_some(&g, r);
}
