/* SPDX-License-Identifier: MIT
 *
 * A 3 x 3 window over an image, with the three kinds of border. KEY dims are the taps, whose positions move with the
 * query. Queries are zero, so that every tap has the same weight and the output is a plain mean.
 */
#include "example.h"

enum { Y = 5, X = 6, D = 4, W = 3 };

/* Returns the mean of the taps' columns at pixel (0, x), computed by hand. 2 of the 3 rows of taps are inside of the
 * image. */
static double expected(attn_border border, int x)
{
    double sum = 0, taps = 0;
    for (int t = x - 1; t <= x + 1; t++)
        if (t >= 0 && t < X)
            sum += t, taps += 1;
    if (border == ATTN_BORDER_ZERO) /* All 9 taps count. Taps outside of the image have the value 0. */
        return 2 * sum / 9;
    if (border == ATTN_BORDER_SHIFT) /* The window is moved, so that all 9 taps are inside of the image. */
        return x == 0 ? 1 : x == X - 1 ? X - 2 : x;
    return sum / taps;
}

int main(void)
{
    static const struct {
        attn_border border;
        const char *name;
    } borders[] = {{ATTN_BORDER_MASK, "mask"}, {ATTN_BORDER_ZERO, "zero"}, {ATTN_BORDER_SHIFT, "shift"}};
    static float q[Y * X * D], k[Y * X * D], v[Y * X * D], o[Y * X * D];
    fill(k, COUNT(k), 1);
    for (int i = 0; i < Y * X; i++)
        v[i * D] = (float)(i % X); /* the value is the number of the pixel's column */
    attn_context *context = begin();

    double most = 0;
    for (size_t i = 0; i < COUNT(borders); i++) {
        attn_problem problem;
        must(context, attn_problem_window2d(&problem, &(attn_window2d){.height = Y,
                                                                       .width = X,
                                                                       .heads = 1,
                                                                       .dim = D,
                                                                       .batch = 1,
                                                                       .window_y = W,
                                                                       .window_x = W,
                                                                       .border = borders[i].border}));
        if (i == 0)
            print_table("a window: KEY dims are 3 taps each, and step by a pixel in k and v", &problem);
        run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o});
        printf("mean column seen from the top row, border %-5s:", borders[i].name);
        for (int x = 0; x < X; x++) {
            printf(" %.3f", (double)o[x * D]);
            most = fmax(most, fabs((double)o[x * D] - expected(borders[i].border, x)));
        }
        printf("\n");
    }
    claim(most < 1e-5, "each border gives the mean that it should");
    attn_context_destroy(context);
    return 0;
}
