/* SPDX-License-Identifier: MIT
 *
 * elementwise_strided.h - loops over strided arrays: copies, broadcast arithmetic, sums over an axis.
 */

/* Returns the offset of outer index `row` with the strides `stride`. An outer index is a linear index over all axes
 * except the last one. */
VF_FN int64_t outer_offset(const attn__elementwise_args *a, const int64_t *stride, int64_t row)
{
    int64_t offset = 0;
    if (a->rank == 2)
        return row * stride[0];
    for (int axis = a->rank - 2; axis >= 0; axis--) {
        offset += row % a->shape[axis] * stride[axis];
        row /= a->shape[axis];
    }
    return offset;
}

VF_FN vf load_strided(const real *x, int64_t i, int64_t left, int64_t stride)
{
    if (stride == 1)
        return elementwise_load(x + i, left);
    if (stride == 0)
        return vf_set1(*x);
    real lanes[VF_LANES] = {0};
    for (int64_t l = 0; l < VF_LANES && l < left; l++)
        lanes[l] = x[(i + l) * stride];
    return vf_load(lanes);
}

/* Sets *from and *to to the bounds of the inner loop. If there is only one axis, the range that a thread gets is a part
 * of this axis, not of outer indices. */
VF_FN void inner_range(const attn__elementwise_args *a, int64_t *begin, int64_t *end, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = a->shape[a->rank - 1];
    if (a->rank == 1) {
        *from = *begin;
        *to = *end;
        *begin = 0;
        *end = 1;
    }
}

/* Reports whether the operation is a plain copy. A plain copy keeps all bits, even of integers. */
VF_FN bool is_copy(const attn__elementwise_args *a)
{
    return a->s[0] == 1 && !a->add;
}

#ifndef VF_DOUBLE
/* Processes VF_LANES rows at a time and transposes them square by square. It is used if the elements of a column are
 * adjacent in x. */
VF_FN void transpose_rows(const attn__elementwise_args *a, const float *x, float *y)
{
    int last = a->rank - 1;
    int64_t n = a->shape[last], sx = a->stride_x[last], sy = a->stride_y[last - 1], i = 0;
    vf scale = constant(a->s[0]);
    for (; i + VF_LANES <= n; i += VF_LANES) {
        vf square[VF_LANES];
        VF_UNROLL
        for (int l = 0; l < VF_LANES; l++)
            square[l] = vf_load(x + (i + l) * sx);
        vf_transpose(square);
        VF_UNROLL
        for (int l = 0; l < VF_LANES; l++) {
            float *to = y + l * sy + i;
            vf v = is_copy(a) ? square[l] : vf_mul(scale, square[l]);
            vf_store(to, a->add ? vf_add(v, vf_load(to)) : v);
        }
    }
    for (; i < n; i++) {
        for (int64_t l = 0; l < VF_LANES; l++) {
            const float *from = x + i * sx + l;
            float *to = y + l * sy + i;
            float v = (float)a->s[0] * *from;
            if (is_copy(a)) /* copies bytes, because a NaN times 1 may have other bits */
                memcpy(to, from, sizeof *to);
            else
                *to = a->add ? v + *to : v;
        }
    }
}
#endif

/* Transposes several rows from `row` on together and returns their number. Returns 0 if the layout does not allow
 * it. */
VF_FN int64_t transposed_rows(const attn__elementwise_args *a, int64_t row, int64_t end)
{
#ifndef VF_DOUBLE
    int last = a->rank - 1;
    if (last > 0 && a->stride_x[last - 1] == 1 && a->stride_x[last] != 1 && a->stride_y[last] == 1 &&
        row + VF_LANES <= end && row % a->shape[last - 1] + VF_LANES <= a->shape[last - 1]) {
        transpose_rows(a, (const float *)a->x + outer_offset(a, a->stride_x, row),
                       (float *)a->y + outer_offset(a, a->stride_y, row));
        return VF_LANES;
    }
#else
    (void)a;
    (void)row;
    (void)end;
#endif
    return 0;
}

static void run_strided(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int last = a->rank - 1;
    int64_t sx = a->stride_x[last], sy = a->stride_y[last], from, to;
    real scale = (real)a->s[0];
    inner_range(a, &begin, &end, &from, &to);
    for (int64_t row = begin, transposed; row < end; row += transposed ? transposed : 1) {
        transposed = transposed_rows(a, row, end);
        if (transposed)
            continue;
        const real *x = (const real *)a->x + outer_offset(a, a->stride_x, row);
        real *y = (real *)a->y + outer_offset(a, a->stride_y, row);
        if (is_copy(a) && sx == 1 && sy == 1) {
            for (int64_t i = from; i < to; i += VF_LANES)
                store(y + i, to - i, elementwise_load(x + i, to - i));
        } else if (is_copy(a)) {
            for (int64_t i = from; i < to; i++)
                y[i * sy] = x[i * sx];
        } else if (sy == 1) {
            for (int64_t i = from; i < to; i += VF_LANES) {
                vf v = vf_mul(vf_set1(scale), load_strided(x, i, to - i, sx));
                store(y + i, to - i, a->add ? vf_add(v, elementwise_load(y + i, to - i)) : v);
            }
        } else {
            for (int64_t i = from; i < to; i++)
                y[i * sy] = scale * x[i * sx] + (a->add ? y[i * sy] : 0);
        }
    }
}

