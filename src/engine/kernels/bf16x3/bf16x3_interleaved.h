/* SPDX-License-Identifier: MIT
 *
 * bf16x3_interleaved.h - products interleaved with vector work; included by bf16x3.c within its region of the
 * instruction set. Unlike the products of bf16x3.c, the last products of a square of C load the first operands of the
 * next square.
 */

/* A square of C and the addresses of its operands. It has two tiles of rows if `tall`, and two tiles of columns if
 * `wide`, otherwise one. */
typedef struct square {
    const uint16_t *a, *b;
    int64_t m, n;
    float *c;
    bool tall, wide, there;
} square;

BF16X3_FN square square_at(const attn__bf16x3_args *t, int64_t m, int64_t n)
{
    return (square){.a = t->a.data + m * t->a.block,
                    .b = t->b.data + n * t->b.block,
                    .m = m,
                    .n = n,
                    .c = t->c + (m * t->ldc + n) * ATTN__BF16X3_SIDE,
                    .tall = m + 1 < t->m,
                    .wide = n + 1 < t->n,
                    .there = n < t->n};
}

BF16X3_FN square after(const attn__bf16x3_args *t, const square *x)
{
    return x->m + 2 < t->m ? square_at(t, x->m + 2, x->n) : square_at(t, 0, x->n + 2);
}

BF16X3_FN void multiply_then_next(const attn__bf16x3_args *t, const square *next, bool tall, bool wide)
{
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    if (next->there)
        _tile_loadd(4, next->a, t->a.row * 2);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    if (next->there)
        _tile_loadd(6, next->b, t->b.row * 2);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    if (next->there && next->wide)
        _tile_loadd(7, next->b + t->b.block, t->b.row * 2);
    if (next->there && next->tall)
        _tile_loadd(5, next->a + t->a.block, t->a.row * 2);
}

BF16X3_FN void sum_interleaved(const attn__bf16x3_args *t, const square *x, const square *next, int parts, bool tall,
                               bool wide, attn__interleaved *interleaved)
{
    const uint16_t *a = x->a, *b = x->b;
    for (int64_t k = 0; k < t->k; k++) {
        if (parts == ATTN__BF16X3_F32)
            pairs_of_parts(t, a, b, tall, wide, interleaved);
        if (k + 1 == t->k) {
            multiply_then_next(t, next, tall, wide);
        } else {
            a += t->a.step;
            b += t->b.step;
            multiply_then_both(t, a, b, tall, wide);
        }
        go_on(interleaved);
    }
}

BF16X3_FN void product_interleaved(const attn__bf16x3_args *t, const square *x, const square *next, int parts,
                                   bool tall, bool wide, attn__interleaved *interleaved)
{
    begin_square(t, x->c, tall, wide);
    sum_interleaved(t, x, next, parts, tall, wide, interleaved);
    store_square(t, x->c, tall, wide);
}

BF16X3_FN void multiply_interleaved(const attn__bf16x3_args *t, int parts, attn__interleaved *interleaved)
{
    square x = square_at(t, 0, 0);
    load_both(t, x.a, x.b, x.tall, x.wide);
    while (x.there) {
        square next = after(t, &x);
        if (x.tall && x.wide)
            product_interleaved(t, &x, &next, parts, true, true, interleaved);
        else if (x.tall)
            product_interleaved(t, &x, &next, parts, true, false, interleaved);
        else if (x.wide)
            product_interleaved(t, &x, &next, parts, false, true, interleaved);
        else
            product_interleaved(t, &x, &next, parts, false, false, interleaved);
        x = next;
    }
}

static void run_interleaved(const attn__bf16x3_args *t, attn__interleaved *interleaved)
{
    if (t->m <= 0 || t->n <= 0 || t->k <= 0)
        multiply_all(t, NULL);
    else if (t->parts == ATTN__BF16X3_F32 && interleaved)
        multiply_interleaved(t, ATTN__BF16X3_F32, interleaved);
    else if (t->parts == ATTN__BF16X3_F32)
        multiply_interleaved(t, ATTN__BF16X3_F32, NULL);
    else
        multiply_interleaved(t, 1, NULL);
}
