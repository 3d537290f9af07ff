/* SPDX-License-Identifier: MIT
 *
 * overlap.c - do two indices of a strided array address the same element?
 *
 * They do if some difference x of indices, not all zero, |x_i| < n_i, has sum x_i stride_i = 0.  A depth-first
 * search over x, largest stride first: what the smaller strides can still reach leaves x one choice, 0, at each
 * level of an ordinary nested layout, so that the search is one straight path; elsewhere the sum so far must also be
 * a multiple of what the smaller strides have in common.  The last two spans are solved, not searched.  The general
 * question is a subset sum: after ten million candidates without an answer, the indices count as overlapping.
 */
#include "attend/problem/problem.h"
#include "base/integers.h"

__extension__ typedef unsigned __int128 wide; /* of products of two strides */

typedef struct search {
    int n;
    attn__span spans[ATTN_MAX_DIMS + 1]; /* strides positive, descending */
    int64_t reach[ATTN_MAX_DIMS + 2];    /* of the spans from i on */
    int64_t gcd[ATTN_MAX_DIMS + 2];      /* of their strides */
    int64_t x[ATTN_MAX_DIMS + 1];
    int budget;
} search;

/* The inverse of a modulo m, gcd(a, m) = 1. */
static int64_t inverse(int64_t a, int64_t m)
{
    int64_t r0 = m, r1 = m > 0 ? a % m : 0, t0 = 0, t1 = 1;
    while (r1 > 0) {
        int64_t q = r0 / r1, r = r0 - q * r1, t = t0 - q * t1;
        r0 = r1, r1 = r;
        t0 = t1, t1 = t;
    }
    return t0 < 0 ? t0 + m : t0;
}

/* rest + x a + y b = 0 in the bounds of the last two spans: x is one residue modulo b / gcd, in one interval. */
static bool last_two_meet(search *s, int64_t rest, bool nonzero)
{
    const attn__span *a = &s->spans[s->n - 2], *b = &s->spans[s->n - 1];
    int64_t g = attn__most(s->gcd[s->n - 2], 1), modulus = b->stride / g, reach = s->reach[s->n - 1], x;
    if (!nonzero) { /* rest is 0 then: the least multiple that both can take back */
        s->x[s->n - 2] = modulus;
        s->x[s->n - 1] = -(a->stride / g);
        return modulus < a->n && a->stride / g < b->n;
    }
    if (rest % g != 0)
        return false;
    int64_t wanted = -(rest / g) % modulus;
    wanted += wanted < 0 ? modulus : 0;
    x = (int64_t)((wide)wanted * (uint64_t)inverse(a->stride / g, modulus) % (uint64_t)modulus);
    int64_t low = attn__most(attn__ceil_div(-rest - reach, a->stride), 1 - a->n);
    int64_t high = attn__least(attn__floor_div(reach - rest, a->stride), a->n - 1);
    x = low + ((x - low) % modulus + modulus) % modulus;
    s->x[s->n - 2] = x;
    s->x[s->n - 1] = x <= high ? -(rest + x * a->stride) / b->stride : 0;
    return x <= high;
}

static bool meets(search *s, int level, int64_t rest, bool nonzero)
{
    if (level == s->n - 2)
        return last_two_meet(s, rest, nonzero);
    const attn__span *span = &s->spans[level];
    int64_t reach = s->reach[level + 1], bound = span->n - 1;
    int64_t low = attn__most(-attn__floor_div(reach + rest, span->stride), -bound);
    int64_t high = attn__least(attn__floor_div(reach - rest, span->stride), bound);
    if (!nonzero && low < 0)
        low = 0; /* x and -x say the same */
    for (int64_t x = low; x <= high; x++) {
        s->x[level] = x;
        if ((rest + x * span->stride) % s->gcd[level + 1] != 0)
            continue;
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
    search s = {.budget = 10000000};
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
    for (int i = s.n - 1; i >= 0; i--)
        s.gcd[i] = attn__common_divisor(s.gcd[i + 1], s.spans[i].stride);
    if (s.n < 2) /* one span of a stride that is not 0 */
        return false;
    if (!meets(&s, 0, 0, false))
        return false;
    blame(&s, first, second);
    return true;
}
