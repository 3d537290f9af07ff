/* SPDX-License-Identifier: MIT
 *
 * kernel_int8_tmpl.h - kernel.h for int8 with sums in int32, for one instruction; include after a vec_*.h and
 * kernel_int8.h, once for each instruction.  The sums are exact, and so the same for all of them.  Parameters, undefined
 * at the end:
 *
 *     Q(name), Q_KERNEL        names of its own
 *     Q_NEEDS                  what the processor must have besides the instruction set
 *     Q_ROWS, Q_VECTORS        the register tile
 *     Q_STEP                   numbers along k that are multiplied at once; in A's panels they take 4 bytes
 *     q_load_b(b)              a step of VF_LANES columns of B
 *     q_dot(sum, a, i, y)      the sums and the products of A's row i at `a` with y
 *     q_move_a(x), q_move_b(x) VF_LANES steps of a row or column of the matrix, as panels of A and of B hold them
 *     q_store_b(b, y)          a step of VF_LANES columns to B's panel
 *     q_excess(sum, y)         optional: what q_dot adds to each row's sum because of how A is held
 */

/* The sums of one vector of C's columns from `column` on. */
VF_FN void Q(store)(const attn__gemm_tile *t, int row, int column, vi sum)
{
    float *c = (float *)t->c + row * t->ldc + column;
    int n = t->columns - column;
    if (n >= VF_LANES)
        vi_store(c, t->add ? vi_add(vi_load(c), sum) : sum);
    else if (n > 0)
        vf_store_part(c, vf_from_bits(t->add ? vi_add(vf_bits(vf_load_part(c, n)), sum) : sum), n);
}

/* What a sum begins with.  In a loop of its own: in that of the sums gcc would store them in each step. */
VF_FN vi Q(begin)(const attn__gemm_tile *t, int vector)
{
    vi excess = vi_set1(0);
#ifdef q_excess
    const int8_t *b = (const int8_t *)t->b + vector * Q_STEP * VF_LANES;
    for (int64_t k = 0; k < t->k; k += Q_STEP, b += Q_STEP * Q_VECTORS * VF_LANES)
        excess = q_excess(excess, q_load_b(b));
#else
    (void)t, (void)vector;
#endif
    return vi_sub(vi_set1(0), excess);
}

/* One register tile; rows is a constant after inlining. */
VF_FN void Q(tile)(const attn__gemm_tile *t, int rows)
{
    const int8_t *a = t->a, *b = t->b;
    vi sum[Q_ROWS][Q_VECTORS], begin[Q_VECTORS];
    VF_UNROLL
    for (int j = 0; j < Q_VECTORS; j++)
        begin[j] = Q(begin)(t, j);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch((int32_t *)t->c + i * t->ldc, 1);
        VF_UNROLL
        for (int j = 0; j < Q_VECTORS; j++)
            sum[i][j] = begin[j];
    }
    for (int64_t k = 0; k < t->k; k += Q_STEP, a += 4 * Q_ROWS, b += Q_STEP * Q_VECTORS * VF_LANES) {
        vi y[Q_VECTORS];
        VF_UNROLL
        for (int j = 0; j < Q_VECTORS; j++)
            y[j] = q_load_b(b + j * Q_STEP * VF_LANES);
        VF_UNROLL
        for (int i = 0; i < rows; i++) {
            VF_UNROLL
            for (int j = 0; j < Q_VECTORS; j++)
                sum[i][j] = q_dot(sum[i][j], a, i, y[j]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int j = 0; j < Q_VECTORS; j++)
            Q(store)(t, i, j * VF_LANES, sum[i][j]);
    }
}

