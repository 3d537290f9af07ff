/* SPDX-License-Identifier: MIT
 *
 * ahead.h - rows that will be read or written soon, brought to the second cache a few lines at a time while products
 * run: the rows of one head may lie pages apart, where the machine does not look ahead by itself, and many lines at
 * once would take all the places that the products' own reads wait in.
 */
#ifndef ATTN_ATTEND_TASK_AHEAD_H
#define ATTN_ATTEND_TASK_AHEAD_H

#include <stddef.h>
#include <stdint.h>

enum { ATTN__AHEAD_STREAMS = 4 };

/* Streams are fetched one after the other, in the order in which they were added. */
typedef struct attn__ahead {
    struct {
        const char *base;
        const int64_t *row_at; /* elements of `step` bytes from base to each row; NULL: row r is r * step bytes on */
        int64_t step, rows, lines; /* lines of one run of a row */
        int64_t runs, run_step;    /* runs of one row, bytes from one to the next */
        char *to;                  /* NULL, or where rows are copied to, ... */
        int64_t to_step, copied;   /* ... bytes from one to the next, and how many are there */
    } stream[ATTN__AHEAD_STREAMS];
    int streams, now;       /* how many; the one at hand, ... */
    int64_t row, run, line; /* ... its next row, run of that and line of that */
    int64_t each;           /* lines of one portion */
} attn__ahead;

/* Empties it. */
void attn__ahead_begin(attn__ahead *ahead);
/* Adds `rows` rows of `bytes` bytes; none if that is negative. */
void attn__ahead_add(attn__ahead *ahead, const void *base, int64_t step, const int64_t *row_at, int64_t rows,
                     int64_t bytes);
/* The same where each row is `runs` runs of `bytes` bytes. */
void attn__ahead_add_runs(attn__ahead *ahead, const void *base, int64_t step, const int64_t *row_at, int64_t rows,
                          int64_t runs, int64_t run_step, int64_t bytes);
/* Rows of the stream added last, of one run each and whole lines, are copied to `to` as well, a little after they were asked
 * for: rows whose distance makes them fall on the same few places of the caches would not stay there for long. */
void attn__ahead_keep(attn__ahead *ahead, void *to, int64_t to_step);
/* Says how many portions it is to be brought in by, once all is added. */
void attn__ahead_divide(attn__ahead *ahead, int64_t portions);
/* Brings in one portion of an attn__ahead. */
void attn__ahead_fetch(void *ahead);
/* Copies what is left. */
void attn__ahead_finish(attn__ahead *ahead);

#endif
