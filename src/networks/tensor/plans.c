/* SPDX-License-Identifier: MIT
 *
 * Keeps the plans of a tape. A problem that equals an earlier problem in all fields gets the plan of the earlier
 * problem. */
#include "tensor/plans.h"

#include <string.h>

enum { MAX_PLANS = 128 };

typedef struct cached_plan {
    attn_problem problem;
    attn_plan *plan;
    uint64_t used; /* counter at the last use; the entry that was not used for longest is replaced */
} cached_plan;

struct attn__plan_cache {
    int n;
    uint64_t clock;
    cached_plan entry[MAX_PLANS];
};

/* Compares the dims member by member. memcmp cannot be used, because structs have padding bytes with undefined
 * values. */
static bool equal_dims(const attn_problem *a, const attn_problem *b)
{
    for (int i = 0; i < a->ndims; i++) {
        const attn_dim *x = &a->dims[i], *y = &b->dims[i];
        size_t from = offsetof(attn_dim, n), to = offsetof(attn_dim, dbias) + sizeof x->dbias;
        if (x->role != y->role || memcmp((const char *)x + from, (const char *)y + from, to - from) != 0)
            return false;
    }
    return true;
}

static bool equal_bands(const attn_problem *a, const attn_problem *b)
{
    for (int i = 0; i < a->nbands; i++) {
        const attn_band *x = &a->bands[i], *y = &b->bands[i];
        if (x->query_dim != y->query_dim || x->key_dim != y->key_dim || x->lo != y->lo || x->hi != y->hi)
            return false;
    }
    return true;
}

static bool equal_windows(const attn_problem *a, const attn_problem *b)
{
    for (int i = 0; i < a->nwindows; i++) {
        const attn_window *x = &a->windows[i], *y = &b->windows[i];
        if (x->query_dim != y->query_dim || x->key_dim != y->key_dim || x->size != y->size || x->step != y->step ||
            x->dilation != y->dilation || x->offset != y->offset || x->border != y->border)
            return false;
    }
    return true;
}

static bool equal_relatives(const attn_problem *a, const attn_problem *b)
{
    for (int i = 0; i < a->nrelatives; i++) {
        const attn_relative *x = &a->relatives[i], *y = &b->relatives[i];
        if (x->kind != y->kind || x->query_dim != y->query_dim || x->key_dim != y->key_dim || x->offset != y->offset ||
            x->rows != y->rows || x->row_stride != y->row_stride || x->begin != y->begin || x->end != y->end ||
            memcmp(x->stride, y->stride, (size_t)a->ndims * sizeof *x->stride) != 0)
            return false;
    }
    return true;
}

/* Compares the bits of two doubles, so that a NaN equals itself, and 0 differs from -0. */
static bool same_double(double x, double y)
{
    return memcmp(&x, &y, sizeof x) == 0; /* NOLINT: the bits are compared intentionally */
}

static bool equal_settings(const attn_problem *a, const attn_problem *b)
{
    return a->ndims == b->ndims && a->dtype == b->dtype && a->direction == b->direction && a->score == b->score &&
           same_double(a->scale, b->scale) && same_double(a->width, b->width) && a->normalization == b->normalization &&
           a->top_k == b->top_k && same_double(a->sigmoid_bias, b->sigmoid_bias) &&
           a->own_sigmoid_bias == b->own_sigmoid_bias && same_double(a->softcap, b->softcap) && a->flags == b->flags &&
           a->lens_dim == b->lens_dim && a->nbands == b->nbands && a->nwindows == b->nwindows &&
           a->nrelatives == b->nrelatives && same_double(a->mask_fill, b->mask_fill) &&
           same_double(a->dropout, b->dropout) && a->seed == b->seed && a->stream == b->stream &&
           a->weights_dropped == b->weights_dropped && a->accumulate == b->accumulate &&
           a->own_grad_strides == b->own_grad_strides;
}

static bool equal(const attn_problem *a, const attn_problem *b)
{
    return equal_settings(a, b) && equal_dims(a, b) && equal_bands(a, b) && equal_windows(a, b) &&
           equal_relatives(a, b);
}

static void release(attn_tape *tape)
{
    for (int i = 0; i < tape->plans->n; i++)
        attn_plan_destroy(tape->plans->entry[i].plan);
    attn__free(tape->context, tape->plans);
    tape->plans = NULL;
}

/* Returns the entry for a new plan: an unused entry, or if there is none, the least recently used entry. */
static cached_plan *room(attn__plan_cache *cache)
{
    if (cache->n < MAX_PLANS)
        return &cache->entry[cache->n];
    cached_plan *oldest = cache->entry;
    for (int i = 1; i < cache->n; i++)
        if (cache->entry[i].used < oldest->used)
            oldest = &cache->entry[i];
    return oldest;
}

static cached_plan *find(attn__plan_cache *cache, const attn_problem *problem)
{
    for (int i = 0; i < cache->n; i++)
        if (equal(&cache->entry[i].problem, problem))
            return &cache->entry[i];
    return NULL;
}

const attn_plan *attn__plan_for(attn_tape *tape, const attn_problem *problem)
{
    if (!tape->plans) {
        tape->plans = attn__alloc_zero(tape->context, sizeof *tape->plans);
        if (!tape->plans)
            return NULL;
        tape->release_plans = release;
    }
    attn__plan_cache *cache = tape->plans;
    /* a problem with picks is not looked up, because the caller may change the elements of the array of picks */
    cached_plan *entry = problem->npicks == 0 ? find(cache, problem) : NULL;
    if (!entry) {
        attn_plan *plan;
        if (attn_plan_create(&plan, tape->context, problem, NULL) != ATTN_OK)
            return NULL;
        entry = room(cache);
        attn_plan_destroy(entry->plan);
        *entry = (cached_plan){.problem = *problem, .plan = plan};
        if (problem->npicks > 0)
            /* make the problem unequal to every other, because this entry must never be found */
            entry->problem.ndims = -1;
        cache->n += entry == &cache->entry[cache->n];
    }
    entry->used = ++cache->clock;
    return entry->plan;
}
