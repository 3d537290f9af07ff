/* SPDX-License-Identifier: MIT
 *
 * Axial attention (Ho et al. 2019), which is attention along the rows or along the columns of an image. The other axis
 * is a BATCH dim. A column needs no transpose, because the distance of its pixels is only another stride.
 */
#include "example.h"

enum { Y = 10, X = 6, C = 16, H = 2 };

/* Transposes an image from [X,Y,C] to [Y,X,C]. */
static void transpose(float *to, const float *from)
{
    for (int y = 0; y < Y; y++)
        for (int x = 0; x < X; x++)
            for (int c = 0; c < C; c++)
                to[(y * X + x) * C + c] = from[(x * Y + y) * C + c];
}

int main(void)
{
    static float turned[3][X * Y * C], image[3][Y * X * C], rows[Y * X * C], columns[Y * X * C];
    static float turned_rows[X * Y * C], expected[Y * X * C];
    for (int i = 0; i < 3; i++) {
        fill(turned[i], COUNT(turned[i]), (uint32_t)i);
        transpose(image[i], turned[i]);
    }
    attn_context *context = begin();
    attn_axis axis = {.rank = 3, .shape = {Y, X, C}, .channel_axis = 2, .heads = H};
    attn_arrays arrays = {.q = image[0], .k = image[1], .v = image[2], .o = rows};

    attn_problem problem;
    axis.axis = 1;
    must(context, attn_problem_axis(&problem, &axis));
    print_table("along each row: y, head, x, x, channels", &problem);
    run(context, &problem, &arrays);

    axis.axis = 0;
    must(context, attn_problem_axis(&problem, &axis));
    print_table("down each column: x, head, y, y, channels", &problem);
    arrays.o = columns;
    run(context, &problem, &arrays);

    /* Attention along a column must equal attention along a row of the transposed image. */
    axis.shape[0] = X, axis.shape[1] = Y, axis.axis = 1;
    must(context, attn_problem_axis(&problem, &axis));
    run(context, &problem, &(attn_arrays){.q = turned[0], .k = turned[1], .v = turned[2], .o = turned_rows});
    transpose(expected, turned_rows);
    claim(furthest(columns, expected, COUNT(columns)) < 1e-6, "columns are the rows of the image turned over");
    claim(furthest(columns, rows, COUNT(rows)) > 1e-3, "columns and rows are not the same thing");
    attn_context_destroy(context);
    return 0;
}
