/* SPDX-License-Identifier: MIT */
#include "attend/block/prefetch.h"

#include "base/integers.h"

#include <string.h>

enum { LINE = 64, LAG = 2 }; /* LINE: bytes of a cache line; LAG: rows from prefetch to copy */

void attn__prefetch_add_runs(attn__prefetch *a, const void *base, int64_t step, const int64_t *row_at, int64_t rows,
                             int64_t runs, int64_t run_step, int64_t bytes)
{
    int i = a->streams;
    if (rows <= 0)
        return;
    a->stream[i].base = base;
    a->stream[i].row_at = row_at;
    a->stream[i].step = step;
    a->stream[i].rows = rows;
    a->stream[i].lines = (bytes + LINE - 1) / LINE;
    a->stream[i].runs = runs;
    a->stream[i].run_step = run_step;
    a->stream[i].to = NULL;
    a->streams++;
}

static const char *row_of(const attn__prefetch *a, int stream, int64_t row)
{
    const int64_t *at = a->stream[stream].row_at;
    return a->stream[stream].base + (at ? at[row] : row) * a->stream[stream].step;
}

static void copy_rows(attn__prefetch *a, int stream, int64_t end)
{
    for (; a->stream[stream].copied < end; a->stream[stream].copied++) {
        const char *from = row_of(a, stream, a->stream[stream].copied);
        char *to = a->stream[stream].to + a->stream[stream].copied * a->stream[stream].to_step;
        for (int64_t line = 0; line < a->stream[stream].lines; line++)
            memcpy(to + line * LINE, from + line * LINE, LINE);
    }
}

void attn__prefetch_finish(attn__prefetch *a)
{
    for (int i = 0; i < a->streams; i++)
        if (a->stream[i].to)
            copy_rows(a, i, a->stream[i].rows);
}

static void next_run(attn__prefetch *a)
{
    a->line = 0;
    if (++a->run < a->stream[a->now].runs)
        return;
    a->run = 0;
    if (a->stream[a->now].to)
        copy_rows(a, a->now, a->row - LAG);
    if (++a->row < a->stream[a->now].rows)
        return;
    a->row = 0;
    a->now++;
}

void attn__prefetch_portion(void *with)
{
    attn__prefetch *a = with;
    for (int64_t budget = a->each, n; budget > 0 && a->now < a->streams; budget -= n) {
        int i = a->now;
        const char *at = row_of(a, i, a->row) + a->run * a->stream[i].run_step + a->line * LINE;
        n = attn__min(a->stream[i].lines - a->line, budget);
        for (const char *end = at + n * LINE; at < end; at += LINE)
            __builtin_prefetch(at, 0, 2);
        a->line += n;
        if (a->line == a->stream[i].lines)
            next_run(a);
    }
}