static void Q(run)(const attn__gemm_tile *t)
{
    switch (t->rows) {
#if Q_ROWS >= 12
    case 12:
        Q(tile)(t, 12);
        break;
    case 11:
        Q(tile)(t, 11);
        break;
    case 10:
        Q(tile)(t, 10);
        break;
    case 9:
        Q(tile)(t, 9);
        break;
#endif
#if Q_ROWS >= 8
    case 8:
        Q(tile)(t, 8);
        break;
    case 7:
        Q(tile)(t, 7);
        break;
#endif
#if Q_ROWS >= 6
    case 6:
        Q(tile)(t, 6);
        break;
#endif
#if Q_ROWS >= 5
    case 5:
        Q(tile)(t, 5);
        break;
#endif
    case 4:
        Q(tile)(t, 4);
        break;
    case 3:
        Q(tile)(t, 3);
        break;
    case 2:
        Q(tile)(t, 2);
        break;
    default:
        Q(tile)(t, 1);
    }
}

/* Up to VF_LANES rows or columns, `apart` bytes from each other, by VF_LANES steps along k, transposed: a step is as wide
 * as a lane.  The first `steps` of them go to the panel. */
VF_FN void Q(pack_square)(const attn__gemm_pack *p, const int8_t *x, int64_t apart, int64_t n, int64_t steps,
                          int8_t *to)
{
    vf r[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        r[i] = vf_from_bits(i >= n ? vi_set1(0) : p->is_b ? q_move_b(x + i * apart) : q_move_a(x + i * apart));
    vf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        if (i < steps && p->is_b)
            q_store_b(to + i * p->width * Q_STEP, vf_bits(r[i]));
        else if (i < steps)
            vi_store(to + i * p->width * 4, vf_bits(r[i]));
    }
}

/* What does not lie together, or ends early, is gathered, with zeros behind the end. */
static void Q(gather_square)(const attn__gemm_pack *p, const int8_t *x, int64_t n, int64_t k, int8_t *to)
{
    enum { RUN = Q_STEP * VF_LANES };
    for (int64_t i = 0; i < VF_LANES; i++, x += p->outer) {
        for (int64_t s = 0; s < RUN; s++)
            *to++ = (int8_t)(i < n && s < k ? x[s * p->inner] : 0);
    }
}

/* A panel of A may be written past its end, as kernel.h says. */
static void Q(pack)(const attn__gemm_pack *p)
{
    enum { RUN = Q_STEP * VF_LANES };
    const int64_t steps = (p->k + Q_STEP - 1) / Q_STEP, bytes = p->is_b ? Q_STEP : 4;
    int8_t *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width) {
        for (int64_t k = 0; k < p->k; k += RUN, to += RUN / Q_STEP * p->width * bytes) {
            bool whole = p->inner == 1 && p->k - k >= RUN;
            int64_t left = whole ? VF_LANES : steps - k / Q_STEP;
            for (int64_t j = 0; j < p->width; j += VF_LANES) {
                const int8_t *x = (const int8_t *)p->x + (first + j) * p->outer + k * p->inner;
                int64_t n = p->n - first - j;
                int8_t square[VF_LANES * RUN];
                if (!whole)
                    Q(gather_square)(p, x, n, p->k - k, square);
                Q(pack_square)(p, whole ? x : square, whole ? p->outer : RUN, n, left, to + j * bytes);
            }
        }
        to = (int8_t *)p->to + (first / p->width + 1) * steps * p->width * bytes;
    }
}

const attn__gemm_kernel Q_KERNEL = {.isa = VF_ISA,
                                    .needs = Q_NEEDS,
                                    .rows = Q_ROWS,
                                    .columns = Q_VECTORS * VF_LANES,
                                    .lanes = VF_LANES,
                                    .k_step = Q_STEP,
                                    .a_size = 4 / Q_STEP,
                                    .b_size = sizeof(int8_t),
                                    .run = Q(run),
                                    .pack = Q(pack)};

#undef Q
#undef Q_KERNEL
#undef Q_NEEDS
#undef Q_ROWS
#undef Q_VECTORS
#undef Q_STEP
#undef q_load_b
#undef q_dot
#undef q_move_a
#undef q_move_b
#undef q_store_b
#undef q_excess
