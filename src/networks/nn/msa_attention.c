/* SPDX-License-Identifier: MIT
 *
 * Implements attention along the rows and the columns of alignments. Alignments are read in place, without copies.
 */
#include "nn/msa_attention.h"
#include "nn/linear_weight.h"

#include "base/context.h"
#include "nn/check.h"
#include "nn/named.h"
#include "tensor/number.h"
#include "tensor/op.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <string.h>

static void project_init(attn_nn_linear *linear, attn_nn_builder *builder, const char *name, int64_t dim)
{
    attn__nn_linear_named(linear, builder, name, dim, dim, true);
    attn__nn_linear_in_parts(linear);
}

void attn_nn_msa_attention_init(attn_nn_msa_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                double dropout, double fill)
{
    *layer = (attn_nn_msa_attention){.heads = heads, .dropout = dropout, .fill = fill};
    if (heads < 1 || dim < 1 || dim % heads != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%s%s%lld heads do not divide %lld channels", builder->prefix,
                   builder->prefix[0] ? ": " : "", (long long)heads, (long long)dim);
        return;
    }
    project_init(&layer->k, builder, "k_proj", dim);
    project_init(&layer->v, builder, "v_proj", dim);
    project_init(&layer->q, builder, "q_proj", dim);
    project_init(&layer->out, builder, "out_proj", dim);
}

/* The lengths of an alignment x [R,C,B,D]. */
typedef struct sizes {
    int64_t rows, cols, batch, heads, dim; /* dim: channels of one head */
} sizes;

static bool measure(sizes *s, attn_tape *tape, const attn_tensor *x, const attn_tensor *keep, int64_t heads)
{
    if (!attn__nn_has_rank(tape, x, 4, "alignment") ||
        (keep && !attn__nn_has_rank(tape, keep, 3, "padding mask of an alignment")))
        return false;
    *s = (sizes){attn_tensor_length(x, 0), attn_tensor_length(x, 1), attn_tensor_length(x, 2), heads,
                 attn_tensor_length(x, 3) / heads};
    if (keep && (attn_tensor_dtype(keep) != ATTN_U8 || attn_tensor_length(keep, 0) != s->batch ||
                 attn_tensor_length(keep, 1) != s->rows || attn_tensor_length(keep, 2) != s->cols)) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "padding mask: expected u8 [%lld,%lld,%lld], found %s %s",
                   (long long)s->batch, (long long)s->rows, (long long)s->cols,
                   attn_dtype_name(attn_tensor_dtype(keep)), attn__shape_text(keep, found));
        return false;
    }
    return true;
}

/* Returns the number of rows of an alignment [R,C] that are not completely padding. */
static int64_t depth_of(const sizes *s, const uint8_t *kept)
{
    int64_t depth = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t col = 0;
        while (col < s->cols && !kept[row * s->cols + col])
            col++;
        depth += col < s->cols;
    }
    return depth;
}

/* Returns a factor for the queries q [R,C,B,D] of tied row attention. It is zero for padded queries, which must not
 * enter the sum over rows. For other queries it is 1, or with own_depth sqrt(R / depth), which changes the scale
 * 1/sqrt(R) of the batch into 1/sqrt(depth) of the alignment. */
static attn_tensor *query_factor(attn_tape *tape, const sizes *s, const attn_tensor *keep, bool own_depth,
                                 attn_dtype dtype)
{
    attn_tensor *factor = attn_tape_tensor(tape, dtype, 4, (int64_t[]){s->rows, s->cols, s->batch, 1}, NULL);
    const uint8_t *kept = attn_tensor_data(keep);
    int64_t map = s->rows * s->cols;
    for (int64_t b = 0; factor && b < s->batch; b++) {
        int64_t depth = own_depth ? depth_of(s, kept + b * map) : s->rows;
        double scale = depth > 0 ? sqrt((double)s->rows / (double)depth) : 1;
        for (int64_t i = 0; i < map; i++)
            attn__set_number(factor, i * s->batch + b, kept[b * map + i] ? scale : 0);
    }
    return factor;
}

/* Describes tied row attention. Only keys are masked, by the padding of the first row. Dimensions 1 and 3 of the
 * problem are batch and key. */
static bool describe_rows(attn_problem *p, attn_tape *tape, const sizes *s, bool masked)
{
    if (attn_problem_tied_rows(p, s->rows, s->cols, s->batch, s->heads, s->dim) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "row attention: %s", attn_context_error(NULL));
        return false;
    }
    if (masked) {
        p->dims[1].mask = s->rows * s->cols;
        p->dims[3].mask = 1;
    }
    return true;
}

/* Describes column attention, or untied row attention. Heads, lines and alignments of the batch are batch dimensions of
 * the problem. In column attention, a line is a column, and each of its rows attends to its rows. In untied row
 * attention, a line is a row. */
