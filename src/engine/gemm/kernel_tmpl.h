/* SPDX-License-Identifier: MIT
 *
 * kernel_tmpl.h - kernel.h for one type. kernel_types.h includes it once per type and defines
 *
 *     GK_REAL, GK(name)                      the type, and names for it
 *     gv, GV_LANES, gv_load ...              the vector operations
 *     GK_ROWS, GK_VECTORS                    the register tile
 *     GV_ADD_PRODUCT(sum, x, y)              sum += x * y, rounded once
 *     GV_TRANSPOSE(r)                        optional: transposes GV_LANES vectors
 *
 * The tile's sums, one row of B and one broadcast number of A are in registers. With 16 registers, they take 6 x 2 + 2
 * + 1. With 32 registers, they take 12 x 2 + 2 + 1 or 8 x 3 + 3 + 1.
 */

/* Adds the products for one value of k to all sums. x is the expression for A's number in row i. The macro also
 * advances b to the next row of B. */
#define GK_STEP(x)                                                                                                     \
    do {                                                                                                               \
        gv y[GK_VECTORS];                                                                                              \
        VF_UNROLL                                                                                                      \
        for (int j = 0; j < vectors; j++)                                                                              \
            y[j] = gv_load(b + j * GV_LANES);                                                                          \
        b += t->ldb;                                                                                                   \
        VF_UNROLL                                                                                                      \
        for (int i = 0; i < rows; i++) {                                                                               \
            vf_in_order();                                                                                             \
            gv one = gv_set1(x);                                                                                       \
            VF_UNROLL                                                                                                  \
            for (int j = 0; j < vectors; j++)                                                                          \
                GV_ADD_PRODUCT(sum[i][j], one, y[j]);                                                                  \
        }                                                                                                              \
    } while (0)

/* `rows`, `vectors` and `panel` are constants after inlining.  If A is read in place, three rows share a pointer,
 * because there are too few general registers for a pointer per row.  The loop over k is unrolled to spread the cost of
 * pointer additions and prefetches. */
VF_FN void GK(tile)(const attn__gemm_tile *t, int rows, int vectors, bool panel)
{
    enum { NEAR = 3, LINE = 64 };
    gv sum[GK_ROWS][GK_VECTORS];
    const GK_REAL *a = t->a, *b = t->b, *row[(GK_ROWS + NEAR - 1) / NEAR];
    uintptr_t ahead = (uintptr_t)t->ahead;
    int64_t at[NEAR] = {0, t->lda, 2 * t->lda}, k = t->k;
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        row[i / NEAR] = a + i / NEAR * NEAR * t->lda;
        VF_UNROLL
        for (int j = 0; j < vectors; j++) {
            if (j * GV_LANES * (int)sizeof(GK_REAL) % LINE == 0)
                __builtin_prefetch((GK_REAL *)t->c + i * t->ldc + j * GV_LANES, 1);
            sum[i][j] = gv_zero();
        }
    }
    for (; k >= ATTN__GEMM_UNROLL; k -= ATTN__GEMM_UNROLL) {
        attn__gemm_prefetch(ahead, t->ahead_step);
        ahead += (uintptr_t)t->ahead_step;
        VF_UNROLL
        for (int u = 0; u < ATTN__GEMM_UNROLL; u++)
            GK_STEP(panel ? a[u * GK_ROWS + i] : row[i / NEAR][at[i % NEAR] + u]);
        VF_UNROLL
        for (int i = 0; i < NEAR; i++)
            at[i] += ATTN__GEMM_UNROLL;
        a += panel ? GK_ROWS * ATTN__GEMM_UNROLL : 0;
    }
    for (; k > 0; k--) {
        GK_STEP(panel ? a[i] : row[i / NEAR][at[i % NEAR]]);
        VF_UNROLL
        for (int i = 0; i < NEAR; i++)
            at[i]++;
        a += panel ? GK_ROWS : 0;
    }
    int last = t->columns - (vectors - 1) * GV_LANES; /* number of columns in the last vector */
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        GK_REAL *c = (GK_REAL *)t->c + i * t->ldc;
        VF_UNROLL
        for (int j = 0; j < vectors; j++, c += GV_LANES)
            if (j < vectors - 1 || last == GV_LANES)
                gv_store(c, t->add ? gv_add(gv_load(c), sum[i][j]) : sum[i][j]);
            else
                gv_store_part(c, t->add ? gv_add(gv_load_part(c, last), sum[i][j]) : sum[i][j], last);
    }
}
#undef GK_STEP

VF_FN void GK(tile_of)(const attn__gemm_tile *t, int rows, int vectors)
{
    if (t->lda == 0)
        GK(tile)(t, rows, vectors, true);
    else
        GK(tile)(t, rows, vectors, false);
}

VF_FN void GK(tile_rows)(const attn__gemm_tile *t, int vectors)
{
#define GK_RUN(rows) GK(tile_of)(t, rows, vectors)
    switch (t->rows) {
        ATTN__ROWS(GK_ROWS, GK_RUN)
    }
#undef GK_RUN
}

