/* SPDX-License-Identifier: MIT
 *
 * Attention over the rows and the columns of alignments, read where they lie. */
#include "nn/check.h"

#include "base/context.h"

static void project_init(attn_nn_linear *linear, attn_nn_builder *builder, const char *name, int64_t dim)
{
    attn_nn_push(builder, "%s", name);
    attn_nn_linear_init(linear, builder, dim, dim, true);
    attn_nn_pop(builder);
}

void attn_nn_msa_attention_init(attn_nn_msa_attention *layer, attn_nn_builder *builder, int64_t dim, int64_t heads,
                                double dropout, double fill)
{
    *layer = (attn_nn_msa_attention){.heads = heads, .dropout = dropout, .fill = fill};
    if (heads < 1 || dim < 1 || dim % heads != 0) {
        attn__fail(builder->context, ATTN_ARGUMENT, "%s: %lld heads do not divide %lld channels", builder->prefix,
                   (long long)heads, (long long)dim);
        return;
    }
    project_init(&layer->k, builder, "k_proj", dim);
    project_init(&layer->v, builder, "v_proj", dim);
    project_init(&layer->q, builder, "q_proj", dim);
    project_init(&layer->out, builder, "out_proj", dim);
}

/* The lengths of x [R,C,B,D]. */
typedef struct sizes {
    int64_t rows, cols, batch, heads, dim; /* dim: of a head */
} sizes;

static bool measure(sizes *s, attn_tape *tape, const attn_tensor *x, const attn_tensor *keep, int64_t heads)
{
    if (!attn__nn_has_rank(tape, x, 4, "alignment") ||
        (keep && !attn__nn_has_rank(tape, keep, 3, "padding mask of an alignment"))) {
        return false;
    }
    *s = (sizes){attn_tensor_dim(x, 0), attn_tensor_dim(x, 1), attn_tensor_dim(x, 2), heads,
                 attn_tensor_dim(x, 3) / heads};
    if (keep && (attn_tensor_dtype(keep) != ATTN_U8 || attn_tensor_dim(keep, 0) != s->batch ||
                 attn_tensor_dim(keep, 1) != s->rows || attn_tensor_dim(keep, 2) != s->cols)) {
        attn__fail(attn_tape_context(tape), ATTN_SHAPE, "padding mask: u8 [%lld,%lld,%lld] wanted",
                   (long long)s->batch, (long long)s->rows, (long long)s->cols);
        return false;
    }
    return true;
}

/* Zero for the queries [R,C,B] that are padding, else 1, as a factor for q [R,C,B,D]. */
static attn_tensor *query_factor(attn_tape *tape, const sizes *s, const attn_tensor *keep, attn_dtype dtype)
{
    attn_tensor *factor = attn_tensor_make(tape, dtype, 4, (int64_t[]){s->rows, s->cols, s->batch, 1}, NULL);
    const uint8_t *kept = attn_tensor_data(keep);
    int64_t map = s->rows * s->cols;
    for (int64_t i = 0; factor && i < s->batch * map; i++) {
        int64_t to = i % map * s->batch + i / map;
        if (dtype == ATTN_F64) {
            ((double *)attn_tensor_data(factor))[to] = kept[i] != 0;
        } else {
            ((float *)attn_tensor_data(factor))[to] = kept[i] != 0;
        }
    }
    return factor;
}

static attn_tensor *finish(const attn_nn_msa_attention *layer, attn_tape *tape, attn_attention *a, attn_tensor *x,
                           attn_tensor *q)
{
    a->q.tensor = q;
    a->k.tensor = attn_nn_linear_forward(&layer->k, tape, x);
    a->v.tensor = attn_nn_linear_forward(&layer->v, tape, x);
    if (!a->q.tensor || !a->k.tensor || !a->v.tensor) {
        return NULL;
    }
    if (a->mask) {
        a->problem.with |= ATTN_WITH_MASK;
    }
    a->problem.dtype = attn_tensor_dtype(x);
    a->problem.mask_fill = layer->fill;
    a->problem.weights_dropped = true;
    a->dropout = layer->dropout;
    return attn_nn_linear_forward(&layer->out, tape, attn_attend(tape, a));
}

