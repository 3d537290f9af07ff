/* SPDX-License-Identifier: MIT
 *
 * spatial_tmpl.h - the loops of spatial.h for one type. spatial.c includes this file with REAL and NAME defined. */

/* Runs BODY for each output row. In BODY, `inside` tells whether the input row exists, and `from` is the index of the
 * element that output column 0 reads. Only output columns [first, last) read elements inside the input, so `from`
 * itself may be outside. */
#define FOR_ROWS(g, tap, BODY)                                                                                         \
    do {                                                                                                               \
        int64_t tx = (tap) % (g)->kernel[2] * attn__tap_step(g, 2);                                                    \
        int64_t ty = (tap) / (g)->kernel[2] % (g)->kernel[1] * attn__tap_step(g, 1);                                   \
        int64_t tz = (tap) / (g)->kernel[2] / (g)->kernel[1] * attn__tap_step(g, 0);                                   \
        int64_t step = (g)->stride[2], shift = tx - (g)->padding[2];                                                   \
        int64_t first = shift < 0 ? (-shift + step - 1) / step : 0, end = (g)->in[2] - shift, at_out = 0;              \
        int64_t last = end <= 0 ? 0 : (end + step - 1) / step;                                                         \
        last = last < (g)->out[2] ? last : (g)->out[2];                                                                \
        first = first < last ? first : last;                                                                           \
        for (int64_t oz = 0; oz < (g)->out[0]; oz++) {                                                                 \
            for (int64_t oy = 0; oy < (g)->out[1]; oy++, at_out += (g)->out[2]) {                                      \
                int64_t z = oz * (g)->stride[0] + tz - (g)->padding[0];                                                \
                int64_t y = oy * (g)->stride[1] + ty - (g)->padding[1];                                                \
                bool inside = z >= 0 && z < (g)->in[0] && y >= 0 && y < (g)->in[1];                                    \
                int64_t from = (z * (g)->in[1] + y) * (g)->in[2] + shift;                                              \
                BODY                                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

static void NAME(fold)(void *user, int64_t begin, int64_t end_channel)
{
    const attn__spatial_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t taps = attn__volume(g->kernel), in = attn__volume(g->in), out = attn__volume(g->out);
    for (int64_t row = begin * taps; row < end_channel * taps; row++) {
        const REAL *x = (const REAL *)a->x + row * out;
        REAL *to = (REAL *)a->y + row / taps * in;
        FOR_ROWS(g, row % taps, {
            for (int64_t i = first; i < last && inside; i++)
                to[from + i * step] += x[at_out + i];
        });
    }
}

/* Computes the maximum of each window and the index of the maximum. The first of equal elements counts, and the last of
 * several NaNs. The loop has no branch, because a branch would often be mispredicted. */
static void NAME(max_pool)(void *user, int64_t begin, int64_t end_plane)
{
    const attn__spatial_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t taps = attn__volume(g->kernel), in = attn__volume(g->in), out = attn__volume(g->out);
    for (int64_t plane = begin; plane < end_plane; plane++) {
        const REAL *x = (const REAL *)a->x + plane * in;
        REAL *to = (REAL *)a->y + plane * out;
        int32_t *index = a->index + plane * out;
        first_of_windows(g, index);
        for (int64_t tap = 0; tap < taps; tap++) {
            FOR_ROWS(
                g, tap,
                {
                    for (int64_t i = first; i < last && inside; i++) {
                        int32_t was = index[at_out + i];
                        int32_t at = (int32_t)(from + i * step);
                        int32_t larger = (x[at] > x[was]) | (x[at] != x[at]);
                        index[at_out + i] = was ^ ((was ^ at) & -larger);
                    }
                });
        }
        for (int64_t i = 0; i < out; i++)
            to[i] = x[index[i]];
    }
}
#undef FOR_ROWS

static void NAME(max_backward)(void *user, int64_t begin, int64_t end)
{
    const attn__spatial_args *a = user;
    int64_t in = attn__volume(a->grid.in), out = attn__volume(a->grid.out);
    for (int64_t plane = begin; plane < end; plane++)
        for (int64_t i = 0; i < out; i++)
            ((REAL *)a->y)[plane * in + a->index[plane * out + i]] += ((const REAL *)a->x)[plane * out + i];
}

/* Returns the index of the first input element that output row `row` reads. It always exists, because mean pooling has
 * no padding. */
static int64_t NAME(first_read)(const attn__window_grid *g, int64_t row)
{
    return (row / g->out[1] * g->stride[0] * g->in[1] + row % g->out[1] * g->stride[1]) * g->in[2];
}

/* Computes to[i] += x[i * step] + ... + x[i * step + taps - 1] for each i < n. */
static void NAME(gather)(REAL *to, const REAL *x, int64_t n, int64_t step, int64_t taps)
{
    if (taps == 2 && step == 2) {
        for (int64_t i = 0; i < n; i++)
            to[i] = to[i] + x[2 * i] + x[2 * i + 1];
        return;
    }
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t i = 0; i < n; i++)
            to[i] += x[i * step + tap];
}

/* Computes to[i * step + k] += share * x[i] for each i < n and k < taps. This is the gradient of `gather`. */
static void NAME(scatter)(REAL *to, const REAL *x, int64_t n, int64_t step, int64_t taps, REAL share)
{
    if (taps == 2 && step == 2) {
        for (int64_t i = 0; i < n; i++) {
            REAL part = x[i] * share;
            to[2 * i] += part;
            to[2 * i + 1] += part;
        }
        return;
    }
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t i = 0; i < n; i++)
            to[i * step + tap] += x[i] * share;
}

static void NAME(avg_pool)(void *user, int64_t begin, int64_t end)
{
    const attn__spatial_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t rows = g->out[0] * g->out[1], width = g->out[2], lines = g->kernel[0] * g->kernel[1];
    REAL share = 1 / (REAL)attn__volume(g->kernel);
    for (int64_t row = begin * rows; row < end * rows; row++) {
        const REAL *x = (const REAL *)a->x + row / rows * attn__volume(g->in) + NAME(first_read)(g, row % rows);
        REAL *to = (REAL *)a->y + row * width;
        memset(to, 0, (size_t)width * sizeof *to);
        for (int64_t line = 0; line < lines; line++) {
            int64_t down = line / g->kernel[1] * g->in[1] + line % g->kernel[1];
            NAME(gather)(to, x + down * g->in[2], width, g->stride[2], g->kernel[2]);
        }
        for (int64_t i = 0; i < width; i++)
            to[i] *= share;
    }
}

static void NAME(avg_backward)(void *user, int64_t begin, int64_t end)
{
    const attn__spatial_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t rows = g->out[0] * g->out[1], width = g->out[2], lines = g->kernel[0] * g->kernel[1];
    REAL share = 1 / (REAL)attn__volume(g->kernel);
    for (int64_t row = begin * rows; row < end * rows; row++) {
        const REAL *x = (const REAL *)a->x + row * width;
        REAL *to = (REAL *)a->y + row / rows * attn__volume(g->in) + NAME(first_read)(g, row % rows);
        for (int64_t line = 0; line < lines; line++) {
            int64_t down = line / g->kernel[1] * g->in[1] + line % g->kernel[1];
            NAME(scatter)(to + down * g->in[2], x, width, g->stride[2], g->kernel[2], share);
        }
    }
}

static const attn__spatial_loops NAME(loops) = {
    .fold = NAME(fold),
    .max_pool = NAME(max_pool),
    .max_backward = NAME(max_backward),
    .avg_pool = NAME(avg_pool),
    .avg_backward = NAME(avg_backward),
};
