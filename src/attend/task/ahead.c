/* SPDX-License-Identifier: MIT
 *
 * ahead.c - rows brought to the second cache a few lines at a time; see ahead.h.
 */
#include "attend/task/ahead.h"

#include "base/integers.h"

enum { LINE = 64 };

/* Streams beyond the number are never looked at, and items may be short. */
void attn__ahead_begin(attn__ahead *a)
{
    a->streams = a->now = 0;
    a->row = a->run = a->line = a->each = 0;
}

void attn__ahead_add_runs(attn__ahead *a, const void *base, int64_t step, const int64_t *row_at, int64_t rows,
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
    a->streams++;
}

void attn__ahead_add(attn__ahead *a, const void *base, int64_t step, const int64_t *row_at, int64_t rows, int64_t bytes)
{
    attn__ahead_add_runs(a, base, step, row_at, rows, 1, 0, bytes);
}

void attn__ahead_divide(attn__ahead *a, int64_t portions)
{
    int64_t lines = 0;
    for (int i = 0; i < a->streams; i++)
        lines += a->stream[i].rows * a->stream[i].runs * a->stream[i].lines;
    a->each = portions > 1 ? (lines + portions - 1) / portions : lines;
}

static void next_run(attn__ahead *a)
{
    a->line = 0;
    if (++a->run < a->stream[a->now].runs)
        return;
    a->run = 0;
    if (++a->row < a->stream[a->now].rows)
        return;
    a->row = 0;
    a->now++;
}

void attn__ahead_fetch(void *with)
{
    attn__ahead *a = with;
    for (int64_t budget = a->each, n; budget > 0 && a->now < a->streams; budget -= n) {
        int i = a->now;
        int64_t row = a->stream[i].row_at ? a->stream[i].row_at[a->row] : a->row;
        const char *at = a->stream[i].base + row * a->stream[i].step + a->run * a->stream[i].run_step + a->line * LINE;
        n = attn__least(a->stream[i].lines - a->line, budget);
        for (const char *end = at + n * LINE; at < end; at += LINE)
            __builtin_prefetch(at, 0, 2);
        a->line += n;
        if (a->line == a->stream[i].lines)
            next_run(a);
    }
}