attn_tensor *attn_nn_msa_attention_rows(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                        const attn_tensor *keep, attn_tensor **weights)
{
    sizes s;
    if (!measure(&s, tape, x, keep, layer->heads)) {
        return NULL;
    }
    attn_attention a = {.mask = keep, .rank = 4, .shape = {s.rows, s.cols, s.batch, s.heads * s.dim},
                        .weights = weights, .weights_rank = 4, .weights_shape = {s.heads, s.batch, s.cols, s.cols}};
    if (attn_problem_tied_rows(&a.problem, s.rows, s.cols, s.batch, s.heads, s.dim) != ATTN_OK) {
        attn__fail(attn_tape_context(tape), ATTN_SHAPE, "row attention: sizes out of range");
        return NULL;
    }
    attn_tensor *q = attn_nn_linear_forward(&layer->q, tape, x);
    if (keep) { /* the engine sees the first row's padding, for keys; dims 1 and 3 are batch and key */
        a.problem.dims[1].mask = s.rows * s.cols;
        a.problem.dims[3].mask = 1;
        q = attn_mul(tape, q, query_factor(tape, &s, keep, attn_tensor_dtype(x)));
    }
    return finish(layer, tape, &a, x, q);
}

/* Heads, columns and batch are batch; rows ask rows. */
static void describe_columns(attn_problem *p, const sizes *s, bool masked)
{
    int64_t token = s->heads * s->dim, col = s->batch * token, row = s->cols * col, map = s->rows * s->rows;
    const attn_dim dims[] = {
        {.role = ATTN_BATCH, .n = s->heads, .q = s->dim, .k = s->dim, .v = s->dim, .o = s->dim,
         .lse = s->cols * s->batch * s->rows, .weights = s->cols * s->batch * map},
        {.role = ATTN_BATCH, .n = s->cols, .q = col, .k = col, .v = col, .o = col, .lse = s->batch * s->rows,
         .weights = s->batch * map, .mask = masked},
        {.role = ATTN_BATCH, .n = s->batch, .q = token, .k = token, .v = token, .o = token, .lse = s->rows,
         .weights = map, .mask = masked ? s->rows * s->cols : 0},
        {.role = ATTN_QUERY, .n = s->rows, .q = row, .o = row, .lse = 1, .weights = s->rows},
        {.role = ATTN_KEY, .n = s->rows, .k = row, .v = row, .weights = 1, .mask = masked ? s->cols : 0},
        {.role = ATTN_CONTRACT, .n = s->dim, .q = 1, .k = 1},
        {.role = ATTN_VALUE, .n = s->dim, .v = 1, .o = 1},
    };
    *p = (attn_problem){.ndims = sizeof dims / sizeof *dims};
    for (int i = 0; i < p->ndims; i++) {
        p->dims[i] = dims[i];
    }
}

static attn_tensor *ones(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape)
{
    return attn_affine(tape, attn_tensor_make(tape, dtype, rank, shape, NULL), 1, 1);
}

attn_tensor *attn_nn_msa_attention_columns(const attn_nn_msa_attention *layer, attn_tape *tape, attn_tensor *x,
                                           const attn_tensor *keep, attn_tensor **weights)
{
    sizes s;
    if (!measure(&s, tape, x, keep, layer->heads)) {
        return NULL;
    }
    attn_attention a = {.mask = keep, .rank = 4, .shape = {s.rows, s.cols, s.batch, s.heads * s.dim},
                        .weights = weights, .weights_rank = 5,
                        .weights_shape = {s.heads, s.cols, s.batch, s.rows, s.rows}};
    if (s.rows == 1) { /* each row attends to itself alone, padded or not */
        if (weights) {
            *weights = ones(tape, attn_tensor_dtype(x), 5, a.weights_shape);
        }
        return attn_nn_linear_forward(&layer->out, tape, attn_nn_linear_forward(&layer->v, tape, x));
    }
    describe_columns(&a.problem, &s, keep != NULL);
    return finish(layer, tape, &a, x, attn_nn_linear_forward(&layer->q, tape, x));
}
