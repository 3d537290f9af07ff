/* SPDX-License-Identifier: MIT
 * Do two indices of a strided array meet in one element?
 *
 * They do if some difference x of indices, not all zero, |x_i| < n_i, has sum x_i stride_i = 0.  A depth-first
 * search over x, largest stride first: what the smaller strides can still reach leaves x one choice, 0, at
 * each level of an ordinary nested layout, so that the search is usually one straight path. */
#include "attend/problem.h"

typedef struct search {
    int n;
    attn__span spans[ATTN_MAX_DIMS + 1];  /* strides positive, descending */
    int64_t reach[ATTN_MAX_DIMS + 2];     /* of the spans from i on */
    int64_t x[ATTN_MAX_DIMS + 1];
    int budget;
} search;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static bool meets(search *s, int level, int64_t rest, bool nonzero)
{
    if (level == s->n)
        return nonzero && rest == 0;
    const attn__span *span = &s->spans[level];
    int64_t reach = s->reach[level + 1];
    int64_t low = -floor_div(reach + rest, span->stride), high = floor_div(reach - rest, span->stride);
    int64_t bound = span->n - 1;
    if (low < -bound)
        low = -bound;
    if (!nonzero && low < 0)
        low = 0; /* x and -x say the same */
    if (high > bound)
        high = bound;
    for (int64_t x = low; x <= high; x++) {
        s->x[level] = x;
        if (--s->budget < 0 || meets(s, level + 1, rest + x * span->stride, nonzero || x != 0))
            return true;
    }
    return false;
}

static void insert(search *s, attn__span span)
{
    if (span.stride < 0)
        span.stride = -span.stride;
    int at = s->n++;
    for (; at > 0 && s->spans[at - 1].stride < span.stride; at--)
        s->spans[at] = s->spans[at - 1];
    s->spans[at] = span;
}

static void blame(const search *s, int *first, int *second)
{
    *first = *second = -1;
    for (int i = 0; i < s->n; i++) {
        if (s->x[i] == 0)
            continue;
        if (*first < 0)
            *first = s->spans[i].dim;
        *second = s->spans[i].dim;
    }
    if (*first < 0)
        *first = *second = s->spans[0].dim;
}

bool attn__spans_overlap(const attn__span *spans, int n, int *first, int *second)
{
    search s = {.budget = 100000};
    for (int i = 0; i < n; i++)
        if (spans[i].n == 0)
            return false;
    for (int i = 0; i < n; i++) {
        if (spans[i].n == 1)
            continue;
        if (spans[i].stride == 0) {
            *first = *second = spans[i].dim;
            return true;
        }
        insert(&s, spans[i]);
    }
    for (int i = s.n - 1; i >= 0; i--)
        s.reach[i] = s.reach[i + 1] + (s.spans[i].n - 1) * s.spans[i].stride;
    if (!meets(&s, 0, 0, false))
        return false;
    blame(&s, first, second);
    return true;
}
