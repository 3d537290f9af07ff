/* SPDX-License-Identifier: MIT
 *
 * elementwise_normalize.h - layer normalization and softmax, forward and backward.
 */

/* Number of independent sums of a row, which let additions overlap. */
enum { NORMALIZE_CHAINS = 4 };

VF_FN void start_chains(vf sum[NORMALIZE_CHAINS])
{
    for (int c = 0; c < NORMALIZE_CHAINS; c++)
        sum[c] = vf_zero();
}

VF_FN real sum_of_chains(const vf sum[NORMALIZE_CHAINS])
{
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

VF_FN real first_lane(vf t)
{
    real lanes[VF_LANES]; /* stored as a whole vector, because reading back a partial store is slow */
    vf_store(lanes, t);
    return lanes[0];
}

/* Writes t - t[0] to y, where t = x + dropout(x2), and returns the mean of y. Subtracting t[0] keeps the digits of
 * numbers that are far from zero but close to each other. The root mean square has no mean: it writes t and returns
 * 0. */
VF_FN real residual_row(const attn__elementwise_args *a, int64_t row, real *y)
{
    int64_t n = a->n;
    const real *x = (const real *)a->x + row * n, *x2 = a->x2 ? (const real *)a->x2 + row * n : NULL;
    uint64_t key = row_key(a, row);
    vf sum[NORMALIZE_CHAINS], zero = vf_zero();
    start_chains(sum);
    for (int64_t first = 0; first < n; first += NORMALIZE_CHAINS * VF_LANES) {
        VF_UNROLL
        for (int c = 0; c < NORMALIZE_CHAINS; c++) {
            int64_t i = first + c * VF_LANES;
            if (i >= n)
                continue;
            vf t = elementwise_load(x + i, n - i);
            if (x2)
                t = vf_add(t, apply_dropout(a, key, i, elementwise_load(x2 + i, n - i)));
            if (i == 0 && a->kind == ATTN__NORMALIZE_DEVIATION)
                zero = vf_set1(first_lane(t));
            t = only_first(n - i, vf_sub(t, zero), vf_zero());
            sum[c] = vf_add(sum[c], t);
            store(y + i, n - i, t);
        }
    }
    return a->kind == ATTN__NORMALIZE_DEVIATION ? sum_of_chains(sum) / (real)n : 0;
}

/* Returns the mean squared distance from the mean. It is computed in a second pass over the row. */
VF_FN real variance_row(const real *t, int64_t n, real mean)
{
    vf sum[NORMALIZE_CHAINS], centre = vf_set1(mean);
    start_chains(sum);
    for (int64_t first = 0; first < n; first += NORMALIZE_CHAINS * VF_LANES) {
        VF_UNROLL
        for (int c = 0; c < NORMALIZE_CHAINS; c++) {
            int64_t i = first + c * VF_LANES;
            if (i >= n)
                continue;
            vf d = only_first(n - i, vf_sub(elementwise_load(t + i, n - i), centre), vf_zero());
            sum[c] = vf_fma(d, d, sum[c]);
        }
    }
    return sum_of_chains(sum) / (real)n;
}

static void run_layer_norm(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    const real *gain = a->x3, *bias = a->x4;
    for (int64_t row = begin; row < end; row++) {
        real *y = (real *)a->y + row * n, *keep = a->y2 ? (real *)a->y2 + row * n : NULL;
        real mean = residual_row(a, row, y);
        real inverse = (real)(1 / sqrt((double)variance_row(y, n, mean) + a->s[0]));
        vf centre = vf_set1(mean), scale = vf_set1(inverse);
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf t = vf_mul(vf_sub(elementwise_load(y + i, n - i), centre), scale);
            if (keep)
                store(keep + i, n - i, t);
            store(y + i, n - i, vf_fma(t, elementwise_load(gain + i, n - i), elementwise_load(bias + i, n - i)));
        }
        if (a->y3)
            ((real *)a->y3)[row] = inverse;
    }
}

/* Returns a vector of the normalized row. It is read from `kept`, or computed from the output. */
VF_FN vf normalized(const attn__elementwise_args *a, const real *kept, int64_t i, int64_t left)
{
    const real *bias = a->x4, *inverse_gain = a->x6;
    vf t = elementwise_load(kept + i, left);
    if (!bias)
        return t;
    return vf_mul(vf_sub(t, elementwise_load(bias + i, left)), elementwise_load(inverse_gain + i, left));
}

