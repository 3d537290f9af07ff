/* SPDX-License-Identifier: MIT
 * The solver of blocks in float64: what it accepts, its cost, its plan. */
#include "attend/blocked/blocked.h"

#include "attend/canonical/operand.h"
#include "base/integers.h"

#include <stdio.h>

/* Of a batch index, in double. */
static const double MOST_NUMBERS = 0x1p32;

static bool is_distance(attn_score score)
{
    return score == ATTN_SCORE_GAUSSIAN || score == ATTN_SCORE_BOXCAR || score == ATTN_SCORE_TRIANGULAR;
}

static bool repeats(const attn__group *group, attn__operand op)
{
    for (int i = 0; i < group->n; i++) {
        if (group->axis[i].dim.n > 1 && attn__stride(&group->axis[i].dim, op) == 0)
            return true;
    }
    return false;
}

/* Whether an element of a gradient is the sum of several. */
static bool is_broadcast(const attn__canonical *canonical)
{
    const struct {
        unsigned want;
        attn__operand op;
        const attn__group *groups[2];
    } gradients[] = {{ATTN_WANT_DQ, ATTN__OP_DQ, {&canonical->query, &canonical->contract}},
                     {ATTN_WANT_DK, ATTN__OP_DK, {&canonical->key, &canonical->contract}},
                     {ATTN_WANT_DV, ATTN__OP_DV, {&canonical->key, &canonical->value}},
                     {ATTN_WANT_DBIAS, ATTN__OP_DBIAS, {&canonical->query, &canonical->key}}};
    for (int i = 0; i < 4; i++) {
        attn__operand op = gradients[i].op;
        if ((canonical->problem.flags & gradients[i].want) &&
            (repeats(&canonical->batch, op) || repeats(gradients[i].groups[0], op) ||
             repeats(gradients[i].groups[1], op)))
            return true;
    }
    return false;
}

static const char *refuse_backward(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    if (p->dtype != ATTN_F64 || p->score != ATTN_SCORE_DOT)
        return "gradients of other than f64 dot products";
    if (p->accumulate || is_broadcast(canonical))
        return "gradients that are added to, or broadcast";
    return p->flags & (ATTN_WANT_DTABLES | ATTN_WANT_DW) ? "gradients of tables and of w" : NULL;
}

static const char *refuse(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    if (is_distance(p->score)
            ? p->normalization != ATTN_NORMALIZATION_SOFTMAX && p->score == ATTN_SCORE_GAUSSIAN
            : p->score != ATTN_SCORE_DOT || p->dtype != ATTN_F64 || p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return "neither f64 dot products with softmax nor kernels of the distance";
    bool pairs = canonical->has_bias || canonical->has_mask || canonical->has_dropout || canonical->extras;
    if (p->score != ATTN_SCORE_DOT && pairs)
        return "bias, mask, dropout, softcap or sinks beside distances";
    if (p->nrelatives || p->nwindows)
        return "tables or windows";
    if (canonical->has_mask && p->mask_fill != 0)
        return "a mask that fills";
    double channels = (double)canonical->contract.size + (double)canonical->value.size;
    if (((double)canonical->key.size + ATTN__BLOCKED_QUERIES) * (channels + 1) > MOST_NUMBERS)
        return "keys and values of many gigabytes";
    bool limits = p->nbands || canonical->has_lens;
    if (limits && (canonical->key.n > 1 || p->mask_fill != 0))
        return "bands or lengths over several axes of keys, or that fill";
    return canonical->backward ? refuse_backward(canonical) : NULL;
}

/* Beside the reference, which is the other one that takes these: an exponential is as many as forty multiply-adds. */
static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    double channels = (double)canonical->contract.size + (double)canonical->value.size;
    return (canonical->backward ? 2.5 : 1) * pairs * (2.5 * channels + 40);
}

static int64_t take(int64_t *all, int64_t n)
{
    int64_t at = *all;
    *all += attn__round_up(n, 8);
    return at;
}