static void describe_lines(attn_problem *p, const sizes *s, bool columns, bool masked)
{
    int64_t token = s->heads * s->dim,
            /* stride to the next column, stride to the next row */
        steps[] = {s->batch * token, s->cols * s->batch * token};
    int64_t along = steps[columns], other = steps[!columns], n = columns ? s->rows : s->cols;
    int64_t lines = columns ? s->cols : s->rows, map = n * n;
    const attn_dim dims[] = {
        {.role = ATTN_ROLE_BATCH,
         .n = s->heads,
         .q = s->dim,
         .k = s->dim,
         .v = s->dim,
         .o = s->dim,
         .lse = lines * s->batch * n,
         .weights = lines * s->batch * map},
        {.role = ATTN_ROLE_BATCH,
         .n = lines,
         .q = other,
         .k = other,
         .v = other,
         .o = other,
         .lse = s->batch * n,
         .weights = s->batch * map,
         .mask = !masked   ? 0
                 : columns ? 1
                           : s->cols},
        {.role = ATTN_ROLE_BATCH,
         .n = s->batch,
         .q = token,
         .k = token,
         .v = token,
         .o = token,
         .lse = n,
         .weights = map,
         .mask = masked ? s->rows * s->cols : 0},
        {.role = ATTN_ROLE_QUERY, .n = n, .q = along, .o = along, .lse = 1, .weights = n},
        {.role = ATTN_ROLE_KEY,
         .n = n,
         .k = along,
         .v = along,
         .weights = 1,
         .mask = !masked   ? 0
                 : columns ? s->cols
                           : 1},
        {.role = ATTN_ROLE_CONTRACT, .n = s->dim, .q = 1, .k = 1},
        {.role = ATTN_ROLE_VALUE, .n = s->dim, .v = 1, .o = 1},
    };
    *p = (attn_problem){.ndims = sizeof dims / sizeof *dims};
    for (int i = 0; i < p->ndims; i++)
        p->dims[i] = dims[i];
}

/* Returns the type in which the attention is computed. If maps are requested, the type is that of the maps, f32 or f64.
 * This costs little, because this attention is a small share of the work. */
static attn_dtype number_of(const attn__token_source *source, bool maps)
{
    return source->bf16 ? maps ? ATTN_F32 : ATTN_BF16 : attn_tensor_dtype(source->x);
}

static bool keeps_gradients(const attn_tape *tape)
{
    return attn_tape_mode(tape).record || attn_tape_mode(tape).train;
}

/* One linear layer that projects the tokens, and its result: q, k or v. */
typedef struct projection {
    const attn_nn_linear *linear;
    attn_tensor **y;
} projection;

/* Projects the tokens for the heads in `range`. If gradients may be needed, it uses the tape's operations. */
static bool project(attn_tape *tape, const attn__token_source *source, const sizes *s, const attn__head_range *range,
                    attn_dtype dtype, int n, const projection *wanted)
{
    enum { MOST = 3 };
    attn__token_linear linears[MOST];
    int64_t shape[] = {s->rows, s->cols, s->batch, s->heads * s->dim};
    for (int i = 0; i < n; i++) {
        bool recorded = keeps_gradients(tape);
        *wanted[i].y = recorded ? attn_nn_linear_forward(wanted[i].linear, tape, source->x)
                                : attn__op_result(tape, dtype, sizeof shape / sizeof *shape, shape);
        if (!*wanted[i].y)
            return false;
        linears[i] = (attn__token_linear){wanted[i].linear, range->first * s->dim, *wanted[i].y};
    }
    return keeps_gradients(tape) || attn__tokens_project(tape, source, n, linears);
}

static attn_tensor *ones(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape)
{
    return attn_affine(tape, attn_tape_tensor(tape, dtype, rank, shape, NULL), 1, 1);
}

/* Computes the attention of a single row, which attends only to itself even if it is padding. The weight is always
 * 1, so queries and keys are not projected. There is no dropout. */
static attn_tensor *single_row(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                               const sizes *s, const attn__head_range *range, attn_tensor **weights)
{
    attn_tensor *v = NULL;
    if (weights)
        *weights = ones(tape, number_of(source, true), 5, (int64_t[]){s->heads, s->cols, s->batch, 1, 1});
    return project(tape, source, s, range, number_of(source, false), 1, &(projection){&layer->v, &v}) ? v : NULL;
}

/* Computes the attention maps as the result of an attention whose values are the identity matrix of size `side`.
 * Scores and maps are then computed as matrix products. This is faster than the attention engine's own output of
 * weights, which computes each sum separately. */
static attn_tensor *maps_of(attn_tape *tape, const attn_attention *a, int64_t side)
{
    attn_attention maps = *a;
    attn_problem *p = &maps.problem;
    attn_tensor *identity = attn_tape_tensor(tape, p->dtype, 2, (int64_t[]){side, side}, NULL);
    for (int64_t i = 0; identity && i < side; i++)
        attn__set_number(identity, i * (side + 1), 1);
    p->ndims = 0;
    for (int i = 0; i < a->problem.ndims; i++) {
        attn_dim dim = a->problem.dims[i];
        dim.v = dim.role == ATTN_ROLE_KEY ? side : 0;
        dim.o = dim.role == ATTN_ROLE_BATCH || dim.role == ATTN_ROLE_QUERY ? dim.weights : 0;
        if (dim.role != ATTN_ROLE_VALUE)
            p->dims[p->ndims++] = dim;
    }
    p->dims[p->ndims++] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = side, .v = 1, .o = 1};
    maps.v.tensor = identity;
    maps.weights = NULL;
    maps.rank = a->weights_rank;
    memcpy(maps.shape, a->weights_shape, sizeof maps.shape);
    return attn_attend(tape, &maps);
}

