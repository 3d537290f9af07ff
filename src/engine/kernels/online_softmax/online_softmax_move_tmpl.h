/* SPDX-License-Identifier: MIT
 *
 * online_softmax_move_tmpl.h - copies between the caller's arrays and tiles, for online_softmax_tmpl.h: rows that are
 * adjacent in the array are moved as squares of VF_LANES x VF_LANES. Other rows are moved element by element.
 */
VF_FN vf load_as(const void *base, attn_dtype dtype, int64_t at, int n)
{
    if (dtype == ATTN_BF16) {
        const uint16_t *p = (const uint16_t *)base + at;
        return n == VF_LANES ? vf_load_bf16(p) : vf_load_bf16_part(p, n);
    }
    if (dtype == ATTN_F32) {
        const float *p = (const float *)base + at;
        return n == VF_LANES ? vf_load(p) : vf_load_part(p, n);
    }
    uint8_t part[VF_LANES] = {0};
    const uint8_t *flags = (const uint8_t *)base + at;
    for (int i = 0; n < VF_LANES && i < n; i++)
        part[i] = flags[i];
    return vf_select(vi_lt(vi_set1(0), vi_load_u8(n < VF_LANES ? part : flags)), vf_set1(1.0f), vf_zero());
}

VF_FN float load_one(const void *base, attn_dtype dtype, int64_t at)
{
    if (dtype == ATTN_F32)
        return ((const float *)base)[at];
    if (dtype == ATTN_U8)
        return ((const uint8_t *)base)[at] ? 1.0f : 0.0f;
    return attn__from_bf16(((const uint16_t *)base)[at]);
}

VF_FN void store_as(void *base, attn_dtype dtype, int64_t at, vf x, int n)
{
    if (dtype == ATTN_BF16) {
        uint16_t *p = (uint16_t *)base + at;
        if (n == VF_LANES)
            vf_store_bf16(p, x);
        else
            vf_store_bf16_part(p, x, n);
        return;
    }
    float *p = (float *)base + at;
    if (n == VF_LANES)
        vf_store(p, x);
    else
        vf_store_part(p, x, n);
}

VF_FN int at_most_lanes(int64_t n)
{
    return n < VF_LANES ? (int)n : VF_LANES;
}

/* Gathers one square: lanes [w, w + lanes) of rows [r, r + rows). If `whole` is set, the square is not at an edge and
 * needs no checks. `whole` is a constant after inlining. */