static void GK(run)(const attn__gemm_tile *t)
{
#if GK_VECTORS > 2
    if (t->columns > 2 * GV_LANES)
        GK(tile_rows)(t, 3);
    else
#endif
        if (t->columns > GV_LANES)
        GK(tile_rows)(t, 2);
    else
        GK(tile_rows)(t, 1);
}

/* ----------------------------------------------------------------------------------------------- packing */

/* Type of the numbers to pack. PLAIN: the kernel's type. ROUNDED: the kernel's type, to be rounded to bf16. BF16:
 * bf16. */
enum GK(kind) { GK(PLAIN), GK(ROUNDED), GK(BF16) };

/* Loads n numbers from x[at] on. If n is less than a vector, zeros follow. */
VF_FN gv GK(load)(const void *x, int64_t at, int n, enum GK(kind) kind)
{
#ifdef GK_HAS_BF16
    if (kind == GK(BF16))
        return n == GV_LANES ? vf_load_bf16((const uint16_t *)x + at) : vf_load_bf16_part((const uint16_t *)x + at, n);
#endif
    const GK_REAL *from = (const GK_REAL *)x + at;
    gv y = n == GV_LANES ? gv_load(from) : gv_load_part(from, n);
#ifdef GK_HAS_BF16
    if (kind == GK(ROUNDED)) {
        uint16_t rounded[GV_LANES];
        vf_store_bf16(rounded, y);
        y = vf_load_bf16(rounded);
    }
#endif
    (void)kind;
    return y;
}

VF_FN void GK(pack_elements)(const attn__gemm_pack *p, int64_t first, int64_t n, int64_t k, GK_REAL *to,
                             enum GK(kind) kind)
{
    for (; k < p->k; k++, to += p->width) {
        for (int64_t j = 0; j < p->width; j++) {
            GK_REAL lanes[GV_LANES] = {0};
            if (j < n)
                gv_store(lanes, GK(load)(p->x, k * p->inner + (first + j) * p->outer, 1, kind));
            to[j] = lanes[0];
        }
    }
}

/* Packs a row of a panel: n numbers from x[at] on.  Whole vectors may be stored past the row's end, because the next
 * row overwrites the excess. Only the last row is stored in part. */
VF_FN void GK(pack_row)(const void *x, int64_t at, int64_t n, int width, bool last, GK_REAL *to, enum GK(kind) kind)
{
    for (int j = 0; j < width; j += GV_LANES) {
        int64_t left = n - j;
        int part = left >= GV_LANES ? GV_LANES : left > 0 ? (int)left : 0;
        gv y = part ? GK(load)(x, at + j, part, kind) : gv_zero();
        if (last && j + GV_LANES > width)
            gv_store_part(to + j, y, width - j);
        else
            gv_store(to + j, y);
    }
}

/* Packs n columns that are adjacent in the matrix into panels. ROWS rows are stored to all panels before the next ROWS
 * are read. The next ROWS are prefetched panel by panel, because the hardware does not prefetch rows that are far
 * apart. */
VF_FN void GK(pack_rows)(const attn__gemm_pack *p, int64_t first, int64_t n, GK_REAL *to, int width, enum GK(kind) kind)
{
    enum { ROWS = 8, LINE = 64 };
    const int64_t size = kind == GK(BF16) ? 2 : sizeof(GK_REAL), k = p->k, inner = p->inner;
    const int64_t panels = (n + width - 1) / width, each = (ROWS + panels - 1) / panels;
    const char *x = (const char *)p->x + first * size;
    for (int64_t k0 = 0; k0 < k; k0 += ROWS) {
        const int64_t k_end = k0 + ROWS < k ? k0 + ROWS : k;
        for (int64_t panel = 0; panel < panels; panel++) {
            GK_REAL *y = to + panel * k * width;
            for (int64_t row = panel * each; row < (panel + 1) * each && row < ROWS; row++)
                for (int64_t line = 0; line < n * size; line += LINE)
                    __builtin_prefetch(x + (k0 + ROWS + row) * inner * size + line, 0, 2);
            for (int64_t i = k0; i < k_end; i++)
                GK(pack_row)(x, i * inner + panel * width, n - panel * width, width, i == k - 1, y + i * width, kind);
        }
    }
}

#ifdef GV_TRANSPOSE
/* Transposes a square as wide as a vector: `n` rows of x, which are `outer` apart, become columns of a panel. */
VF_FN void GK(pack_square)(const void *x, int64_t at, int64_t outer, int n, GK_REAL *to, int64_t width,
                           enum GK(kind) kind)
{
    gv r[GV_LANES];
    VF_UNROLL
    for (int i = 0; i < GV_LANES; i++)
        r[i] = i < n ? GK(load)(x, at + i * outer, GV_LANES, kind) : gv_zero();
    GV_TRANSPOSE(r);
    VF_UNROLL
    for (int i = 0; i < GV_LANES; i++)
        gv_store(to + i * width, r[i]);
}

