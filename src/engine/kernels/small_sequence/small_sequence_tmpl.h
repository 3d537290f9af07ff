/* SPDX-License-Identifier: MIT
 *
 * small_sequence_tmpl.h - products of short heads for one instruction set; see small_sequence.h.
 */
#if VF_REGISTERS >= 32
enum { SCORE_ROWS = 12, SUM_ROWS = 6, SUM_VECTORS = 4 };
#else
enum { SCORE_ROWS = 5, SUM_ROWS = 5, SUM_VECTORS = 2 };
#endif
enum { LINE = 16 }; /* floats */

VF_FN void prefetch_row(const attn__small_sequence_rows *x, int64_t r)
{
    for (int64_t c = 0; c < x->channels; c += LINE)
        __builtin_prefetch(x->next + x->row_at[r] + c, 0, 2);
}

VF_FN void prefetch_rows(const attn__small_sequence_rows *x, int64_t from, int64_t to)
{
    for (int64_t r = from; r < to && r < x->rows; r++)
        prefetch_row(x, r);
}

VF_FN void transpose_square(const attn__small_sequence_rows *x, int64_t j, int64_t c, int channels, vf factor,
                            float *panel, int64_t width)
{
    vf r[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        const float *at = x->at + x->row_at[j + i] + c;
        r[i] = channels == VF_LANES ? vf_load(at) : vf_load_part(at, channels);
    }
    vf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        if (i < channels)
            vf_store(panel + (c + i) * width + j, vf_mul(r[i], factor));
}

static void small_sequence_transpose(const attn__small_sequence_rows *x, float factor, float *panel, int64_t width)
{
    vf f = vf_set1(factor);
    for (int64_t j = 0; j < width; j += VF_LANES) {
        int64_t c = 0, next = j;
        for (; c + VF_LANES <= x->channels; c += VF_LANES) {
            transpose_square(x, j, c, VF_LANES, f, panel, width);
            for (int i = 0; i < 4 && next < x->rows && next < j + VF_LANES; i++)
                prefetch_row(x, next++);
        }
        if (c < x->channels)
            transpose_square(x, j, c, (int)(x->channels - c), f, panel, width);
        for (; next < x->rows && next < j + VF_LANES; next++)
            prefetch_row(x, next);
    }
}

/* Reports whether all sums of a tile are finite. Each tile has its own check, because a check of several tiles would
 * occupy a register. */
VF_FN bool is_finite(vf check)
{
    return !vm_any(vm_not(vf_eq(check, check)));
}

/* Computes the scores of `rows` rows from row i on, for `vectors` vectors from column j on. `rows` and `vectors` are
 * constants after inlining. */
VF_FN bool score_tile(const attn__small_sequence_rows *x, const float *panel, float *s, int64_t width, int64_t i,
                      int64_t j, int rows, int vectors)
{
    vf sum[SCORE_ROWS][2];
    const float *row = x->at + i * x->step, *b = panel + j;
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[r][v] = vf_zero();
    }
    for (int64_t c = 0; c < x->channels; c++, b += width) {
        vf lanes[2];
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            lanes[v] = vf_load(b + v * VF_LANES);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            vf q = vf_set1(row[r * x->step + c]);
            VF_UNROLL
            for (int v = 0; v < vectors; v++)
                sum[r][v] = vf_fma(q, lanes[v], sum[r][v]);
        }
    }
    vf check = vf_zero();
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++) {
            check = vf_fma(sum[r][v], vf_zero(), check);
            vf_store(s + (i + r) * width + j + v * VF_LANES, sum[r][v]);
        }
    }
    return is_finite(check);
}

#define ROWS_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        return score_tile(x, panel, s, width, i, j, n, vectors)

VF_FN bool small_sequence_score_rows(const attn__small_sequence_rows *x, const float *panel, float *s, int64_t width,
                                     int64_t i, int64_t j, int64_t rows, int vectors)
{
    switch (rows) {
#if VF_REGISTERS >= 32
        ROWS_CASE(12);
        ROWS_CASE(11);
        ROWS_CASE(10);
        ROWS_CASE(9);
        ROWS_CASE(8);
        ROWS_CASE(7);
        ROWS_CASE(6);
#endif
        ROWS_CASE(5);
        ROWS_CASE(4);
        ROWS_CASE(3);
        ROWS_CASE(2);
        ROWS_CASE(1);
    default:
        return true;
    }
}

#undef ROWS_CASE

/* Returns the number of rows of a tile, which divides the rows almost evenly. A tile with few rows would wait for its
 * sums. */
VF_FN int64_t tile_rows(int64_t rows, int64_t most)
{
    int64_t tiles = rows > most ? (rows + most - 1) / most : 1;
    return (rows + tiles - 1) / tiles;
}

static bool small_sequence_score(const attn__small_sequence_rows *x, const float *panel, float *s, int64_t width)
{
    bool finite = true;
    int64_t each = tile_rows(x->rows, SCORE_ROWS);
    for (int64_t i = 0; i < x->rows; i += each) {
        int64_t rows = x->rows - i < each ? x->rows - i : each, j = 0;
        prefetch_rows(x, i, i + rows);
        for (; j + 2 * VF_LANES <= width; j += 2 * VF_LANES)
            finite = small_sequence_score_rows(x, panel, s, width, i, j, rows, 2) && finite;
        if (j < width)
            finite = small_sequence_score_rows(x, panel, s, width, i, j, rows, 1) && finite;
    }
    return finite;
}