VF_FN void gather_square(const attn__lane_view *v, attn_dtype dtype, float *tile, int64_t width, int64_t w, int64_t r,
                         vf factor, bool whole)
{
    vf x[VF_LANES];
    int lanes = whole ? VF_LANES : at_most_lanes(v->lanes - w), rows = whole ? VF_LANES : at_most_lanes(v->rows - r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        x[i] = i < lanes ? load_as(v->base, dtype, v->lane_offset[w + i] + r, rows) : vf_zero();
    vf_transpose(x);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        if (i < rows)
            vf_store(tile + (r + i) * width + w, vf_mul(x[i], factor));
}

#ifdef VF_HALVES
/* Gathers VF_LANES lanes of VF_LANES / 2 rows of f32. */
VF_FN void gather_halves(const attn__lane_view *v, float *tile, int64_t width, int64_t w, int64_t r, vf factor)
{
    enum { HALF = VF_LANES / 2 };
    const float *base = (const float *)v->base + r;
    vf x[HALF];
    VF_UNROLL
    for (int i = 0; i < HALF; i++)
        x[i] = vf_load_halves(base + v->lane_offset[w + i], base + v->lane_offset[w + HALF + i]);
    vf_transpose_halves(x);
    VF_UNROLL
    for (int i = 0; i < HALF; i++)
        vf_store(tile + (r + i) * width + w, vf_mul(x[i], factor));
}

VF_FN void scatter_halves(const attn__lane_view *v, const float *tile, int64_t width, int64_t w, int64_t r,
                          const float *factor)
{
    enum { HALF = VF_LANES / 2 };
    float *base = (float *)v->base + r;
    vf x[HALF], f = vf_load(factor + w);
    VF_UNROLL
    for (int i = 0; i < HALF; i++)
        x[i] = vf_mul(vf_load(tile + (r + i) * width + w), f);
    vf_transpose_halves(x);
    VF_UNROLL
    for (int i = 0; i < HALF; i++)
        vf_store_halves(base + v->lane_offset[w + i], base + v->lane_offset[w + HALF + i], x[i]);
}

VF_FN bool are_halves(const attn__lane_view *v, attn_dtype dtype, int64_t w, int64_t r)
{
    return dtype == ATTN_F32 && v->rows - r == VF_LANES / 2 && w + VF_LANES <= v->lanes;
}
#endif

VF_FN void gather_squares(const attn__lane_view *v, attn_dtype dtype, float *tile, int64_t width, float factor)
{
    for (int64_t r = 0; r < v->rows; r += VF_LANES) {
        for (int64_t w = 0; w < width; w += VF_LANES) {
#ifdef VF_HALVES
            if (are_halves(v, dtype, w, r)) {
                gather_halves(v, tile, width, w, r, vf_set1(factor));
                continue;
            }
#endif
            if (w + VF_LANES <= v->lanes && r + VF_LANES <= v->rows)
                gather_square(v, dtype, tile, width, w, r, vf_set1(factor), true);
            else if (w < v->lanes)
                gather_square(v, dtype, tile, width, w, r, vf_set1(factor), false);
        }
    }
    for (int64_t w = (v->lanes + VF_LANES - 1) / VF_LANES * VF_LANES; w < width; w += VF_LANES)
        for (int64_t r = 0; r < v->rows; r++)
            vf_store(tile + r * width + w, vf_zero());
}

/* Reports whether the offsets of neighbouring lanes differ by `step`, which is 0 or 1. */
static bool lanes_step(const attn__lane_view *v, int64_t step)
{
    for (int64_t i = 1; i < v->lanes; i++)
        if (v->lane_offset[i] - v->lane_offset[i - 1] != step)
            return false;
    return v->lanes > 0;
}

/* The lanes must be adjacent in the array, or all must have the same offset. */
VF_FN void gather_rows(const attn__lane_view *v, attn_dtype dtype, float *tile, int64_t width, float factor,
                       bool adjacent)
{
    for (int64_t r = 0; r < v->rows; r++) {
        int64_t at = v->lane_offset[0] + (v->row_offset ? v->row_offset[r] : r);
        for (int64_t w = 0; w < width; w += VF_LANES) {
            vf x = vf_zero();
            if (!adjacent)
                x = vf_set1(load_one(v->base, dtype, at));
            else if (w < v->lanes)
                x = load_as(v->base, dtype, at + w, at_most_lanes(v->lanes - w));
            vf_store(tile + r * width + w, vf_mul(x, vf_set1(factor)));
        }
    }
}

static void gather_elements(const attn__lane_view *v, float *tile, int64_t width, float factor)
{
    for (int64_t r = 0; r < v->rows; r++) {
        int64_t row = v->row_offset ? v->row_offset[r] : r;
        for (int64_t w = 0; w < width; w++) {
            float x = w < v->lanes ? load_one(v->base, v->dtype, v->lane_offset[w] + row) : 0.0f;
            tile[r * width + w] = x * factor;
        }
    }
}

static void gather(const attn__lane_view *v, float *tile, int64_t width, float factor)
{
    bool same = lanes_step(v, 0);
    if (same || lanes_step(v, 1)) {
        if (v->dtype == ATTN_F32)
            gather_rows(v, ATTN_F32, tile, width, factor, !same);
        else if (v->dtype == ATTN_BF16)
            gather_rows(v, ATTN_BF16, tile, width, factor, !same);
        else
            gather_rows(v, ATTN_U8, tile, width, factor, !same);
    } else if (v->row_offset) {
        gather_elements(v, tile, width, factor);
    } else if (v->dtype == ATTN_F32) {
        gather_squares(v, ATTN_F32, tile, width, factor);
    } else if (v->dtype == ATTN_BF16) {
        gather_squares(v, ATTN_BF16, tile, width, factor);
    } else {
        gather_squares(v, ATTN_U8, tile, width, factor);
    }
}

VF_FN void scatter_square(const attn__lane_view *v, attn_dtype dtype, const float *tile, int64_t width, int64_t w,
                          int64_t r, const float *factor, bool whole)
{
    vf x[VF_LANES], f = vf_load(factor + w);
    int lanes = whole ? VF_LANES : at_most_lanes(v->lanes - w), rows = whole ? VF_LANES : at_most_lanes(v->rows - r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        x[i] = i < rows ? vf_mul(vf_load(tile + (r + i) * width + w), f) : vf_zero();
    vf_transpose(x);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        if (i < lanes)
            store_as(v->base, dtype, v->lane_offset[w + i] + r, x[i], rows);
}

VF_FN void scatter_squares(const attn__lane_view *v, attn_dtype dtype, const float *tile, int64_t width,
                           const float *factor)
{
    for (int64_t w = 0; w < v->lanes; w += VF_LANES) {
        for (int64_t r = 0; r < v->rows; r += VF_LANES) {
#ifdef VF_HALVES
            if (are_halves(v, dtype, w, r)) {
                scatter_halves(v, tile, width, w, r, factor);
                continue;
            }
#endif
            if (w + VF_LANES <= v->lanes && r + VF_LANES <= v->rows)
                scatter_square(v, dtype, tile, width, w, r, factor, true);
            else
                scatter_square(v, dtype, tile, width, w, r, factor, false);
        }
    }
}

static void scatter_elements(const attn__lane_view *v, const float *tile, int64_t width, const float *factor)
{
    for (int64_t w = 0; w < v->lanes; w++) {
        for (int64_t r = 0; r < v->rows; r++) {
            int64_t at = v->lane_offset[w] + (v->row_offset ? v->row_offset[r] : r);
            store_as(v->base, v->dtype, at, vf_set1(tile[r * width + w] * factor[w]), 1);
        }
    }
}

static void scatter(const attn__lane_view *v, const float *tile, int64_t width, const float *factor)
{
    if (v->row_offset)
        scatter_elements(v, tile, width, factor);
    else if (v->dtype == ATTN_F32)
        scatter_squares(v, ATTN_F32, tile, width, factor);
    else
        scatter_squares(v, ATTN_BF16, tile, width, factor);
}

/* Copies a row and returns its check. The check is NaN if any number is infinite or NaN, because it sums the numbers
 * times zero. Each row has its own check, so that rows do not wait for each other. */
VF_FN vf copy_row(const void *base, attn_dtype dtype, int64_t at, int64_t columns, float *out)
{
    vf check = vf_zero();
    int64_t c = 0;
    for (; c + VF_LANES <= columns; c += VF_LANES) {
        vf x = load_as(base, dtype, at + c, VF_LANES);
        vf_store(out + c, x);
        check = vf_fma(x, vf_zero(), check);
    }
    if (c < columns) {
        vf x = load_as(base, dtype, at + c, (int)(columns - c));
        vf_store_part(out + c, x, (int)(columns - c));
        check = vf_fma(x, vf_zero(), check);
    }
    return check;
}

static bool copy(const void *base, attn_dtype dtype, const int64_t *row_offset, const int64_t *column_offset,
                 int64_t rows, int64_t columns, float *out, int64_t ld)
{
    vf check = vf_zero();
    for (int64_t r = 0; r < rows; r++) {
        if (!column_offset && dtype == ATTN_F32) {
            check = vf_add(check, copy_row(base, ATTN_F32, row_offset[r], columns, out + r * ld));
        } else if (!column_offset) {
            check = vf_add(check, copy_row(base, ATTN_BF16, row_offset[r], columns, out + r * ld));
        } else {
            for (int64_t c = 0; c < columns; c++)
                out[r * ld + c] = load_one(base, dtype, row_offset[r] + column_offset[c]);
            check = vf_add(check, copy_row(out, ATTN_F32, r * ld, columns, out + r * ld));
        }
    }
    return !vm_any(vm_not(vf_eq(check, check)));
}