/* Prefetches, for each row of a square, the line that is read four squares later.  The hardware does not prefetch rows
 * that are far apart. */
VF_FN void GK(prefetch_square)(const void *x, int64_t at, int64_t outer, enum GK(kind) kind)
{
    const int64_t size = kind == GK(BF16) ? 2 : sizeof(GK_REAL);
    VF_UNROLL
    for (int i = 0; i < GV_LANES; i++)
        __builtin_prefetch((const char *)x + (at + i * outer + 4 * GV_LANES) * size, 0, 2);
}

/* Packs one panel whose columns are adjacent in the matrix.  The strides are copied to variables, because the compiler
 * would otherwise read them again after each store. */
VF_FN void GK(pack_columns)(const attn__gemm_pack *p, int64_t first, int64_t n, GK_REAL *to, enum GK(kind) kind)
{
    const int64_t whole = p->k / GV_LANES * GV_LANES, outer = p->outer, width = p->width;
    const void *x = p->x;
    for (int64_t j = 0; j < width; j += GV_LANES) {
        int64_t left = n - j, at = (first + j) * outer;
        int rows = left >= GV_LANES ? GV_LANES : left > 0 ? (int)left : 0;
        for (int64_t k = 0; k < whole && rows == GV_LANES; k += GV_LANES) {
            if (k % (64 / (int64_t)sizeof(GK_REAL)) == 0) /* one prefetch per cache line */
                GK(prefetch_square)(x, at + k, outer, kind);
            GK(pack_square)(x, at + k, outer, GV_LANES, to + k * width + j, width, kind);
        }
        for (int64_t k = 0; k < whole && rows < GV_LANES; k += GV_LANES)
            GK(pack_square)(x, at + k, outer, rows, to + k * width + j, width, kind);
    }
    GK(pack_elements)(p, first, n, whole, to + whole * width, kind);
}
#endif

VF_FN void GK(pack_panels)(const attn__gemm_pack *p, enum GK(kind) kind)
{
    enum { AT_ONCE = 16 };
    int64_t n = p->outer == 1 ? AT_ONCE * p->width : p->width;
    GK_REAL *to = p->to;
    for (int64_t first = 0; first < p->n; first += n, to += n * p->k) {
        int64_t part = p->n - first < n ? p->n - first : n;
        if (p->outer == 1 && p->width == GK_ROWS)
            GK(pack_rows)(p, first, part, to, GK_ROWS, kind);
        else if (p->outer == 1)
            GK(pack_rows)(p, first, part, to, GK_VECTORS * GV_LANES, kind);
#ifdef GV_TRANSPOSE
        else if (p->inner == 1 && (p->width % GV_LANES == 0 || p->width < GV_LANES))
            GK(pack_columns)(p, first, part, to, kind);
#endif
        else
            GK(pack_elements)(p, first, part, 0, to, kind);
    }
}

static void GK(pack)(const attn__gemm_pack *p)
{
    if (p->bf16)
        GK(pack_panels)(p, GK(BF16));
    else
        GK(pack_panels)(p, GK(PLAIN));
}

#ifdef GK_HAS_BF16
void VF_NAME(attn__gemm_round_row)(const float *x, int64_t n, uint16_t *y)
{
    int64_t i = 0;
    for (; i + GV_LANES <= n; i += GV_LANES)
        vf_store_bf16(y + i, gv_load(x + i));
    if (i < n)
        vf_store_bf16_part(y + i, gv_load_part(x + i, (int)(n - i)), (int)(n - i));
}

static void GK(pack_rounded)(const attn__gemm_pack *p)
{
    if (p->bf16)
        GK(pack_panels)(p, GK(BF16));
    else
        GK(pack_panels)(p, GK(ROUNDED));
}

const attn__gemm_kernel VF_NAME(attn__gemm_kernel_bf16) = {.isa = VF_ISA,
                                                           .rows = GK_ROWS,
                                                           .columns = GK_VECTORS * GV_LANES,
                                                           .lanes = GV_LANES,
                                                           .k_step = 1,
                                                           .k_block = ATTN__GEMM_K,
                                                           .a_size = sizeof(GK_REAL),
                                                           .b_size = sizeof(GK_REAL),
                                                           .run = GK(run),
                                                           .pack = GK(pack_rounded)};
#endif

const attn__gemm_kernel GK_KERNEL = {.isa = VF_ISA,
                                     .rows = GK_ROWS,
                                     .columns = GK_VECTORS * GV_LANES,
                                     .lanes = GV_LANES,
                                     .in_place = true,
                                     .k_step = 1,
                                     .k_block = ATTN__GEMM_K,
                                     .a_size = sizeof(GK_REAL),
                                     .b_size = sizeof(GK_REAL),
                                     .run = GK(run),
                                     .pack = GK(pack)};
