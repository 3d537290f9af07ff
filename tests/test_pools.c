/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Compares max and mean pooling and their gradients with loops over windows, in float and double. NaN counts as larger
 * than any number.
 */
#include "support/cmocka.h"

#include "attn/tensor.h"
#include "base/rng.h"
#include "tensor/spatial.h"

#include <math.h>
#include <string.h>

enum { PLANES = 3, MOST = 4096 };

typedef struct volumes {
    double x[MOST], y[MOST], dy[MOST], dx[MOST];
} volumes;

static attn__window_grid grid_of(const int64_t in[3], const int64_t kernel[3], const int64_t stride[3],
                                 const int64_t padding[3])
{
    attn__window_grid g = {{0}, {0}, {0}, {0}, {0}, {0}};
    for (int i = 0; i < 3; i++) {
        g.in[i] = in[i], g.kernel[i] = kernel[i], g.stride[i] = stride[i], g.padding[i] = padding[i];
        g.out[i] = (in[i] + 2 * padding[i] - kernel[i]) / stride[i] + 1;
    }
    return g;
}

/* Returns the index that a tap of a window reads, or -1 if the tap is outside. */
static int64_t read_of(const attn__window_grid *g, int64_t window, int64_t tap)
{
    int64_t at = 0, across = 1;
    for (int i = 2; i >= 0; i--) {
        int64_t here = window % g->out[i] * g->stride[i] + tap % g->kernel[i] - g->padding[i];
        if (here < 0 || here >= g->in[i])
            return -1;
        at += here * across;
        across *= g->in[i];
        window /= g->out[i];
        tap /= g->kernel[i];
    }
    return at;
}

/* Computes y from v->x, and adds the gradient of x from v->dy to dx. */
static void look_at_windows(const attn__window_grid *g, bool largest, volumes *v)
{
    int64_t in = attn__volume(g->in), out = attn__volume(g->out), taps = attn__volume(g->kernel);
    for (int64_t i = 0; i < PLANES * out; i++) {
        int64_t plane = i / out * in, best = -1;
        v->y[i] = 0;
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t at = read_of(g, i % out, tap);
            if (at < 0)
                continue;
            double x = v->x[plane + at];
            if (best < 0 || x > v->x[best] || isnan(x))
                best = plane + at;
            v->y[i] += x / (double)taps;
            if (!largest)
                v->dx[plane + at] += v->dy[i] / (double)taps;
        }
        if (largest) {
            v->y[i] = v->x[best];
            v->dx[best] += v->dy[i];
        }
    }
}

static void put(void *to, bool is_double, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (is_double)
            ((double *)to)[i] = from[i];
        else
            ((float *)to)[i] = (float)from[i];
}

static void are_near(const void *got, bool is_double, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = is_double ? ((const double *)got)[i] : (double)((const float *)got)[i];
        if (isnan(want[i]) ? !isnan(x) : !(fabs(x - want[i]) <= (is_double ? 1e-14 : 2e-6)))
            fail_msg("number %lld is %.9g, wanted %.9g", (long long)i, x, want[i]);
    }
}

static void is_right(const attn__window_grid *g, bool is_double, bool largest, bool has_nan)
{
    static volumes v;
    static double x[MOST], y[MOST], dy[MOST], dx[MOST];
    static int32_t index[MOST];
    int64_t in = PLANES * attn__volume(g->in), out = PLANES * attn__volume(g->out);
    assert_true(in <= MOST && out <= MOST);
    attn__rng rng = {.seed = 5};
    for (int64_t i = 0; i < in; i++)
        v.x[i] = (double)(float)attn__rng_normal(&rng), v.dx[i] = (double)(float)attn__rng_normal(&rng);
    for (int64_t i = 0; i < out; i++)
        v.dy[i] = (double)(float)attn__rng_normal(&rng);
    for (int64_t i = 3; has_nan && i < in; i += 17)
        v.x[i] = NAN;
    put(x, is_double, v.x, in);
    put(dx, is_double, v.dx, in);
    put(dy, is_double, v.dy, out);
    look_at_windows(g, largest, &v);
    const attn__spatial_loops *loops = attn__spatial_loops_for(is_double);
    attn__spatial_args args = {.grid = *g, .x = x, .y = y, .index = index};
    attn__spatial_args back = {.grid = *g, .x = dy, .y = dx, .index = index};
    for (int64_t plane = 0; plane < PLANES; plane += 2) {
        int64_t end = plane + 2 < PLANES ? plane + 2 : PLANES;
        (largest ? loops->max_pool : loops->avg_pool)(&args, plane, end);
        (largest ? loops->max_backward : loops->avg_backward)(&back, plane, end);
    }
    are_near(y, is_double, v.y, out);
    are_near(dx, is_double, v.dx, in);
}

static void windows_of_many_kinds(void **state)
{
    static const struct {
        int64_t in[3], kernel[3], stride[3], padding[3];
    } kinds[] = {
        {{1, 28, 28}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}},  {{1, 7, 9}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}},
        {{1, 9, 8}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}},    {{1, 9, 8}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}},
        {{1, 5, 11}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}},   {{1, 5, 11}, {1, 3, 2}, {1, 1, 1}, {0, 0, 0}},
        {{1, 4, 16}, {1, 1, 16}, {1, 1, 16}, {0, 0, 0}}, {{5, 6, 7}, {2, 3, 2}, {2, 1, 3}, {0, 0, 0}},
        {{5, 6, 7}, {3, 2, 3}, {2, 2, 1}, {1, 1, 1}},    {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
        {{1, 3, 3}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},    {{1, 6, 6}, {1, 2, 2}, {1, 3, 3}, {0, 1, 1}},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        attn__window_grid g = grid_of(kinds[k].in, kinds[k].kernel, kinds[k].stride, kinds[k].padding);
        bool padded = g.padding[0] || g.padding[1] || g.padding[2];
        for (int way = 0; way < 4; way++) {
            is_right(&g, way & 1, true, way & 2);
            if (!padded)
                is_right(&g, way & 1, false, way & 2);
        }
    }
}

RUN_TESTS(TEST(windows_of_many_kinds))