/* Fills *a with the problem, the queries and keys of the heads in `range`, and the values if they are requested. */
static bool ask(attn_attention *a, const attn_nn_msa_attention *layer, attn_tape *tape,
                const attn__token_source *source, const attn_tensor *keep, bool columns, const sizes *s,
                const attn__head_range *range, bool maps, bool values)
{
    const bool tied = !columns && !layer->untied;
    const int64_t tied_maps[] = {s->heads, s->batch, s->cols, s->cols};
    const int64_t row_maps[] = {s->heads, s->rows, s->batch, s->cols, s->cols};
    const int64_t column_maps[] = {s->heads, s->cols, s->batch, s->rows, s->rows};
    /* true: queries are multiplied by a factor; this needs f32 or f64 queries, because attn_mul does not support
     * bf16 */
    bool scaled = tied && keep;
    attn_dtype dtype = number_of(source, maps || scaled);
    const projection wanted[] = {{&layer->q, &a->q.tensor}, {&layer->k, &a->k.tensor}, {&layer->v, &a->v.tensor}};
    *a = (attn_attention){.mask = keep,
                          .rank = 4,
                          .shape = {s->rows, s->cols, s->batch, s->heads * s->dim},
                          .weights_rank = tied ? 4 : 5,
                          .dropout = layer->dropout,
                          .examples = tied ? 1 : 2};
    if (tied)
        memcpy(a->weights_shape, tied_maps, sizeof tied_maps);
    else
        memcpy(a->weights_shape, columns ? column_maps : row_maps, sizeof row_maps);
    if (!tied)
        describe_lines(&a->problem, s, columns, keep != NULL);
    else if (!describe_rows(&a->problem, tape, s, keep != NULL))
        return false;
    if (!project(tape, source, s, range, dtype, values ? 3 : 2, wanted))
        return false;
    if (scaled)
        a->q.tensor = attn_mul(tape, a->q.tensor, query_factor(tape, s, keep, layer->own_depth, dtype));
    a->problem.flags |= keep ? ATTN_WITH_MASK : 0;
    a->problem.dtype = dtype;
    a->problem.mask_fill = layer->fill;
    a->problem.weights_dropped = true;
    return a->q.tensor != NULL;
}

attn_tensor *attn__msa_maps(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                            const attn_tensor *keep, bool columns, const attn__head_range *range)
{
    sizes s;
    attn_attention a;
    if (!measure(&s, tape, source->x, keep, layer->heads))
        return NULL;
    s.heads = range->n;
    if (columns && s.rows == 1)
        return ones(tape, number_of(source, true), 5, (int64_t[]){s.heads, s.cols, s.batch, 1, 1});
    return ask(&a, layer, tape, source, keep, columns, &s, range, true, false)
               ? maps_of(tape, &a, columns ? s.rows : s.cols)
               : NULL;
}

attn_tensor *attn__msa_heads(const attn_nn_msa_attention *layer, attn_tape *tape, const attn__token_source *source,
                             const attn_tensor *keep, bool columns, const attn__head_range *range,
                             attn_tensor **weights)
{
    sizes s;
    attn_attention a;
    if (!measure(&s, tape, source->x, keep, layer->heads))
        return NULL;
    s.heads = range->n;
    if (columns && s.rows == 1)
        return single_row(layer, tape, source, &s, range, weights);
    if (!ask(&a, layer, tape, source, keep, columns, &s, range, weights != NULL, true))
        return NULL;
    a.weights = weights;
    if (weights && !keeps_gradients(tape)) {
        *weights = maps_of(tape, &a, columns ? s.rows : s.cols);
        a.weights = NULL;
        /* Fails if the maps cannot be computed, because contacts computed without these maps could be mistaken for a
         * result. */
        if (!*weights)
            return NULL;
    }
    return attn_attend(tape, &a);
}

attn_tensor *attn_nn_msa_attention_rows(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                        const attn_tensor *keep, attn_tensor **weights)
{
    attn__head_range all = {0, layer->heads};
    attn__token_source source = {.x = x};
    return attn_nn_linear_forward(&layer->out, tape, attn__msa_heads(layer, tape, &source, keep, false, &all, weights));
}

attn_tensor *attn_nn_msa_attention_columns(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                           const attn_tensor *keep, attn_tensor **weights)
{
    attn__head_range all = {0, layer->heads};
    attn__token_source source = {.x = x};
    return attn_nn_linear_forward(&layer->out, tape, attn__msa_heads(layer, tape, &source, keep, true, &all, weights));
}
