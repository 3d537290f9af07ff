/* SPDX-License-Identifier: MIT
 *
 * Stores q, k and v in bf16. A bf16 number is the upper half of a float. So only half of the memory is read, and sums
 * are still f32.
 */
#include "example.h"

#include <string.h>

enum { H = 4, T = 128, D = 64, N = T * H * D };

/* Rounds to the nearest bf16 number, ties to even. */
static uint16_t bf16_from(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float bf16_to(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

int main(void)
{
    static float whole[3][N], o[N];
    static uint16_t half[3][N], half_o[N];
    for (int i = 0; i < 3; i++) { /* The f32 run uses the rounded q, k and v, too. */
        fill(whole[i], N, (uint32_t)i);
        for (int j = 0; j < N; j++)
            whole[i][j] = bf16_to(half[i][j] = bf16_from(whole[i][j]));
    }
    attn_context *context = begin();

    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = H, .queries = T, .keys = T, .dim = D};
    must(context, attn_problem_heads(&problem, &heads));
    run(context, &problem, &(attn_arrays){.q = whole[0], .k = whole[1], .v = whole[2], .o = o});
    problem.dtype = ATTN_BF16; /* Strides count elements, so they are the same as in f32. */
    print_table("f32 and bf16 alike", &problem);
    run(context, &problem, &(attn_arrays){.q = half[0], .k = half[1], .v = half[2], .o = half_o});

    double most = 0, largest = 0;
    for (int i = 0; i < N; i++) {
        most = fmax(most, fabs((double)o[i] - (double)bf16_to(half_o[i])));
        largest = fmax(largest, fabs((double)o[i]));
    }
    printf("this machine runs %s; bf16 has 8 bits of precision\n", attn_context_isa(context));
    printf("q, k, v, o: %zu bytes in f32, %zu in bf16; furthest apart %.1e of at most %.2f\n", sizeof whole + sizeof o,
           sizeof half + sizeof half_o, most, largest);
    claim(most < largest / 128, "bf16 is f32 within a rounding or two of its own");
    attn_context_destroy(context);
    return 0;
}
