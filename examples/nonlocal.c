/* SPDX-License-Identifier: MIT
 *
 * The non-local block (Wang et al. 2018), in which every pixel attends to every second pixel of every second row. There
 * is no softmax. Instead, the dot products are divided by their number.
 */
#include "example.h"

enum { Y = 6, X = 8, C = 4, KEYS = (Y / 2) * (X / 2) };

int main(void)
{
    static float theta[Y * X * C], phi[Y * X * C], g[Y * X * C], o[Y * X * C];
    fill(theta, COUNT(theta), 1), fill(phi, COUNT(phi), 2), fill(g, COUNT(g), 3);
    attn_context *context = begin();

    /* Two dims are queries and two are keys. Half the length and twice the stride select every second key without a
     * copy. */
    attn_problem problem = {.ndims = 6, .normalization = ATTN_NORMALIZATION_MEAN, .scale = 1};
    problem.dims[0] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = Y, .q = X * C, .o = X * C};
    problem.dims[1] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = X, .q = C, .o = C};
    problem.dims[2] = (attn_dim){.role = ATTN_ROLE_KEY, .n = Y / 2, .k = 2 * X * C, .v = 2 * X * C};
    problem.dims[3] = (attn_dim){.role = ATTN_ROLE_KEY, .n = X / 2, .k = 2 * C, .v = 2 * C};
    problem.dims[4] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = C, .q = 1, .k = 1};
    problem.dims[5] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = C, .v = 1, .o = 1};
    print_table("a non-local block", &problem);
    run(context, &problem, &(attn_arrays){.q = theta, .k = phi, .v = g, .o = o});

    double most = 0;
    for (int i = 0; i < Y * X; i++) {
        double sum[C] = {0};
        for (int y = 0; y < Y; y += 2)
            for (int x = 0; x < X; x += 2) {
                int j = y * X + x;
                double score = 0;
                for (int c = 0; c < C; c++)
                    score += (double)theta[i * C + c] * (double)phi[j * C + c];
                for (int c = 0; c < C; c++)
                    sum[c] += score * (double)g[j * C + c] / KEYS;
            }
        for (int c = 0; c < C; c++)
            most = fmax(most, fabs(sum[c] - (double)o[i * C + c]));
    }
    printf("%d pixels attend %d of them; furthest from the plain loop: %.1e\n", Y * X, KEYS, most);
    claim(most < 1e-6, "the block follows its formula");
    attn_context_destroy(context);
    return 0;
}
