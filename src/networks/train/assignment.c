/* SPDX-License-Identifier: MIT */
#include "train/assignment.h"

#include "base/context.h"

#include <math.h>
#include <string.h>

/* Largest allowed |cost|. Sums and differences of many such costs stay finite. */
static const double largest = 1e150;

/* State of the search. Columns are counted from 1. Entry 0 of the arrays of columns belongs to the row that is being
 * assigned. */
typedef struct search {
    const double *cost;
    int64_t columns;
    /* reduced cost = cost - row_potential - column_potential; it is never negative */
    double *row_potential, *column_potential;
    double *distance; /* distance[j]: length of the shortest path to column j; used while column j is not reached */
    int64_t *row_of;  /* row_of[j]: row assigned to column j, counted from 1; 0: the column is free */
    int64_t *before;  /* before[j]: column before column j on the shortest path */
    bool *reached;
} search;

static attn_status check(attn_context *context, const double *cost, int64_t rows, int64_t columns)
{
    if (rows > columns || rows < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "assignment: %lld rows and %lld columns; each row needs a column of its own", (long long)rows,
                          (long long)columns);
    for (int64_t i = 0; i < rows * columns; i++) {
        if (!(fabs(cost[i]) <= largest))
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "assignment: the cost of row %lld and column %lld is %g; it must be between -%g and %g",
                              (long long)(i / columns), (long long)(i % columns), cost[i], largest, largest);
    }
    return ATTN_OK;
}

/* Shortens the paths that lead through column `from`. Returns the unreached column with the smallest distance, and
 * writes this distance to *least. */
static int64_t relax(search *s, int64_t from, double *least)
{
    int64_t row = s->row_of[from], nearest = 0;
    *least = INFINITY;
    for (int64_t j = 1; j <= s->columns; j++) {
        if (s->reached[j])
            continue;
        double length = s->cost[(row - 1) * s->columns + j - 1] - s->row_potential[row] - s->column_potential[j];
        if (length < s->distance[j]) {
            s->distance[j] = length;
            s->before[j] = from;
        }
        if (s->distance[j] < *least) {
            *least = s->distance[j];
            nearest = j;
        }
    }
    return nearest;
}

static void move_potentials(search *s, double by)
{
    for (int64_t j = 0; j <= s->columns; j++) {
        if (s->reached[j]) {
            s->row_potential[s->row_of[j]] += by;
            s->column_potential[j] -= by;
        } else {
            s->distance[j] -= by;
        }
    }
}

static void assign_row(search *s, int64_t row)
{
    int64_t at = 0;
    s->row_of[0] = row;
    memset(s->reached, 0, (size_t)(s->columns + 1) * sizeof *s->reached);
    for (int64_t j = 0; j <= s->columns; j++)
        s->distance[j] = INFINITY;
    do {
        double least;
        s->reached[at] = true;
        at = relax(s, at, &least);
        move_potentials(s, least);
    } while (s->row_of[at] != 0);
    while (at != 0) {
        int64_t before = s->before[at];
        s->row_of[at] = s->row_of[before];
        at = before;
    }
}

attn_status attn__assign(attn_context *context, const double *cost, int64_t rows, int64_t columns, int64_t *column)
{
    attn_status status = check(context, cost, rows, columns);
    if (status != ATTN_OK || rows == 0)
        return status;
    size_t places = (size_t)columns + 1, doubles = (size_t)rows + 1 + 2 * places;
    size_t bytes = doubles * sizeof(double) + 2 * places * sizeof(int64_t) + places * sizeof(bool);
    double *memory = attn__alloc_zero(context, bytes);
    if (!memory)
        return ATTN_ERROR_MEMORY;
    search s = {.cost = cost, .columns = columns, .row_potential = memory};
    s.column_potential = memory + rows + 1;
    s.distance = s.column_potential + places;
    s.row_of = (int64_t *)(s.distance + places);
    s.before = s.row_of + places;
    s.reached = (bool *)(s.before + places);
    for (int64_t i = 1; i <= rows; i++)
        assign_row(&s, i);
    for (int64_t j = 1; j <= columns; j++)
        if (s.row_of[j] > 0)
            column[s.row_of[j] - 1] = j - 1;
    attn__free(context, memory);
    return ATTN_OK;
}
