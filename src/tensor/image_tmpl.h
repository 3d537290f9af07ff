/* SPDX-License-Identifier: MIT
 *
 * image_tmpl.h - the loops of image.h for one type; included by image.c with REAL and NAME.
 */

/* One row of an unfolded image, or back: calls BODY(out index, in index) for taps inside. */
#define FOR_TAPS_INSIDE(g, tap, BODY)                                                                                  \
    do {                                                                                                               \
        int64_t tx = (tap) % (g)->kernel[2], ty = (tap) / (g)->kernel[2] % (g)->kernel[1];                             \
        int64_t tz = (tap) / (g)->kernel[2] / (g)->kernel[1], at_out = 0;                                              \
        for (int64_t oz = 0; oz < (g)->out[0]; oz++) {                                                                 \
            for (int64_t oy = 0; oy < (g)->out[1]; oy++) {                                                             \
                for (int64_t ox = 0; ox < (g)->out[2]; ox++, at_out++) {                                               \
                    int64_t z = oz * (g)->stride[0] + tz - (g)->padding[0];                                            \
                    int64_t y = oy * (g)->stride[1] + ty - (g)->padding[1];                                            \
                    int64_t x = ox * (g)->stride[2] + tx - (g)->padding[2];                                            \
                    bool inside = z >= 0 && z < (g)->in[0] && y >= 0 && y < (g)->in[1] && x >= 0 && x < (g)->in[2];    \
                    int64_t at_in = (z * (g)->in[1] + y) * (g)->in[2] + x;                                             \
                    BODY                                                                                               \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

/* Output rows and where they read: calls BODY for each of them with `from` (the element that output column 0 would
 * read, inside or not), `inside` (whether its row is inside) and [first, last), the output columns that read inside. */
#define FOR_ROWS(g, tap, BODY)                                                                                         \
    do {                                                                                                               \
        int64_t tx = (tap) % (g)->kernel[2], ty = (tap) / (g)->kernel[2] % (g)->kernel[1];                             \
        int64_t tz = (tap) / (g)->kernel[2] / (g)->kernel[1], step = (g)->stride[2], shift = tx - (g)->padding[2];     \
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

static void NAME(unfold)(void *user, int64_t begin, int64_t end_row)
{
    const attn__image_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t taps = attn__volume(g->kernel), in = attn__volume(g->in), out = attn__volume(g->out), width = g->out[2];
    for (int64_t row = begin; row < end_row; row++) {
        const REAL *x = (const REAL *)a->x + row / taps * in;
        REAL *to = (REAL *)a->y + row * out;
        FOR_ROWS(g, row % taps, {
            REAL *line = to + at_out;
            if (!inside || first > 0 || last < width)
                memset(line, 0, (size_t)width * sizeof *line);
            if (inside && step == 1 && last > first)
                memcpy(line + first, x + from + first, (size_t)(last - first) * sizeof *line);
            for (int64_t i = first; i < last && inside && step > 1; i++)
                line[i] = x[from + i * step];
        });
    }
}

static void NAME(fold)(void *user, int64_t begin, int64_t end_channel)
{
    const attn__image_args *a = user;
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
#undef FOR_ROWS

static void NAME(max_pool)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t taps = attn__volume(g->kernel), in = attn__volume(g->in), out = attn__volume(g->out);
    for (int64_t plane = begin; plane < end; plane++) {
        const REAL *from = (const REAL *)a->x + plane * in;
        REAL *to = (REAL *)a->y + plane * out;
        int32_t *index = a->index + plane * out;
        for (int64_t i = 0; i < out; i++)
            index[i] = -1; /* nothing found yet: the first taps of a window may be outside */
        for (int64_t tap = 0; tap < taps; tap++) {
            FOR_TAPS_INSIDE(
                g, tap, if (inside && (index[at_out] < 0 || from[at_in] > to[at_out] || from[at_in] != from[at_in])) {
                    to[at_out] = from[at_in];
                    index[at_out] = (int32_t)at_in;
                });
        }
    }
}

static void NAME(max_backward)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    int64_t in = attn__volume(a->grid.in), out = attn__volume(a->grid.out);
    for (int64_t plane = begin; plane < end; plane++) {
        for (int64_t i = 0; i < out; i++)
            ((REAL *)a->y)[plane * in + a->index[plane * out + i]] += ((const REAL *)a->x)[plane * out + i];
    }
}

static void NAME(avg_pool)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t taps = attn__volume(g->kernel), in = attn__volume(g->in), out = attn__volume(g->out);
    for (int64_t plane = begin; plane < end; plane++) {
        const REAL *from = (const REAL *)a->x + plane * in;
        REAL *to = (REAL *)a->y + plane * out;
        for (int64_t tap = 0; tap < taps; tap++)
            FOR_TAPS_INSIDE(g, tap, if (inside) to[at_out] = (tap == 0 ? 0 : to[at_out]) + from[at_in];);
        for (int64_t i = 0; i < out; i++)
            to[i] /= (REAL)taps;
    }
}

static void NAME(avg_backward)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    const attn__window_grid *g = &a->grid;
    int64_t taps = attn__volume(g->kernel), in = attn__volume(g->in), out = attn__volume(g->out);
    for (int64_t plane = begin; plane < end; plane++) {
        const REAL *from = (const REAL *)a->x + plane * out;
        REAL *to = (REAL *)a->y + plane * in;
        for (int64_t tap = 0; tap < taps; tap++)
            FOR_TAPS_INSIDE(g, tap, if (inside) to[at_in] += from[at_out] / (REAL)taps;);
    }
}

/* Two passes in double: the mean, then squares of distances from it. */
static void NAME(statistics)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    double n = (double)(a->batch * a->plane);
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, square = 0;
        for (int64_t b = 0; b < a->batch; b++) {
            for (int64_t i = 0; i < a->plane; i++)
                sum += (double)((const REAL *)a->x)[(b * a->channels + c) * a->plane + i];
        }
        double mean = n > 0 ? sum / n : 0;
        for (int64_t b = 0; b < a->batch; b++) {
            for (int64_t i = 0; i < a->plane; i++) {
                double d = (double)((const REAL *)a->x)[(b * a->channels + c) * a->plane + i] - mean;
                square += d * d;
            }
        }
        ((REAL *)a->y)[c] = (REAL)mean;
        ((REAL *)a->y2)[c] = (REAL)(n > 0 ? square / n : 0);
    }
}