static void run_layer_norm_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    const real *gain = a->x3;
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + row * n, *kept = (const real *)a->x2 + row * n;
        real *y = (real *)a->y + row * n, *y2 = a->y2 ? (real *)a->y2 + row * n : NULL;
        vf sum[NORMALIZE_CHAINS], product[NORMALIZE_CHAINS];
        start_chains(sum);
        start_chains(product);
        for (int64_t first = 0; first < n; first += NORMALIZE_CHAINS * VF_LANES) {
            VF_UNROLL
            for (int c = 0; c < NORMALIZE_CHAINS; c++) {
                int64_t i = first + c * VF_LANES;
                if (i >= n)
                    continue;
                vf d = vf_mul(elementwise_load(x + i, n - i), elementwise_load(gain + i, n - i));
                sum[c] = vf_add(sum[c], d);
                product[c] = vf_fma(d, normalized(a, kept, i, n - i), product[c]);
            }
        }
        vf mean = vf_set1(a->kind == ATTN__NORMALIZE_DEVIATION ? sum_of_chains(sum) / (real)n : 0);
        vf slope = vf_set1(sum_of_chains(product) / (real)n), scale = vf_set1(((const real *)a->x5)[row]);
        uint64_t key = row_key(a, row);
        for (int64_t i = 0; i < n; i += VF_LANES) {
            vf d = vf_sub(vf_mul(elementwise_load(x + i, n - i), elementwise_load(gain + i, n - i)), mean);
            d = vf_mul(scale, vf_fnma(slope, normalized(a, kept, i, n - i), d));
            store(y + i, n - i, a->add ? vf_add(d, elementwise_load(y + i, n - i)) : d);
            if (y2)
                store(y2 + i, n - i, apply_dropout(a, key, i, d));
        }
    }
}

enum { PARAMETER_COLUMNS = 256 }; /* columns of a block; the sums of a block stay in the L1 cache */

/* Sums of the gradients of gain and bias. */
typedef struct parameter_sums {
    real gain[PARAMETER_COLUMNS], bias[PARAMETER_COLUMNS];
} parameter_sums;

/* Adds to the sums the gradients of rows [row, row + n) and columns [c, end). */
VF_FN void add_parameter_rows(const attn__elementwise_args *a, int64_t row, int64_t n, int64_t c, int64_t end,
                              parameter_sums *sums)
{
    for (int64_t i = c; i < end; i += VF_LANES) {
        vf product = elementwise_load(sums->gain + i - c, end - i), sum = elementwise_load(sums->bias + i - c, end - i);
        for (int64_t r = row; r < row + n; r++) {
            vf d = elementwise_load((const real *)a->x + r * a->n + i, end - i);
            sum = vf_add(sum, d);
            product = vf_fma(d, normalized(a, (const real *)a->x2 + r * a->n, i, end - i), product);
        }
        store(sums->gain + i - c, end - i, product);
        store(sums->bias + i - c, end - i, sum);
    }
}

VF_FN void sum_parameter_rows(const attn__elementwise_args *a, int64_t row, int64_t end, int64_t c, int64_t n,
                              parameter_sums *sums)
{
    enum { TOGETHER = 4 };
    *sums = (parameter_sums){{0}, {0}};
    for (; row < end; row = reduce_end(row, TOGETHER, end))
        add_parameter_rows(a, row, reduce_end(row, TOGETHER, end) - row, c, c + n, sums);
}

/* Each run of REDUCE_RUN rows is summed in the type of the numbers, and the runs are added in f64. */
static void sum_parameter_runs(const attn__elementwise_args *a, int64_t c, int64_t n, parameter_sums *sums)
{
    double gain[PARAMETER_COLUMNS] = {0}, bias[PARAMETER_COLUMNS] = {0};
    for (int64_t row = 0; row < a->rows; row = reduce_end(row, REDUCE_RUN, a->rows)) {
        sum_parameter_rows(a, row, reduce_end(row, REDUCE_RUN, a->rows), c, n, sums);
        for (int64_t i = 0; i < n; i++) {
            gain[i] += (double)sums->gain[i];
            bias[i] += (double)sums->bias[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        sums->gain[i] = (real)gain[i];
        sums->bias[i] = (real)bias[i];
    }
}

VF_FN void give_parameters(real *to, const real *from, int64_t n, bool add)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf sum = elementwise_load(from + i, n - i);
        store(to + i, n - i, add ? vf_add(sum, elementwise_load(to + i, n - i)) : sum);
    }
}