static int64_t largest_product(const attn__canonical *canonical, int64_t block)
{
    const int64_t queries[] = {block, canonical->query.size % block};
    const int64_t keys[] = {ATTN__BLOCKED_KEYS, canonical->key.size % ATTN__BLOCKED_KEYS};
    int64_t channels = canonical->contract.size, values = canonical->value.size, most = 0;
    for (int i = 0; i < 4; i++) {
        int64_t m = queries[i % 2], n = keys[i / 2];
        if (m == 0 || n == 0)
            continue;
        most = attn__most(most, attn__blocked_product_size(canonical, m, n, channels, false));
        most = attn__most(most, attn__blocked_product_size(canonical, m, n, values, false));
        most = attn__most(most, attn__blocked_product_size(canonical, m, values, n, false));
        most = attn__most(most, attn__blocked_product_size(canonical, m, channels, n, false));
        most = attn__most(most, attn__blocked_product_size(canonical, n, values, m, true));
        most = attn__most(most, attn__blocked_product_size(canonical, n, channels, m, true));
    }
    return most;
}

static attn__blocked_places places_of(const attn__canonical *canonical, int64_t queries, int64_t ld)
{
    enum { KEYS = ATTN__BLOCKED_KEYS };
    int64_t channels = canonical->contract.size, values = canonical->value.size, keys = canonical->key.size, all = 0;
    int64_t again = canonical->backward;
    attn__blocked_places at = {0};
    at.product = take(&all, largest_product(canonical, queries));
    at.k = take(&all, again * keys * channels);
    at.k_t = take(&all, ld * channels);
    at.v = take(&all, keys * values);
    at.v_t = take(&all, again * ld * values);
    at.q = take(&all, queries * channels);
    at.o = take(&all, queries * values);
    at.dout = take(&all, again * queries * values);
    at.s = take(&all, queries * KEYS);
    at.dp = take(&all, again * queries * KEYS);
    at.dq = take(&all, again * queries * channels);
    at.dk = take(&all, again * keys * channels);
    at.dv = take(&all, again * keys * values);
    at.max = take(&all, queries);
    at.sum = take(&all, queries);
    at.from = take(&all, queries);
    at.to = take(&all, queries);
    at.slope = take(&all, canonical->problem.softcap != 0 ? queries * KEYS : 0);
    at.bias_at = take(&all, canonical->has_bias ? KEYS : 0);
    at.dbias_at = take(&all, canonical->problem.flags & ATTN_WANT_DBIAS ? KEYS : 0);
    at.mask_at = take(&all, canonical->has_mask ? KEYS : 0);
    at.drop_at = take(&all, canonical->has_dropout ? KEYS : 0);
    at.gathered = take(&all, 2);
    at.offsets = take(&all, attn__most(channels, values) + attn__most(keys, queries));
    at.all = all;
    return at;
}

/* Even blocks, whole tiles of the product; several a thread where there are few batches. */
static int64_t query_block(const attn__canonical *canonical)
{
    enum { TILE = 12 };
    int64_t n = attn__most(canonical->query.size, 1), pieces = attn__pieces(n, ATTN__BLOCKED_QUERIES);
    if (canonical->batch.size < canonical->threads && !canonical->backward)
        pieces = attn__most(pieces, canonical->threads);
    return attn__round_up(attn__pieces(n, pieces), TILE);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__blocked_plan *p = attn__alloc_zero(context, sizeof *p);
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->kernel = attn__rows_f64_for(canonical->isa);
    p->ld = attn__round_up(canonical->key.size, 8) + 8;
    p->queries = query_block(canonical);
    p->at = places_of(canonical, p->queries, p->ld);
    recipe->data = p;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, (size_t)p->at.all * sizeof(double));
    snprintf(recipe->text, sizeof recipe->text, "%s in f64, blocks of %d queries x %d keys",
             attn__isa_text(p->kernel->isa), (int)p->queries, ATTN__BLOCKED_KEYS);
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    if (canonical->backward)
        attn__blocked_backward(canonical, recipe, arrays, workspace);
    else
        attn__blocked_forward(canonical, recipe, arrays, workspace);
}

const attn__solver attn__solver_blocked = {.name = "blocked",
                                           .refuse = refuse,
                                           .cost = cost,
                                           .plan = plan,
                                           .apply = apply,
                                           .extras = ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE};
