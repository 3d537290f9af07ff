/* SPDX-License-Identifier: MIT
 *
 * Causal multi-head attention over sentences of different lengths. The program describes a problem, plans it and
 * executes it.
 */
#include "example.h"

#include <string.h>

enum { B = 2, H = 4, T = 24, D = 16, ROW = H * D };

int main(void)
{
    static float q[B * T * ROW], k[B * T * ROW], v[B * T * ROW], o[B * T * ROW], again[B * T * ROW];
    const int32_t lens[B] = {24, 9}; /* the second sentence has padding after its 9th token */
    fill(q, COUNT(q), 1), fill(k, COUNT(k), 2), fill(v, COUNT(v), 3);
    attn_context *context = begin();

    /* The arrays are [B,T,H,D], which is the layout of the outputs of linear layers. If a field is zero, it has its
     * default. */
    attn_problem problem;
    must(context, attn_problem_heads(&problem, &(attn_heads){.batch = B,
                                                             .heads = H,
                                                             .queries = T,
                                                             .keys = T,
                                                             .dim = D,
                                                             .causal = ATTN_CAUSAL_TOP_LEFT,
                                                             .lens_per = 1}));
    print_table("multi-head attention", &problem);

    attn_plan *plan;
    must(context, attn_plan_create(&plan, context, &problem, NULL));
    char line[400];
    attn_plan_describe(plan, false, line, sizeof line);
    printf("the plan: %s\n", line);

    attn_arrays arrays = {.q = q, .k = k, .v = v, .lens = lens, .o = o};
    must(context, attn_plan_execute(plan, &arrays, NULL));

    /* The first token attends only to itself. So its output is its own value. */
    claim(furthest(o, v, ROW) == 0, "the first token of a causal sentence gets its own value");

    /* The content of the padding has no effect. The same plan runs again with other arrays. */
    for (int t = lens[1]; t < T; t++)
        for (int c = 0; c < ROW; c++)
            k[(T + t) * ROW + c] = v[(T + t) * ROW + c] = NAN;
    arrays.o = again;
    must(context, attn_plan_execute(plan, &arrays, NULL));
    claim(memcmp(o, again, sizeof o) == 0, "keys past the length change not one bit, not even NaN");

    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return 0;
}