static void run_layer_norm_parameters(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    for (int64_t c = begin; c < end; c += PARAMETER_COLUMNS) {
        int64_t n = reduce_end(c, PARAMETER_COLUMNS, end) - c;
        parameter_sums sums;
        if (a->rows <= REDUCE_RUN) /* with a single run, there is nothing to add in f64 */
            sum_parameter_rows(a, 0, a->rows, c, n, &sums);
        else
            sum_parameter_runs(a, c, n, &sums);
        if (a->y)
            give_parameters((real *)a->y + c, sums.gain, n, a->add);
        if (a->y2)
            give_parameters((real *)a->y2 + c, sums.bias, n, a->add2);
    }
}

/* --------------------------------------------------------------------------------------------- softmax */

VF_FN int64_t row_length(const attn__elementwise_args *a, int64_t row)
{
    if (!a->lens)
        return a->n;
    int64_t length = a->lens[row / a->lens_rows];
    return length < 0 ? 0 : length > a->n ? a->n : length;
}

VF_FN real largest_of(const real *x, int64_t n)
{
    vf most = constant(-INFINITY);
    for (int64_t i = 0; i < n; i += VF_LANES)
        most = vf_max(only_first(n - i, elementwise_load(x + i, n - i), most), most);
    return vf_largest(most);
}

static void run_largest(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + row * a->n;
        vf most = constant(-INFINITY), sum = vf_zero();
        for (int64_t i = 0; i < a->n; i += VF_LANES) {
            vf t = elementwise_load(x + i, a->n - i);
            most = vf_max(only_first(a->n - i, t, most), most);
            sum = vf_add(sum, t);
        }
        ((real *)a->y)[row] = vf_largest(most);
        ((real *)a->y2)[row] = vf_sum(sum);
    }
}

/* Writes y = e^(x - most) and returns the sum of y. y may be x. If only the sum is needed, y may be NULL. */
VF_FN real exponentials(const real *x, real *y, int64_t n, real most)
{
    vf sum = vf_zero(), top = vf_set1(most);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf e = only_first(n - i, exp_of(vf_sub(elementwise_load(x + i, n - i), top)), vf_zero());
        sum = vf_add(sum, e);
        if (y)
            store(y + i, n - i, e);
    }
    return vf_sum(sum);
}

static void softmax_row(const attn__elementwise_args *a, const real *x, real *y, int64_t length)
{
    int64_t n = a->n;
    real fill = (real)a->s[0], most = largest_of(x, length);
    bool filled = a->s[0] != 0 && length < n;
    if (filled && fill > most)
        most = fill;
    if (most == (real)-INFINITY) { /* no key is attended, or all scores are -inf or NaN; the sum is NaN if a score is */
        real sum = row_total(x, length);
        for (int64_t i = 0; i < n; i++)
            y[i] = i < length && isnan(sum) ? sum : 0;
        return;
    }
    real sum = exponentials(x, y, length, most), rest = 0;
    if (filled) {
        rest = (real)exp((double)(fill - most));
        sum += rest * (real)(n - length);
    }
    /* numerators below `least` would give subnormal quotients */
    vf scale = vf_set1(1 / sum), least = vf_set1(REAL_MIN * sum);
    for (int64_t i = 0; i < length; i += VF_LANES)
        store(y + i, length - i, vf_mul_below(elementwise_load(y + i, length - i), least, scale));
    for (int64_t i = length; i < n; i++)
        y[i] = rest < REAL_MIN * sum ? 0 : rest / sum;
}

static void run_softmax(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        softmax_row(a, (const real *)a->x + row * a->n, (real *)a->y + row * a->n, row_length(a, row));
}

static void run_softmax_backward(const attn__elementwise_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->n;
    for (int64_t row = begin; row < end; row++) {
        const real *x = (const real *)a->x + row * n, *p = (const real *)a->x2 + row * n;
        real *y = (real *)a->y + row * n;
        vf sum[NORMALIZE_CHAINS];
        start_chains(sum);
        for (int64_t first = 0; first < n; first += NORMALIZE_CHAINS * VF_LANES) {
            VF_UNROLL
            for (int c = 0; c < NORMALIZE_CHAINS; c++) {
                int64_t i = first + c * VF_LANES;
                if (i < n)
                    sum[c] = vf_fma(elementwise_load(x + i, n - i), elementwise_load(p + i, n - i), sum[c]);
            }
        }
        vf mean = vf_set1(sum_of_chains(sum));
        int64_t length = row_length(a, row); /* scores past the length are constants, so their gradients are 0 */
        for (int64_t i = 0; i < length; i += VF_LANES)
            store(
                y + i, length - i,
                vf_mul_normal(elementwise_load(p + i, length - i), vf_sub(elementwise_load(x + i, length - i), mean)));
        for (int64_t i = length; i < n; i++)
            y[i] = 0;
    }
}
