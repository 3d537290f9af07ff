/* SPDX-License-Identifier: MIT
 * Choosing sequences of an alignment. */
#include "data/alignment.h"

#include "base/parallel.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ greatest diversity */

/* Sums as NumPy adds a contiguous array: eight running sums, halves for more than 128 terms.  The published choice
 * of rows was made with such sums of float64, where ties between equal sums of counts are broken by their rounding,
 * so the rounding must be the same for the choice to be. */
static double pairwise_sum(const double *x, int64_t n)
{
    if (n < 8) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[i];
        return sum;
    }
    if (n > 128) {
        int64_t half = n / 2 - n / 2 % 8;
        return pairwise_sum(x, half) + pairwise_sum(x + half, n - half);
    }
    double r[8];
    memcpy(r, x, sizeof r);
    int64_t i = 8;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++)
            r[j] += x[i + j];
    }
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

typedef struct diverse {
    const attn_alignment *all;
    double *distances; /* [rows, depth]: row i to the k-th one chosen */
    double *mean;
    bool *taken;
    int64_t depth, chosen, last;
} diverse;

static double hamming(const char *a, const char *b, int64_t n)
{
    int64_t differ = 0;
    for (int64_t i = 0; i < n; i++)
        differ += a[i] != b[i];
    return (double)differ / (double)n;
}

static void measure(void *user, int64_t begin, int64_t end)
{
    diverse *d = user;
    for (int64_t i = begin; i < end; i++) {
        double *to = d->distances + i * d->depth;
        to[d->chosen - 1] =
            hamming(attn_alignment_row(d->all, d->last), attn_alignment_row(d->all, i), d->all->columns);
        d->mean[i] = d->taken[i] ? -1 : pairwise_sum(to, d->chosen) / (double)d->chosen;
    }
}

static int64_t argmax(const double *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static attn_status choose_diverse(const attn_alignment *all, bool *taken, int64_t depth)
{
    attn_context *context = all->context;
    size_t cells = attn__size_mul(attn__size_mul((size_t)all->rows, (size_t)depth), sizeof(double));
    diverse d = {.all = all, .taken = taken, .depth = depth};
    d.distances = attn__alloc(context, cells);
    d.mean = d.distances ? attn__alloc(context, attn__size_mul((size_t)all->rows, sizeof(double))) : NULL;
    taken[0] = true;
    for (d.chosen = 1; d.mean && d.chosen < depth; d.chosen++) {
        attn__parallel_range(context->threads, all->rows, 256, measure, &d);
        d.last = argmax(d.mean, all->rows);
        taken[d.last] = true;
    }
    attn_status status = d.mean ? ATTN_OK : ATTN_ERROR_MEMORY;
    attn__free(context, d.mean);
    attn__free(context, d.distances);
    return status;
}

/* --------------------------------------------------------------------------------------- the other ways */

static attn_status choose_random(const attn_alignment *all, bool *taken, int64_t depth, uint64_t seed)
{
    int64_t *order = attn__alloc(all->context, attn__size_mul((size_t)all->rows, sizeof *order));
    if (!order)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < all->rows; i++)
        order[i] = i;
    attn__rng rng = {.seed = seed};
    attn__rng_shuffle(&rng, order + 1, all->rows - 1);
    for (int64_t i = 0; i < depth; i++)
        taken[order[i]] = true;
    attn__free(all->context, order);
    return ATTN_OK;
}

typedef struct ticket {
    double key;
    int64_t row;
} ticket;

static int larger_key(const void *left, const void *right)
{
    const ticket *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? 1 : -1;
    return (a->row > b->row) - (a->row < b->row);
}

/* Drawing without replacement by weight: the largest u^(1/w), u uniform (Efraimidis and Spirakis 2006,
 * doi:10.1016/j.ipl.2005.11.003); its logarithm, log(u) / w, orders the same and does not underflow. */
static void draw_by_weight(const attn_alignment *all, ticket *tickets, const double *weights, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    for (int64_t i = 0; i < all->rows; i++)
        tickets[i] = (ticket){i == 0 ? 1 : log1p(-attn__rng_uniform(&rng)) / weights[i], i}; /* the query stays */
    qsort(tickets, (size_t)all->rows, sizeof *tickets, larger_key);
}

static attn_status choose_weighted(const attn_alignment *all, bool *taken, int64_t depth, uint64_t seed)
{
    double *weights = attn__alloc(all->context, attn__size_mul((size_t)all->rows, sizeof *weights));
    ticket *tickets = weights ? attn__alloc(all->context, attn__size_mul((size_t)all->rows, sizeof *tickets)) : NULL;
    attn_status status = tickets ? attn_alignment_weights(all, 0, weights) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        draw_by_weight(all, tickets, weights, seed);
    for (int64_t i = 0; status == ATTN_OK && i < depth; i++)
        taken[tickets[i].row] = true;
    attn__free(all->context, tickets);
    attn__free(all->context, weights);
    return status;
}

static attn_status choose(const attn_alignment *all, const attn_selection *s, bool *taken, int64_t depth)
{
    if (depth < all->rows && s->how == ATTN_SELECT_DIVERSE)
        return choose_diverse(all, taken, depth);
    if (depth < all->rows && s->how == ATTN_SELECT_RANDOM)
        return choose_random(all, taken, depth, s->seed);
    if (depth < all->rows && s->how == ATTN_SELECT_WEIGHTED)
        return choose_weighted(all, taken, depth, s->seed);
    memset(taken, true, (size_t)depth * sizeof *taken);
    return ATTN_OK;
}

static attn_status copy_rows(attn_alignment *to, const attn_alignment *from, const bool *taken)
{
    for (int64_t i = 0, row = 0; i < from->rows; i++) {
        if (!taken[i])
            continue;
        memcpy(attn__alignment_cells(to, row), attn_alignment_row(from, i), (size_t)from->columns + 1);
        to->names[row] = attn__strdup(to->context, from->names[i]);
        if (!to->names[row++])
            return ATTN_ERROR_MEMORY;
    }
    return ATTN_OK;
}

attn_status attn_alignment_select(attn_alignment **chosen, const attn_alignment *all, const attn_selection *selection)
{
    attn__call_begin(all->context);
    attn_context *context = all->context;
    int64_t depth = selection->depth;
    *chosen = NULL;
    attn_status known = attn__check_choice(context, "attn_selection.how", (int)selection->how, ATTN_SELECT_WEIGHTED);
    if (known != ATTN_OK)
        return known;
    if (depth < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the depth of an alignment is negative: %" PRId64, depth);
    depth = depth == 0 || depth > all->rows ? all->rows : depth;
    bool *taken = attn__alloc_zero(context, (size_t)all->rows * sizeof *taken);
    attn_status status = taken ? choose(all, selection, taken, depth) : ATTN_ERROR_MEMORY;
    attn_alignment *a = NULL;
    if (status == ATTN_OK) {
        a = attn__alignment_create(context, all->format, depth, all->columns);
        status = a ? copy_rows(a, all, taken) : ATTN_ERROR_MEMORY;
    }
    attn__free(context, taken);
    if (status != ATTN_OK) {
        attn_alignment_destroy(a);
        return status;
    }
    *chosen = a;
    return ATTN_OK;
}
