/* SPDX-License-Identifier: MIT
 *
 * Shows that a layout is only a set of strides. First, the heads are inside of the channels of one packed qkv matrix.
 * Then the same numbers are [B,H,T,D].
 */
#include "example.h"

enum { B = 2, T = 20, H = 3, D = 8, PACKED = 3 * H * D };

/* Returns the offset of element (b, t, h, d) of q (part 0), k (part 1) or v (part 2) in the output of one linear
 * layer, [B,T,3,H,D]. */
static size_t packed_at(int part, int b, int t, int h, int d)
{
    return (size_t)(((b * T + t) * 3 + part) * H + h) * D + (size_t)d;
}

static size_t apart_at(int b, int t, int h, int d)
{
    return (size_t)((b * H + h) * T + t) * D + (size_t)d;
}

int main(void)
{
    static float qkv[B * T * PACKED], o[B * T * H * D], parts[3][B * H * T * D], expected[B * H * T * D];
    fill(qkv, COUNT(qkv), 1);
    attn_context *context = begin();

    /* Nothing is copied. q, k and v are three pointers into the matrix, whose rows have 3*H*D elements for each
     * token. */
    attn_problem problem;
    attn_heads heads = {
        .batch = B, .heads = H, .queries = T, .keys = T, .dim = D, .q_row = PACKED, .k_row = PACKED, .v_row = PACKED};
    must(context, attn_problem_heads(&problem, &heads));
    print_table("inside a packed matrix [B,T,3,H,D]", &problem);
    run(context, &problem, &(attn_arrays){.q = qkv, .k = qkv + H * D, .v = qkv + 2 * H * D, .o = o});

    /* For comparison, the same is computed from copies in which the tokens of each head are contiguous. */
    for (int part = 0; part < 3; part++)
        for (int b = 0; b < B; b++)
            for (int t = 0; t < T; t++)
                for (int h = 0; h < H; h++)
                    for (int d = 0; d < D; d++)
                        parts[part][apart_at(b, t, h, d)] = qkv[packed_at(part, b, t, h, d)];
    heads = (attn_heads){.batch = B, .heads = H, .queries = T, .keys = T, .dim = D, .layout = ATTN_LAYOUT_BHTD};
    must(context, attn_problem_heads(&problem, &heads));
    print_table("apart [B,H,T,D]", &problem);
    run(context, &problem, &(attn_arrays){.q = parts[0], .k = parts[1], .v = parts[2], .o = expected});

    double most = 0;
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++)
                most = fmax(most, furthest(o + ((b * T + t) * H + h) * D, expected + apart_at(b, t, h, 0), D));
    claim(most < 1e-6, "both layouts give the same output");
    attn_context_destroy(context);
    return 0;
}
