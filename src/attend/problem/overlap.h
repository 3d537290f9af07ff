/* SPDX-License-Identifier: MIT
 *
 * overlap.h - the search for two indices of an output that address the same element.
 *
 * Two indices of an output must not address the same element.  They do if their difference x, with |x_i| < n_i and not
 * all x_i zero, has sum x_i stride_i = 0.  A depth-first search looks for such an x, largest stride first.  In an
 * ordinary nested layout, the range of the smaller strides allows only x_i = 0 at each level, so the search is a single
 * path.  In other layouts, the partial sum must also be a multiple of the smaller strides' greatest common divisor.
 * The last two spans are solved directly.  The general problem is a subset sum. If ten million candidates give no
 * answer, the indices therefore count as overlapping.
 */
#ifndef ATTN_ATTEND_OVERLAP_H
#define ATTN_ATTEND_OVERLAP_H

#include "attn/attn.h"
#include "base/integers.h"

/* One dim of an array, for the overlap test. */
typedef struct span_dim {
    int64_t n, stride;
    int dim;
} span_dim;

typedef struct spans {
    int n;
    span_dim of[ATTN_MAX_DIMS + 1];
    int first, second; /* the two dims that cause an overlap; equal if a single dim causes it */
} spans;

static void add_span(spans *s, int64_t n, int64_t stride, int dim)
{
    s->of[s->n++] = (span_dim){n, stride, dim};
}

__extension__ typedef unsigned __int128 wide; /* product of two strides, which may exceed 64 bits */

typedef struct search {
    int n;
    span_dim spans[ATTN_MAX_DIMS + 1]; /* dims with positive strides, in descending order of stride */
    int64_t reach[ATTN_MAX_DIMS + 2];  /* reach[i]: largest offset that the spans from i on can give */
    int64_t gcd[ATTN_MAX_DIMS + 2];    /* gcd[i]: greatest common divisor of the strides from span i on */
    int64_t x[ATTN_MAX_DIMS + 1];
    int budget;
} search;

/* Returns the inverse of a modulo m. gcd(a, m) must be 1. */
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

/* Solves rest + x * a + y * b = 0 within the lengths of the last two spans, whose strides are a and b.  Only the first
 * x in its interval is tested, because all solutions x are congruent modulo b / gcd(a, b). */
static bool last_two_meet(search *s, int64_t rest, bool nonzero)
{
    const span_dim *a = &s->spans[s->n - 2], *b = &s->spans[s->n - 1];
    int64_t g = attn__max(s->gcd[s->n - 2], 1), modulus = b->stride / g, reach = s->reach[s->n - 1], x;
    if (!nonzero) { /* rest is 0 here, so only the smallest nonzero solution is tested */
        s->x[s->n - 2] = modulus;
        s->x[s->n - 1] = -(a->stride / g);
        return modulus < a->n && a->stride / g < b->n;
    }
    if (rest % g != 0)
        return false;
    int64_t wanted = -(rest / g) % modulus;
    wanted += wanted < 0 ? modulus : 0;
    x = (int64_t)((wide)wanted * (uint64_t)inverse(a->stride / g, modulus) % (uint64_t)modulus);
    int64_t low = attn__max(attn__ceil_div(-rest - reach, a->stride), 1 - a->n);
    int64_t high = attn__min(attn__floor_div(reach - rest, a->stride), a->n - 1);
    x = low + ((x - low) % modulus + modulus) % modulus;
    s->x[s->n - 2] = x;
    s->x[s->n - 1] = x <= high ? -(rest + x * a->stride) / b->stride : 0;
    return x <= high;
}

static bool meets(search *s, int level, int64_t rest, bool nonzero)
{
    if (level == s->n - 2)
        return last_two_meet(s, rest, nonzero);
    const span_dim *span = &s->spans[level];
    int64_t reach = s->reach[level + 1], bound = span->n - 1;
    int64_t low = attn__max(-attn__floor_div(reach + rest, span->stride), -bound);
    int64_t high = attn__min(attn__floor_div(reach - rest, span->stride), bound);
    if (!nonzero && low < 0)
        low = 0; /* if x is a solution, so is -x, and only one is tested */
    for (int64_t x = low; x <= high; x++) {
        s->x[level] = x;
        if ((rest + x * span->stride) % s->gcd[level + 1] != 0)
            continue;
        if (--s->budget < 0 || meets(s, level + 1, rest + x * span->stride, nonzero || x != 0))
            return true;
    }
    return false;
}

static void insert(search *s, span_dim span)
{
    if (span.stride < 0)
        span.stride = -span.stride;
    int at = s->n++;
    for (; at > 0 && s->spans[at - 1].stride < span.stride; at--)
        s->spans[at] = s->spans[at - 1];
    s->spans[at] = span;
}

static void blame(const search *s, spans *of)
{
    of->first = of->second = -1;
    for (int i = 0; i < s->n; i++) {
        if (s->x[i] == 0)
            continue;
        if (of->first < 0)
            of->first = s->spans[i].dim;
        of->second = s->spans[i].dim;
    }
    if (of->first < 0)
        of->first = of->second = s->spans[0].dim;
}

/* Reports whether two different indices of the array share an element. If so, sets `first` and `second` to the dims
 * along which the indices differ. Offsets must not overflow. */
static bool spans_overlap(spans *of)
{
    search s = {.budget = 10000000};
    for (int i = 0; i < of->n; i++)
        if (of->of[i].n == 0)
            return false;
    for (int i = 0; i < of->n; i++) {
        if (of->of[i].n == 1)
            continue;
        if (of->of[i].stride == 0) {
            of->first = of->second = of->of[i].dim;
            return true;
        }
        insert(&s, of->of[i]);
    }
    for (int i = s.n - 1; i >= 0; i--)
        s.reach[i] = s.reach[i + 1] + (s.spans[i].n - 1) * s.spans[i].stride;
    for (int i = s.n - 1; i >= 0; i--)
        s.gcd[i] = attn__common_divisor(s.gcd[i + 1], s.spans[i].stride);
    if (s.n < 2 || !meets(&s, 0, 0, false)) /* a single dim with a nonzero stride cannot overlap */
        return false;
    blame(&s, of);
    return true;
}

#endif