static void NAME(normalise)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    for (int64_t c = begin; c < end; c++) {
        REAL scale = ((const REAL *)a->inverse)[c] * ((const REAL *)a->gain)[c];
        REAL mean = ((const REAL *)a->mean)[c], bias = ((const REAL *)a->bias)[c];
        for (int64_t b = 0; b < a->batch; b++) {
            const REAL *x = (const REAL *)a->x + (b * a->channels + c) * a->plane;
            REAL *y = (REAL *)a->y + (b * a->channels + c) * a->plane;
            for (int64_t i = 0; i < a->plane; i++)
                y[i] = (x[i] - mean) * scale + bias;
        }
    }
}

static void NAME(normalise_sums)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    for (int64_t c = begin; c < end; c++) {
        REAL inverse = ((const REAL *)a->inverse)[c], mean = ((const REAL *)a->mean)[c];
        double sum = 0, product = 0;
        for (int64_t b = 0; b < a->batch; b++) {
            const REAL *d = (const REAL *)a->x + (b * a->channels + c) * a->plane;
            const REAL *x = (const REAL *)a->x2 + (b * a->channels + c) * a->plane;
            for (int64_t i = 0; i < a->plane; i++) {
                sum += (double)d[i];
                product += (double)(d[i] * ((x[i] - mean) * inverse));
            }
        }
        if (a->y2)
            ((REAL *)a->y2)[c] = (REAL)product + (a->add2 ? ((REAL *)a->y2)[c] : 0);
        if (a->y3)
            ((REAL *)a->y3)[c] = (REAL)sum + (a->add3 ? ((REAL *)a->y3)[c] : 0);
        a->sums[2 * c] = sum;
        a->sums[2 * c + 1] = product;
    }
}

static void NAME(normalise_backward)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    for (int64_t c = begin; c < end; c++) {
        REAL inverse = ((const REAL *)a->inverse)[c], mean = ((const REAL *)a->mean)[c];
        REAL scale = inverse * ((const REAL *)a->gain)[c];
        /* The batch's own statistics move with its elements, running ones do not. */
        REAL level = a->train ? (REAL)(a->sums[2 * c] / a->whole) : 0;
        REAL slope = a->train ? (REAL)(a->sums[2 * c + 1] / a->whole) : 0;
        for (int64_t b = 0; b < a->batch && a->y; b++) {
            const REAL *d = (const REAL *)a->x + (b * a->channels + c) * a->plane;
            const REAL *x = (const REAL *)a->x2 + (b * a->channels + c) * a->plane;
            REAL *y = (REAL *)a->y + (b * a->channels + c) * a->plane;
            for (int64_t i = 0; i < a->plane; i++)
                y[i] = scale * (d[i] - level - (x[i] - mean) * inverse * slope) + (a->add ? y[i] : 0);
        }
    }
}

static void NAME(add_channels)(void *user, int64_t begin, int64_t end)
{
    const attn__image_args *a = user;
    for (int64_t c = begin; c < end; c++) {
        REAL bias = ((const REAL *)a->bias)[c];
        for (int64_t b = 0; b < a->batch; b++) {
            REAL *y = (REAL *)a->y + (b * a->channels + c) * a->plane;
            for (int64_t i = 0; i < a->plane; i++)
                y[i] += bias;
        }
    }
}

static const attn__image_loops NAME(loops) = {
    .unfold = NAME(unfold),
    .fold = NAME(fold),
    .max_pool = NAME(max_pool),
    .max_backward = NAME(max_backward),
    .avg_pool = NAME(avg_pool),
    .avg_backward = NAME(avg_backward),
    .statistics = NAME(statistics),
    .normalise = NAME(normalise),
    .normalise_sums = NAME(normalise_sums),
    .normalise_backward = NAME(normalise_backward),
    .add_channels = NAME(add_channels),
};

#undef FOR_TAPS_INSIDE
