/* SPDX-License-Identifier: MIT
 *
 * prefetch.h - prefetches rows into the L2 cache, a few cache lines at a time, while products run.  The rows of a head
 * may be on different pages, which the hardware prefetcher does not cross.  Many prefetches at once would occupy the
 * line fill buffers, which the loads of the products need.
 */
#ifndef ATTN_ATTEND_PREFETCH_H
#define ATTN_ATTEND_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum { ATTN__PREFETCH_STREAMS = 4 };

/* A list of streams. A stream is a range of rows. Streams are prefetched in the order in which they were added. */
typedef struct attn__prefetch {
    struct {
        const char *base;
        /* Row r is at base + row_at[r] * step bytes, or at base + r * step bytes if row_at is NULL. */
        const int64_t *row_at;
        int64_t step, rows, lines; /* rows: number of rows; lines: cache lines per run */
        int64_t runs, run_step;    /* number of runs in each row; bytes between two runs */
        char *to;                  /* destination of copied rows; NULL if rows are not copied */
        int64_t to_step, copied;   /* bytes between two copied rows; number of rows copied so far */
    } stream[ATTN__PREFETCH_STREAMS];
    int streams, now;
    int64_t row, run, line; /* position of the next prefetch in the current stream */
    int64_t each;           /* cache lines per portion */
} attn__prefetch;

/* Empties the list. The entries of `stream` are not cleared, because only `streams` of them are read. */
static inline void attn__prefetch_clear(attn__prefetch *a)
{
    a->streams = a->now = 0;
    a->row = a->run = a->line = a->each = 0;
}

/* Adds `rows` rows to the list. Each row has `runs` runs of `bytes` bytes. A negative `rows` adds nothing. */
void attn__prefetch_add_runs(attn__prefetch *prefetch, const void *base, int64_t step, const int64_t *row_at,
                             int64_t rows, int64_t runs, int64_t run_step, int64_t bytes);
static inline void attn__prefetch_add(attn__prefetch *a, const void *base, int64_t step, const int64_t *row_at,
                                      int64_t rows, int64_t bytes)
{
    attn__prefetch_add_runs(a, base, step, row_at, rows, 1, 0, bytes);
}

/* Also copies each row of the last stream to `to`, shortly after its prefetch. A row must be one run of whole cache
 * lines. Copies help if the stride maps rows to few cache sets, from which the rows would soon be evicted. */
static inline void attn__prefetch_copy(attn__prefetch *a, void *to, int64_t to_step)
{
    int last = a->streams - 1;
    a->stream[last].to = to;
    a->stream[last].to_step = to_step;
    a->stream[last].copied = 0;
}

/* It must be called after all streams were added. */
static inline void attn__prefetch_divide(attn__prefetch *a, int64_t portions)
{
    int64_t lines = 0;
    for (int i = 0; i < a->streams; i++)
        lines += a->stream[i].rows * a->stream[i].runs * a->stream[i].lines;
    a->each = portions > 1 ? (lines + portions - 1) / portions : lines;
}

/* Prefetches the next portion of the list `prefetch`, which is an attn__prefetch. */
void attn__prefetch_portion(void *prefetch);
/* Copies the rows of all streams that have not been copied yet. */
void attn__prefetch_finish(attn__prefetch *prefetch);

#endif
