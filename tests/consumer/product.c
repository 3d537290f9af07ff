/* SPDX-License-Identifier: MIT
 *
 * product.h: y = relu(x w^T + b) with w as it is and packed, and the norm of its rows. */
#include <attn/product.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { ROWS = 5, IN = 7, OUT = 9 };

int main(void)
{
    float x[ROWS][IN], w[OUT][IN], b[OUT], y[ROWS][OUT], packed_y[ROWS][OUT], norm_y[ROWS][OUT];
    for (int i = 0; i < ROWS * IN; i++)
        (&x[0][0])[i] = (float)sin(i);
    for (int i = 0; i < OUT * IN; i++)
        (&w[0][0])[i] = (float)cos(2 * i);
    for (int i = 0; i < OUT; i++)
        b[i] = (float)i / 10;
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);

    attn_product product = {.m = ROWS,
                            .n = OUT,
                            .k = IN,
                            .a = {x, ATTN_F32, IN, 1, 0},
                            .b = {w, ATTN_F32, 1, IN, 0},
                            .c = {y, ATTN_F32, OUT, 1, 0},
                            .bias = b,
                            .activation = ATTN_ACTIVATION_RELU};
    CHECK(attn_multiply(context, &product) == ATTN_OK);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < OUT; j++) {
            double sum = b[j];
            for (int l = 0; l < IN; l++)
                sum += (double)x[i][l] * w[j][l];
            CHECK(fabs(y[i][j] - fmax(sum, 0)) < 1e-5);
        }

    /* The same with B packed once; then a column of it back, with its bits. */
    size_t bytes;
    CHECK(attn_product_packed_size(&bytes, context, ATTN_PRECISION_F32, ATTN_F32, IN, OUT) == ATTN_OK);
    void *packed = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK(packed);
    CHECK(attn_product_pack(context, ATTN_PRECISION_F32, &product.b, IN, OUT, packed) == ATTN_OK);
    product.packed = packed;
    product.c.data = packed_y;
    CHECK(attn_multiply(context, &product) == ATTN_OK);
    for (int i = 0; i < ROWS * OUT; i++)
        CHECK(fabs((&y[0][0])[i] - (&packed_y[0][0])[i]) < 1e-6);
    float column[IN];
    const int64_t last = OUT - 1;
    CHECK(attn_product_unpack(context, packed, &last, 1, &(attn_matrix){column, ATTN_F32, 1, 1, 0}) == ATTN_OK);
    CHECK(memcmp(column, w[OUT - 1], sizeof column) == 0);

    attn_row_norm norm = {.rows = ROWS, .n = OUT, .x = product.c, .y = {norm_y, ATTN_F32, OUT, 1, 0}, .eps = 1e-5};
    CHECK(attn_normalize_rows(context, &norm) == ATTN_OK);
    for (int i = 0; i < ROWS; i++) {
        double mean = 0, variance = 0;
        for (int j = 0; j < OUT; j++)
            mean += packed_y[i][j] / (double)OUT;
        for (int j = 0; j < OUT; j++)
            variance += (packed_y[i][j] - mean) * (packed_y[i][j] - mean) / OUT;
        for (int j = 0; j < OUT; j++)
            CHECK(fabs(norm_y[i][j] - (packed_y[i][j] - mean) / sqrt(variance + 1e-5)) < 1e-4);
    }

    product.k = IN + 1; /* is not the size of the packed matrix */
    CHECK(attn_multiply(context, &product) == ATTN_ERROR_ARGUMENT);
    printf("product: %s\n", attn_context_error(context));
    free(packed);
    attn_context_destroy(context);
    return 0;
}
