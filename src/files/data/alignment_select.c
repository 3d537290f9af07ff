/* SPDX-License-Identifier: MIT */
#include "data/alignment.h"

#include "base/parallel.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ greatest diversity */

/* Sums n numbers in the same order as NumPy: with eight running sums, and by halves if there are more than 128 terms.
 * The published selection of rows used such float64 sums. If two exact sums are equal, the rounding decides which row
 * is selected. Therefore this function must round in the same way. */
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
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            r[j] += x[i + j];
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

/* Distances are kept as counts of columns, so their sums are exact. Rows with equal sums are compared by their float64
 * means. */
typedef struct diverse {
    const attn_alignment *all;
    int64_t *chosen;   /* [depth] */
    int64_t *sums;     /* [rows]: number of differing columns, summed over the chosen rows; -1: the row is chosen */
    int64_t *tied;     /* [rows] */
    double *mean;      /* [rows]: mean distances of the rows whose sums are equal */
    double *distances; /* [threads, depth]: scratch memory for the distances of one row per thread */
    int64_t n, depth, ntied;
} diverse;

static int64_t differing(const diverse *d, const char *row, int64_t other)
{
    return attn__differing_columns(row, attn_alignment_row(d->all, other), d->all->columns, INT64_MAX);
}

static void add_last(void *user, int64_t begin, int64_t end)
{
    diverse *d = user;
    const char *last = attn_alignment_row(d->all, d->chosen[d->n - 1]);
    for (int64_t i = begin; i < end; i++)
        d->sums[i] += d->sums[i] < 0 ? 0 : differing(d, last, i);
}

static void average(void *user, int64_t item, int thread)
{
    diverse *d = user;
    double *distances = d->distances + thread * d->depth, columns = (double)d->all->columns;
    const char *row = attn_alignment_row(d->all, d->tied[item]);
    for (int64_t k = 0; k < d->n; k++)
        distances[k] = (double)differing(d, row, d->chosen[k]) / columns;
    d->mean[item] = pairwise_sum(distances, d->n) / (double)d->n;
}

/* Returns the row with the largest mean distance to the chosen rows. The first row wins ties. */
static int64_t farthest(diverse *d)
{
    int64_t most = 0, best = 0;
    d->ntied = 0;
    for (int64_t i = 0; i < d->all->rows; i++) {
        d->ntied = d->sums[i] > most ? 0 : d->ntied;
        most = d->sums[i] > most ? d->sums[i] : most;
        if (d->sums[i] == most)
            d->tied[d->ntied++] = i;
    }
    bool means = d->ntied > 1 && most > 0;
    if (means)
        attn__parallel_items(d->all->context->threads, d->ntied, average, d);
    for (int64_t k = 1; means && k < d->ntied; k++)
        best = d->mean[k] > d->mean[best] ? k : best;
    return d->tied[best];
}

static attn_status choose_far(diverse *d, bool *taken)
{
    attn_context *context = d->all->context;
    attn_status status = ATTN_OK;
    for (int64_t next = 0; status == ATTN_OK; next = farthest(d)) {
        taken[next] = true;
        d->chosen[d->n++] = next;
        d->sums[next] = -1;
        status = attn__work(context, "sequences to choose", d->n, d->depth);
        if (d->n == d->depth)
            break;
        attn__parallel_range(context->threads, d->all->rows, 256, add_last, d);
    }
    return status;
}

static attn_status choose_diverse(const attn_alignment *all, bool *taken, int64_t depth)
{
    attn_context *context = all->context;
    size_t rows = attn__size_mul((size_t)all->rows, sizeof(int64_t)),
           chosen = attn__size_mul((size_t)depth, sizeof(double));
    diverse d = {.all = all, .depth = depth};
    d.chosen = attn__alloc(context, chosen);
    d.sums = attn__alloc_zero(context, rows);
    d.tied = attn__alloc(context, rows);
    d.mean = attn__alloc(context, rows);
    d.distances = attn__alloc(context, attn__size_mul(chosen, (size_t)context->threads));
    bool room = d.chosen && d.sums && d.tied && d.mean && d.distances;
    attn_status status = room ? choose_far(&d, taken) : ATTN_ERROR_MEMORY;
    attn__free(context, d.distances);
    attn__free(context, d.mean);
    attn__free(context, d.tied);
    attn__free(context, d.sums);
    attn__free(context, d.chosen);
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

/* Draws rows without replacement, in proportion to their weights. It draws the rows with the largest u^(1/w), where
 * u is a uniform random number and w is the row's weight (Efraimidis and Spirakis 2006,
 * doi:10.1016/j.ipl.2005.11.003). The code compares log(u) / w, which gives the same order and does not underflow. */
static void draw_by_weight(const attn_alignment *all, ticket *tickets, const double *weights, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    for (int64_t i = 0; i < all->rows; i++)
        /* row 0, the query, gets the largest value, because it is always chosen */
        tickets[i] = (ticket){i == 0 ? 1 : log1p(-attn__rng_uniform(&rng)) / weights[i], i};
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
    memcpy(to->numbers, from->numbers, (size_t)from->columns * sizeof *to->numbers);
    to->query = attn__strdup(to->context, from->query);
    if (!to->query)
        return ATTN_ERROR_MEMORY;
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
    ATTN__CALL(all->context);
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