VF_FN void binary_rows(const attn__elementwise_args *a, int64_t begin, int64_t end, int kind)
{
    int last = a->rank - 1;
    int64_t n = a->shape[last], sx = a->stride_x[last], sx2 = a->stride_x2[last], from, to;
    inner_range(a, &begin, &end, &from, &to);
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + outer_offset(a, a->stride_x, row);
        const real *x2 = (const real *)a->x2 + outer_offset(a, a->stride_x2, row);
        real *y = (real *)a->y + row * n;
        for (int64_t i = from; i < to; i += VF_LANES) {
            vf u = load_strided(x, i, to - i, sx), v = load_strided(x2, i, to - i, sx2);
            store(y + i, to - i,
                  kind == ATTN__BINARY_ADD   ? vf_add(u, v)
                  : kind == ATTN__BINARY_SUB ? vf_sub(u, v)
                                             : vf_mul(u, v));
        }
    }
}

static void run_binary(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    if (a->kind == ATTN__BINARY_ADD)
        binary_rows(a, begin, end, ATTN__BINARY_ADD);
    else if (a->kind == ATTN__BINARY_SUB)
        binary_rows(a, begin, end, ATTN__BINARY_SUB);
    else
        binary_rows(a, begin, end, ATTN__BINARY_MUL);
}

/* Length of runs. A run is summed in the type of the numbers, and the runs are added in f64, because a single f32 sum
 * of millions of numbers would lose digits. */
enum { REDUCE_RUN = 256 };

VF_FN void add_lanes(double *all, vf sum)
{
    real lanes[VF_LANES];
    vf_store(lanes, sum);
    for (int l = 0; l < VF_LANES; l++)
        all[l] += (double)lanes[l];
}

VF_FN vf lanes_of(const double *all)
{
    real lanes[VF_LANES];
    for (int l = 0; l < VF_LANES; l++)
        lanes[l] = (real)all[l];
    return vf_load(lanes);
}

/* Returns the end of the run that begins at index `i`, limited to n. */
VF_FN int64_t reduce_end(int64_t i, int64_t run, int64_t n)
{
    return n - i > run ? i + run : n;
}

VF_FN real row_total(const real *x, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n;) {
        vf sum = vf_zero();
        for (int64_t end = reduce_end(i, REDUCE_RUN * VF_LANES, n); i < end; i += VF_LANES)
            sum = vf_add(sum, elementwise_load(x + i, n - i));
        all += (double)vf_sum(sum);
    }
    return (real)all;
}

enum { REDUCE_WIDE = 8 }; /* vectors of sums that stay in registers */

/* Sums rows [r, end) of x, for up to REDUCE_WIDE vectors of columns. `left` columns remain. */
VF_FN void sum_run(const attn__elementwise_args *a, const real *x, int64_t r, int64_t end, int64_t left,
                   vf sum[REDUCE_WIDE])
{
    VF_UNROLL
    for (int w = 0; w < REDUCE_WIDE; w++)
        sum[w] = vf_zero();
    for (; r < end; r++) {
        const real *row = x + r * a->n;
        if (left >= REDUCE_WIDE * VF_LANES) {
            VF_UNROLL
            for (int w = 0; w < REDUCE_WIDE; w++)
                sum[w] = vf_add(sum[w], vf_load(row + w * VF_LANES));
        } else {
            for (int w = 0; w * VF_LANES < left; w++)
                sum[w] = vf_add(sum[w], elementwise_load(row + w * VF_LANES, left - w * VF_LANES));
        }
    }
}

VF_FN void sum_runs(const attn__elementwise_args *a, const real *x, int64_t left, vf sum[REDUCE_WIDE])
{
    double all[REDUCE_WIDE * VF_LANES] = {0};
    for (int64_t r = 0; r < a->rows; r = reduce_end(r, REDUCE_RUN, a->rows)) {
        sum_run(a, x, r, reduce_end(r, REDUCE_RUN, a->rows), left, sum);
        for (int w = 0; w < REDUCE_WIDE && w * VF_LANES < left; w++)
            add_lanes(all + w * VF_LANES, sum[w]);
    }
    for (int w = 0; w < REDUCE_WIDE; w++)
        sum[w] = lanes_of(all + w * VF_LANES);
}

/* Sums columns [from, to) over all rows of one outer index. */
static void reduce_columns(const attn__elementwise_args *a, const real *x, real *y, int64_t from, int64_t to)
{
    vf scale = constant(a->s[0]);
    for (int64_t c = from; c < to; c += REDUCE_WIDE * VF_LANES) {
        vf sum[REDUCE_WIDE];
        if (a->rows <= REDUCE_RUN) /* with a single run, there is nothing to add in f64 */
            sum_run(a, x + c, 0, a->rows, to - c, sum);
        else
            sum_runs(a, x + c, to - c, sum);
        for (int w = 0; w < REDUCE_WIDE && c + w * VF_LANES < to; w++) {
            int64_t left = to - c - w * VF_LANES;
            real *out = y + c + w * VF_LANES;
            store(out, left, vf_fma(scale, sum[w], a->add ? elementwise_load(out, left) : vf_zero()));
        }
    }
}

static void run_reduce(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    real *y = a->y;
    for (int64_t i = begin; i < end;) {
        int64_t outer = i / n, from = i % n, to = end - outer * n < n ? end - outer * n : n;
        const real *x = (const real *)a->x + outer * a->rows * n;
        if (n == 1)
            y[i] = (real)a->s[0] * row_total(x, a->rows) + (a->add ? y[i] : 0);
        else
            reduce_columns(a, x, y + outer * n, from, to);
        i += to - from;
    }
}