static void dots(const attn__small_sequence_rows *x, const attn__small_sequence_rows *y, float *sum)
{
    for (int64_t i = 0; i < x->rows; i++) {
        const float *a = x->at + x->row_at[i], *b = y->at + y->row_at[i];
        vf even = vf_zero(), odd = even;
        int64_t c = 0;
        prefetch_row(y, i);
        for (; c + 2 * VF_LANES <= x->channels; c += 2 * VF_LANES) {
            even = vf_fma(vf_load(a + c), vf_load(b + c), even);
            odd = vf_fma(vf_load(a + c + VF_LANES), vf_load(b + c + VF_LANES), odd);
        }
        for (; c < x->channels; c += VF_LANES) {
            int part = x->channels - c < VF_LANES ? (int)(x->channels - c) : VF_LANES;
            even = vf_fma(vf_load_part(a + c, part), vf_load_part(b + c, part), even);
        }
        sum[i] = vf_sum(vf_add(even, odd));
    }
}

VF_FN vf sum_put(const attn__small_sequence_sums *t, vf x, vf factor, float *to, int part)
{
    x = vf_mul(x, factor);
    if (part < VF_LANES)
        vf_store_part(to, x = t->add ? vf_add(x, vf_load_part(to, part)) : x, part);
    else
        vf_store(to, x = t->add ? vf_add(x, vf_load(to)) : x);
    return x;
}

/* Sums `rows` output rows from row j on. Each has `vectors` vectors of `part` channels from channel c on. */
VF_FN bool sum_tile(const attn__small_sequence_sums *t, int64_t j, int64_t c, int rows, int vectors, int part,
                    bool adjacent)
{
    vf sum[SUM_ROWS][SUM_VECTORS];
    const float *w = t->w + j * t->across, *b = t->x.at + c;
    int64_t along = adjacent ? t->along : 1, across = adjacent ? 1 : t->across;
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[r][v] = vf_zero();
    }
    for (int64_t i = t->x.rows; i > 0; i--, b += t->x.step, w += along) {
        vf lanes[SUM_VECTORS];
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            lanes[v] = part == VF_LANES ? vf_load(b + v * VF_LANES) : vf_load_part(b + v * VF_LANES, part);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            vf x = vf_set1(w[r * across]);
            VF_UNROLL
            for (int v = 0; v < vectors; v++)
                sum[r][v] = vf_fma(x, lanes[v], sum[r][v]);
        }
    }
    vf check = vf_zero();
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        float *out = t->out.at + t->out.row_at[j + r] + c;
        vf factor = vf_set1(t->row_factor ? t->factor * t->row_factor[j + r] : t->factor);
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            check = vf_fma(sum_put(t, sum[r][v], factor, out + v * VF_LANES, part), vf_zero(), check);
    }
    return is_finite(check);
}

VF_FN bool sum_strip(const attn__small_sequence_sums *t, int64_t j, int rows, bool adjacent)
{
    bool finite = true;
    int64_t c = 0;
    for (; c + SUM_VECTORS * VF_LANES <= t->out.channels; c += SUM_VECTORS * VF_LANES)
        finite = sum_tile(t, j, c, rows, SUM_VECTORS, VF_LANES, adjacent) && finite;
    for (; c + 2 * VF_LANES <= t->out.channels; c += 2 * VF_LANES)
        finite = sum_tile(t, j, c, rows, 2, VF_LANES, adjacent) && finite;
    for (; c + VF_LANES <= t->out.channels; c += VF_LANES)
        finite = sum_tile(t, j, c, rows, 1, VF_LANES, adjacent) && finite;
    if (c < t->out.channels)
        finite = sum_tile(t, j, c, rows, 1, (int)(t->out.channels - c), adjacent) && finite;
    return finite;
}

#define ROWS_CASE(n)                                                                                                   \
    case n:                                                                                                            \
        return sum_strip(t, j, n, adjacent)

VF_FN bool small_sequence_sum_rows(const attn__small_sequence_sums *t, int64_t j, int64_t rows, bool adjacent)
{
    switch (rows) {
#if VF_REGISTERS >= 32
        ROWS_CASE(6);
#endif
        ROWS_CASE(5);
        ROWS_CASE(4);
        ROWS_CASE(3);
        ROWS_CASE(2);
        ROWS_CASE(1);
    default:
        return true;
    }
}

#undef ROWS_CASE

VF_FN bool sum_as(const attn__small_sequence_sums *t, bool adjacent)
{
    bool finite = true;
    int64_t each = tile_rows(t->out.rows, SUM_ROWS);
    for (int64_t j = 0; j < t->out.rows; j += each) {
        int64_t rows = t->out.rows - j < each ? t->out.rows - j : each;
        prefetch_rows(&t->out, j, j + rows);
        prefetch_rows(&t->x, j, j + each < t->out.rows ? j + each : t->x.rows);
        finite = small_sequence_sum_rows(t, j, rows, adjacent) && finite;
    }
    return finite;
}

static bool small_sequence_sum(const attn__small_sequence_sums *t)
{
    return t->across == 1 ? sum_as(t, true) : sum_as(t, false);
}

const attn__small_sequence_kernel VF_NAME(attn__small_sequence) = {
    VF_ISA, VF_LANES, small_sequence_transpose, small_sequence_score, dots, small_sequence_sum};
