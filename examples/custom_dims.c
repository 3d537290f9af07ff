/* SPDX-License-Identifier: MIT
 *
 * Fills the table of dims by hand for a problem that no function describes. In a video [T,Y,X,H,D], a pixel attends to
 * its row of pixels in this frame and in all earlier frames. Then the same video is stored channels first, [H,D,T,Y,X].
 */
#include "example.h"

enum { T = 4, Y = 3, X = 5, H = 2, D = 8, N = T * Y * X * H * D, QUERY_T = 2, KEY_T = 4 };

/* The strides of each axis, which define a layout. */
typedef struct layout {
    int64_t t, y, x, h, d;
} layout;

static attn_problem describe(layout s)
{
    attn_problem p = {
        .ndims = 8,
        .dims = {{.role = ATTN_ROLE_BATCH, .n = Y, .q = s.y, .k = s.y, .v = s.y, .o = s.y},
                 {.role = ATTN_ROLE_BATCH, .n = H, .q = s.h, .k = s.h, .v = s.h, .o = s.h},
                 {.role = ATTN_ROLE_QUERY, .n = T, .q = s.t, .o = s.t},
                 {.role = ATTN_ROLE_QUERY, .n = X, .q = s.x, .o = s.x},
                 {.role = ATTN_ROLE_KEY, .n = T, .k = s.t, .v = s.t},
                 {.role = ATTN_ROLE_KEY, .n = X, .k = s.x, .v = s.x},
                 {.role = ATTN_ROLE_CONTRACT, .n = D, .q = s.d, .k = s.d},
                 {.role = ATTN_ROLE_VALUE, .n = D, .v = s.d, .o = s.d}},
        .nbands = 1, /* The band is causal along t only, so that no later frames are visible. */
        .bands = {{.query_dim = QUERY_T, .key_dim = KEY_T, .lo = INT64_MIN, .hi = 0}},
    };
    return p;
}

static double expected(const float *q, const float *k, const float *v, layout s, int t, int y, int x, int h, int d)
{
    double above = 0, below = 0;
    for (int u = 0; u <= t; u++)
        for (int z = 0; z < X; z++) {
            int64_t query = t * s.t + y * s.y + x * s.x + h * s.h, key = u * s.t + y * s.y + z * s.x + h * s.h;
            double score = 0;
            for (int c = 0; c < D; c++)
                score += (double)q[query + c * s.d] * (double)k[key + c * s.d];
            double weight = exp(score / sqrt(D));
            above += weight * (double)v[key + d * s.d];
            below += weight;
        }
    return above / below;
}

int main(void)
{
    static const layout layouts[] = {{Y * X * H * D, X * H * D, H * D, D, 1}, {Y * X, X, 1, D * T * Y * X, T * Y * X}};
    static const char *const names[] = {"[T,Y,X,H,D]", "[H,D,T,Y,X]"};
    static float q[N], k[N], v[N], o[N];
    fill(q, N, 1), fill(k, N, 2), fill(v, N, 3);
    attn_context *context = begin();
    for (size_t i = 0; i < COUNT(layouts); i++) {
        layout s = layouts[i];
        attn_problem problem = describe(s);
        print_table(names[i], &problem);
        run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o});
        double most = 0;
        for (int t = 0; t < T; t++)
            /* Only the last row of pixels is checked, in the last head and channel. */
            for (int x = 0; x < X; x++)
                most = fmax(most, fabs(expected(q, k, v, s, t, Y - 1, x, H - 1, D - 1) -
                                       (double)o[t * s.t + (Y - 1) * s.y + x * s.x + (H - 1) * s.h + (D - 1) * s.d]));
        printf("furthest from the plain loop: %.1e\n", most);
        claim(most < 1e-6, "the film attends as described");
    }
    attn_context_destroy(context);
    return 0;
}
