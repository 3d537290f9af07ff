/* SPDX-License-Identifier: MIT
 *
 * prefetch.h - a list of rows to prefetch into the second cache, a few lines at a time while products run.  The rows of
 * one head may be pages apart, where the hardware prefetcher does not follow, and many lines at once would fill the
 * line fill buffers that the products' own loads need.
 */
#ifndef ATTN_ATTEND_PREFETCH_H
#define ATTN_ATTEND_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum { ATTN__PREFETCH_STREAMS = 4 };

/* Streams are prefetched in the order in which they were added. */
typedef struct attn__prefetch {
    struct {
        const char *base;
        /* Offset of each row from base in units of `step` bytes; NULL: row r is at r * step bytes. */
        const int64_t *row_at;
        int64_t step, rows, lines; /* number of rows, and of cache lines of a run */
        int64_t runs, run_step;    /* number of runs of a row, and the bytes between two runs */
        char *to;                  /* destination of copied rows; NULL: rows are not copied */
        int64_t to_step, copied;   /* bytes between two copied rows; number of rows copied so far */
    } stream[ATTN__PREFETCH_STREAMS];
    int streams, now;       /* number of streams; index of the current stream */
    int64_t row, run, line; /* the next row of the current stream, its run and line */
    int64_t each;           /* number of lines of a portion */
} attn__prefetch;

/* Empties it.  Streams beyond the number are never looked at, and items may be short. */
static inline void attn__prefetch_clear(attn__prefetch *a)
{
    a->streams = a->now = 0;
    a->row = a->run = a->line = a->each = 0;
}

/* Adds `rows` rows, each of `runs` runs of `bytes` bytes; none if `rows` is negative. */
void attn__prefetch_add_runs(attn__prefetch *prefetch, const void *base, int64_t step, const int64_t *row_at,
                             int64_t rows, int64_t runs, int64_t run_step, int64_t bytes);
/* Adds rows that have one run each. */
static inline void attn__prefetch_add(attn__prefetch *a, const void *base, int64_t step, const int64_t *row_at,
                                      int64_t rows, int64_t bytes)
{
    attn__prefetch_add_runs(a, base, step, row_at, rows, 1, 0, bytes);
}

/* Copies the rows of the stream added last, one run of whole lines each, to `to`, shortly after prefetching them: rows
 * whose stride maps them to the same few cache sets would soon be evicted. */
static inline void attn__prefetch_copy(attn__prefetch *a, void *to, int64_t to_step)
{
    int last = a->streams - 1;
    a->stream[last].to = to;
    a->stream[last].to_step = to_step;
    a->stream[last].copied = 0;
}

/* Divides the list into `portions`. Call it after all streams were added. */
static inline void attn__prefetch_divide(attn__prefetch *a, int64_t portions)
{
    int64_t lines = 0;
    for (int i = 0; i < a->streams; i++)
        lines += a->stream[i].rows * a->stream[i].runs * a->stream[i].lines;
    a->each = portions > 1 ? (lines + portions - 1) / portions : lines;
}

/* Prefetches one portion of an attn__prefetch. */
void attn__prefetch_portion(void *prefetch);
/* Copies the remaining rows. */
void attn__prefetch_finish(attn__prefetch *prefetch);

#endif
