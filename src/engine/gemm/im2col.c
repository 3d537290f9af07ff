/* SPDX-License-Identifier: MIT */
#include "gemm/im2col.h"

#include "base/integers.h"

#include <stdbool.h>
#include <string.h>

enum { X = 2 }; /* the innermost axis */

int64_t attn__volume(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

/* Source of a row of the im2col matrix: one tap of the window and one channel. */
typedef struct tap {
    const attn__window_grid *g;
    int64_t size;     /* bytes of one element */
    int64_t shift[3]; /* input position = stride * output position + shift */
    const char *x;
} tap;

static tap tap_of(const attn__im2col *s, int64_t batch, int64_t row)
{
    const attn__window_grid *g = &s->grid;
    int64_t taps = attn__volume(g->kernel), index = row % taps;
    tap t = {.g = g, .size = s->element_size};
    for (int axis = X; axis >= 0; axis--) {
        t.shift[axis] = index % g->kernel[axis] * attn__tap_step(g, axis) - g->padding[axis];
        index /= g->kernel[axis];
    }
    t.x = (const char *)s->x + (batch * s->image + row / taps * attn__volume(g->in)) * t.size;
    return t;
}

/* Moves to the next row of the im2col matrix without a division. */
static void next_tap(tap *t)
{
    const attn__window_grid *g = t->g;
    for (int axis = X; axis >= 0; axis--) {
        t->shift[axis] += attn__tap_step(g, axis);
        if (t->shift[axis] < g->kernel[axis] * attn__tap_step(g, axis) - g->padding[axis])
            return;
        t->shift[axis] = -g->padding[axis];
    }
    t->x += attn__volume(t->g->in) * t->size;
}

/* A branch for one element is faster, because most calls clear one or none. */
static void clear(char *to, int64_t n, int64_t size)
{
    if (n == 1 && size == sizeof(float))
        memset(to, 0, sizeof(float));
    else if (n > 0)
        memset(to, 0, (size_t)(n * size));
}

/* Copies every second float from `from`.  Returns the number of floats copied, at least n - 4, because it never reads
 * past from[2 * (n - 1)]. */
static int64_t copy_every_second(float *to, const float *from, int64_t n)
{
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    int64_t i = 0;
    for (; i + 4 < n; i += 4) {
        four low = *(const four *)(from + 2 * i), high = *(const four *)(from + 2 * i + 4);
        *(four *)(to + i) = (four){low[0], low[2], high[0], high[2]};
    }
    return i;
}

/* Copies n elements, which are `step` apart in `from`. */
static void copy_strided(void *to, const void *from, int64_t n, int64_t step, int64_t size)
{
    bool floats = size == sizeof(float);
    int64_t i = floats && step == 2 ? copy_every_second(to, from, n) : 0;
    for (; i < n && floats; i++)
        ((float *)to)[i] = ((const float *)from)[i * step];
    for (; i < n; i++)
        ((double *)to)[i] = ((const double *)from)[i * step];
}

/* Writes columns [x, x + n) of one row of the im2col matrix from line `line` of the image. If `line` is -1, writes
 * zeros. */
static void copy_line(const tap *t, int64_t line, int64_t x, int64_t n, char *to)
{
    const attn__window_grid *g = t->g;
    int64_t step = g->stride[X], shift = t->shift[X];
    int64_t first = shift < 0 ? attn__ceil_div(-shift, step) : 0;
    int64_t end = g->in[X] > shift ? attn__ceil_div(g->in[X] - shift, step) : 0;
    first = attn__min(attn__max(first - x, 0), n);
    end = line < 0 ? first : attn__min(attn__max(end - x, first), n);
    clear(to, first, t->size);
    clear(to + end * t->size, n - end, t->size);
    if (end <= first)
        return;
    const char *from = t->x + (line * g->in[X] + (x + first) * step + shift) * t->size;
    if (step == 1)
        memcpy(to + first * t->size, from, (size_t)((end - first) * t->size));
    else
        copy_strided(to + first * t->size, from, end - first, step, t->size);
}

/* Returns the line of the image that the tap reads for output line `row`, or -1 if that line is outside of the image.
 * Lines are counted over depth and height. */
static int64_t line_of(const tap *t, int64_t row)
{
    const attn__window_grid *g = t->g;
    int64_t z = row / g->out[1] * g->stride[0] + t->shift[0], y = row % g->out[1] * g->stride[1] + t->shift[1];
    bool inside = z >= 0 && z < g->in[0] && y >= 0 && y < g->in[1];
    return inside ? z * g->in[1] + y : -1;
}

static void copy_lines(const tap *t, int64_t column, int64_t columns, char *to)
{
    int64_t width = t->g->out[X];
    for (int64_t done = 0, n; done < columns; done += n) {
        int64_t x = (column + done) % width;
        n = attn__min(width - x, columns - done);
        copy_line(t, line_of(t, (column + done) / width), x, n, to + done * t->size);
    }
}

/* Reports whether adjacent output positions read adjacent elements. This needs stride 1, depth 1, and the same width of
 * input and output. A range of positions is then one copy, after which the borders are cleared. */
static bool is_one_copy(const attn__window_grid *g)
{
    return g->out[X] == g->in[X] && g->stride[X] == 1 && g->stride[1] == 1 && g->out[0] == 1 && g->in[0] == 1 &&
           g->kernel[0] == 1 && g->padding[0] == 0 && g->padding[X] < g->in[X];
}

static void clear_columns(const tap *t, int64_t begin, int64_t end, int64_t column, int64_t columns, char *to)
{
    int64_t width = t->g->out[X];
    for (int64_t row = column / width * width; row < column + columns; row += width) {
        int64_t first = attn__max(row + begin, column), last = attn__min(row + end, column + columns);
        if (first < last)
            clear(to + (first - column) * t->size, last - first, t->size);
    }
}

static void copy_range(const tap *t, int64_t column, int64_t columns, char *to)
{
    const attn__window_grid *g = t->g;
    int64_t width = g->in[X], shift = t->shift[1] * width + t->shift[X], numbers = g->in[1] * width;
    int64_t first = attn__min(attn__max(-shift, column), column + columns);
    int64_t end = attn__max(attn__min(numbers - shift, column + columns), first);
    clear(to, first - column, t->size);
    memcpy(to + (first - column) * t->size, t->x + (first + shift) * t->size, (size_t)((end - first) * t->size));
    clear(to + (end - column) * t->size, column + columns - end, t->size);
    if (t->shift[X] < 0)
        clear_columns(t, 0, -t->shift[X], column, columns, to);
    else if (t->shift[X] > 0)
        clear_columns(t, width - t->shift[X], width, column, columns, to);
}

void attn__im2col_gather(const void *source, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         int64_t ld, void *to)
{
    enum { MULTIPLE = 16 };
    const attn__im2col *s = source;
    int64_t behind = attn__round_up(columns, MULTIPLE) - columns;
    bool one_copy = is_one_copy(&s->grid);
    tap t = tap_of(s, batch, row);
    for (int64_t i = 0; i < rows; i++, next_tap(&t)) {
        char *line = (char *)to + i * ld * t.size;
        if (one_copy)
            copy_range(&t, column, columns, line);
        else
            copy_lines(&t, column, columns, line);
        clear(line + columns * t.size, behind, t.size);
    }
}
