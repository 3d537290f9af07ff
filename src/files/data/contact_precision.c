/* SPDX-License-Identifier: MIT
 * Computes the share of true contacts among the best-scored pairs of residues. */
#include "data/alignment.h"

#include <math.h>
#include <stdlib.h>

typedef struct pair {
    float score;
    bool touches;
    int64_t place; /* i * L + j for the pair (i, j); it decides the order of pairs with equal scores */
} pair;

/* Compares pairs for sorting: the highest score first, NaN scores last. */
static int compare(const void *left, const void *right)
{
    const pair *a = left, *b = right;
    float x = isnan(a->score) ? -INFINITY : a->score, y = isnan(b->score) ? -INFINITY : b->score;
    if (x != y)
        return x < y ? 1 : -1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Writes to `pairs` all pairs of resolved residues whose separation is in the range. Returns their number. */
static int64_t collect(pair *pairs, const float *scores, const float *distances, int64_t columns,
                       const attn_contact_range *range)
{
    int64_t n = 0, least = range->min_separation, most = range->max_separation;
    double cutoff = range->cutoff > 0 ? range->cutoff : 8;
    for (int64_t i = 0; i < columns; i++) {
        for (int64_t j = i + (least > 1 ? least : 1); j < columns && (most == 0 || j - i < most); j++) {
            int64_t at = i * columns + j;
            if (!isnan(distances[at]))
                pairs[n++] = (pair){scores[at], distances[at] < cutoff, at};
        }
    }
    return n;
}

attn_status attn_contact_precision(attn_context *context, const float *scores, const float *distances, int64_t columns,
                                   const attn_contact_range *range, double *precision, int64_t *counted)
{
    ATTN__CALL(context);
    size_t cells = attn__size_mul((size_t)columns, (size_t)columns);
    pair *pairs = attn__alloc(context, attn__size_mul(cells, sizeof *pairs));
    if (!pairs)
        return ATTN_ERROR_MEMORY;
    int64_t n = collect(pairs, scores, distances, columns, range), touching = 0;
    qsort(pairs, (size_t)n, sizeof *pairs, compare);
    n = n < range->count ? n : range->count;
    for (int64_t i = 0; i < n; i++)
        touching += pairs[i].touches;
    *precision = n > 0 ? (double)touching / (double)n : NAN;
    if (counted)
        *counted = n;
    attn__free(context, pairs);
    return ATTN_OK;
}
