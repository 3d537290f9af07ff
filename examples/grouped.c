/* SPDX-License-Identifier: MIT
 *
 * Grouped-query attention (Ainslie et al. 2023), in which several heads of queries share one head of keys and values.
 * The group is a BATCH dim. k and v have stride 0 along it.
 */
#include "example.h"

#include <string.h>

enum { B = 1, T = 16, H = 8, G = 2, D = 16 }; /* there are 8 heads of queries, and 2 heads of keys and values */

int main(void)
{
    static float q[B * T * H * D], k[B * T * G * D], v[B * T * G * D], o[B * T * H * D];
    static float all_k[B * T * H * D], all_v[B * T * H * D], expected[B * T * H * D];
    fill(q, COUNT(q), 1), fill(k, COUNT(k), 2), fill(v, COUNT(v), 3);
    attn_context *context = begin();

    attn_problem problem;
    attn_heads heads = {.batch = B, .heads = H, .queries = T, .keys = T, .dim = D, .kv_heads = G};
    must(context, attn_problem_heads(&problem, &heads));
    print_table("grouped: batch, kv head, group, query, key, channels", &problem);
    run(context, &problem, &(attn_arrays){.q = q, .k = k, .v = v, .o = o});

    /* The same result is computed without sharing, from four copies of each head of keys and values. */
    for (int t = 0; t < B * T; t++)
        for (int h = 0; h < H; h++) {
            memcpy(all_k + (t * H + h) * D, k + (t * G + h / (H / G)) * D, D * sizeof *k);
            memcpy(all_v + (t * H + h) * D, v + (t * G + h / (H / G)) * D, D * sizeof *v);
        }
    heads.kv_heads = 0;
    must(context, attn_problem_heads(&problem, &heads));
    print_table("repeated", &problem);
    run(context, &problem, &(attn_arrays){.q = q, .k = all_k, .v = all_v, .o = expected});

    printf("keys and values: %zu bytes grouped, %zu repeated\n", sizeof k + sizeof v, sizeof all_k + sizeof all_v);
    claim(furthest(o, expected, COUNT(o)) < 1e-6, "grouped heads give what repeated ones do");
    attn_context_destroy(context);
    return 0;
}
