/* SPDX-License-Identifier: MIT
 *
 * Implements the axial layer of the MSA Transformer. Its three parts are row attention, column attention and a
 * feed-forward network. Each part reads normalized input, and its result is added to the input.
 *
 * Without gradients the layer runs in place, and saves memory by computing some heads at a time. Only the output
 * projection is computed in parts, because it is a sum over the heads. The original instead cuts an alignment into
 * chunks of rows. In tied row attention a chunk gives only a part of each score, so the mask is added and rounded once
 * per chunk. Here it is added once, to complete scores. */
#include "nn/msa_attention.h"

#include "base/context.h"
#include "nn/check.h"
#include "nn/linear_weight.h"
#include "nn/named.h"
#include "tensor/linear_part.h"
#include "tensor/op.h"
#include "tensor/tape_state.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------ building */

static void attention_init(attn_nn_msa_attention *attention, attn_nn_layer_norm *norm, attn_nn_builder *builder,
                           const char *name, const attn_nn_msa_layer_options *o)
{
    attn_nn_push(builder, name);
    attn_nn_push(builder, "layer");
    attn_nn_msa_attention_init(attention, builder, o->dim, o->heads, o->dropout, o->fill);
    attention->own_depth = o->own_depth;
    attention->untied = o->untied;
    attn_nn_pop(builder);
    attn__nn_layer_norm_named(norm, builder, "layer_norm", o->dim, 0);
    attn_nn_pop(builder);
}

static void linear_init(attn_nn_linear *linear, attn_nn_builder *builder, const char *name, int64_t in, int64_t out)
{
    attn_nn_pushf(builder, "layer.%s", name);
    attn_nn_linear_init(linear, builder, in, out, true);
    attn__nn_linear_in_parts(linear);
    attn_nn_pop(builder);
}

void attn_nn_msa_layer_init(attn_nn_msa_layer *layer, attn_nn_builder *builder,
                            const attn_nn_msa_layer_options *options)
{
    *layer = (attn_nn_msa_layer){.dropout = options->dropout,
                                 .activation_dropout = options->activation_dropout,
                                 .max_tokens = options->max_tokens,
                                 .columns_first = options->columns_first};
    attention_init(&layer->rows, &layer->rows_norm, builder, "row_self_attention", options);
    attention_init(&layer->columns, &layer->columns_norm, builder, "column_self_attention", options);
    attn_nn_push(builder, "feed_forward_layer");
    linear_init(&layer->fc1, builder, "fc1", options->dim, options->ffn_dim);
    linear_init(&layer->fc2, builder, "fc2", options->ffn_dim, options->dim);
    attn__nn_layer_norm_named(&layer->ffn_norm, builder, "layer_norm", options->dim, 0);
    attn_nn_pop(builder);
}

/* --------------------------------------------------------------------------------------------- on the tape */

/* Returns x plus the result y of a block after dropout. Each block is a scope of the tape. At the block's end, the
 * tape frees the data that the block's backward pass does not need. */
static attn_tensor *residual(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y)
{
    return attn_add(tape, x, attn_dropout(tape, y, layer->dropout));
}

static attn_tensor *feed_forward(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *h = attn_nn_layer_norm_forward(&layer->ffn_norm, tape, x);
    h = attn_linear(tape, h, layer->fc1.weight, layer->fc1.bias, ATTN_ACTIVATION_GELU_ERF);
    return attn_nn_linear_forward(&layer->fc2, tape, attn_dropout(tape, h, layer->activation_dropout));
}

static attn_tensor *recorded(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x, const attn_tensor *keep,
                             attn_tensor **row_weights, attn_tensor **column_weights)
{
    for (int i = 0; i < 2; i++) {
        const bool columns = (i == 1) != layer->columns_first;
        attn_tensor *h = attn_nn_layer_norm_forward(columns ? &layer->columns_norm : &layer->rows_norm, tape, x);
        attn_tensor *y = columns ? attn_nn_msa_attention_columns(&layer->columns, tape, h, keep, column_weights)
                                 : attn_nn_msa_attention_rows(&layer->rows, tape, h, keep, row_weights);
        x = residual(layer, tape, x, y);
    }
    return residual(layer, tape, x, feed_forward(layer, tape, x));
}

/* ------------------------------------------------------------------------------------------------ in place */

static int64_t tokens_of(const attn_tensor *x)
{
    return attn_tensor_size(x) / attn_tensor_length(x, -1);
}

int64_t attn__msa_heads_at_once(int64_t heads, int64_t tokens, int64_t max_tokens)
{
    if (max_tokens <= 0 || tokens <= max_tokens)
        return heads;
    int64_t most = (int64_t)((double)heads * (double)max_tokens / (double)tokens);
    int64_t groups = most > 0 ? (heads + most - 1) / most : heads;
    return (heads + groups - 1) / groups;
}

typedef struct attention_part {
    const attn_nn_msa_attention *attention;
    const attn_nn_layer_norm *norm;
    bool columns, maps_alone;
    attn_nn_take_maps take;
} attention_part;

/* Computes only the attention maps of the heads in `range`, without the attention's result. Passes the maps to
 * p->take. Returns false on failure. */
static bool take_maps(const attention_part *p, attn_tape *tape, const attn__token_source *h,
                      const attn__head_range *range, const attn_nn_msa_layer_run *run)
{
    attn_tensor *maps = attn__msa_maps(p->attention, tape, h, run->keep, p->columns, range);
    if (maps)
        p->take(run->user, range->first, maps);
    return maps != NULL;
}

/* Adds the output projection of the context o to x. o is the context of some heads. Only the columns of the
 * projection's weight that belong to these heads are used, beginning with `column`. The bias is added with the first
 * heads. */
static bool add_context(const attn_nn_linear *out, attn_tape *tape, attn_tensor *x, const attn_tensor *o,
                        int64_t column, const attn__packed *packed)
{
    return attn__linear_part_run(tape, &(attn__linear_part){.x = o,
                                                            .w = out->weight,
                                                            .column = column,
                                                            .b = column ? NULL : out->bias,
                                                            .add = true,
                                                            .packed = packed,
                                                            .y = x});
}

/* Does the same as add_context, in int8. It processes some tokens at a time, to limit the memory of the quantized
 * operands and of the sums. */
static bool add_quantized(const attn_nn_linear *out, attn_tape *tape, attn_tensor *x, attn_tensor *o, int64_t column)
{
    int64_t tokens = tokens_of(x), dim = attn_tensor_length(x, -1), wide = attn_tensor_length(o, -1);
    int64_t each = attn__tokens_at_once(attn_tape_context(tape), true);
    const float *w = (const float *)attn_tensor_data(out->weight) + column;
    attn__packed packed = {0};
    bool fine =
        attn__gemm_pack(tape, ATTN_F32, w, attn_tensor_length(out->weight, 1), dim, wide, false, &packed) == ATTN_OK;
    for (int64_t at = 0; at < tokens && fine; at += each) {
        int64_t n = each < tokens - at ? each : tokens - at;
        attn_scope_begin(tape);
        attn_tensor *to = attn__op_view(tape, x, at * dim, 2, (int64_t[]){n, dim});
        attn_tensor *part = attn__op_view(tape, o, at * wide, 2, (int64_t[]){n, wide});
        part = part && attn_tensor_dtype(part) == ATTN_BF16 ? attn__widened(tape, part) : part;
        fine = part && to && add_context(out, tape, to, part, column, &packed);
        attn_scope_end(tape, NULL);
    }
    attn__gemm_unpack(&packed);
    return fine;
}

static bool add_heads(const attention_part *p, attn_tape *tape, attn_tensor *x, const attn__token_source *h,
                      const attn__head_range *range, const attn_nn_msa_layer_run *run)
{
    int64_t column = range->first * (attn_tensor_length(h->x, -1) / p->attention->heads);
    attn_tensor *maps = NULL, **wanted = p->take ? &maps : NULL;
    attn_tensor *o = attn__msa_heads(p->attention, tape, h, run->keep, p->columns, range, wanted);
    if (maps)
        p->take(run->user, range->first, maps);
    if (o && tape->precision == ATTN_PRECISION_INT8)
        return add_quantized(&p->attention->out, tape, x, o, column);
    o = run->bf16 && o && attn_tensor_dtype(o) == ATTN_F32 ? attn__rounded(tape, o) : o;
    return add_context(&p->attention->out, tape, x, o, column, NULL);
}

static bool apply_attention(const attention_part *p, attn_tape *tape, attn_tensor *x, const attn_nn_msa_layer_run *run,
                            int64_t max_tokens)
{
    if (p->maps_alone && !p->take)
        return true;
    int64_t heads = p->attention->heads, each = attn__msa_heads_at_once(heads, tokens_of(x), max_tokens);
    bool fine = true;
    attn__token_source h = {x, p->norm, run->bf16};
    attn_scope_begin(tape);
    if (each < heads) { /* x changes after each group of heads, so the groups read a copy of the normalized x */
        h = (attn__token_source){attn__tokens_normalized(tape, &h), NULL, run->bf16};
        fine = h.x != NULL;
    }
    for (int64_t first = 0; first < heads && fine; first += each) {
        attn__head_range range = {first, each < heads - first ? each : heads - first};
        attn_scope_begin(tape);
        fine = p->maps_alone ? take_maps(p, tape, &h, &range, run) : add_heads(p, tape, x, &h, &range, run);
        attn_scope_end(tape, NULL);
    }
    attn_scope_end(tape, NULL);
    return fine;
}

bool attn_nn_msa_layer_apply(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                             const attn_nn_msa_layer_run *run)
{
    int64_t max_tokens = run->max_tokens > 0 ? run->max_tokens : layer->max_tokens;
    bool to_rows = run->end == ATTN_NN_MSA_ROW_MAPS, to_columns = run->end == ATTN_NN_MSA_COLUMN_MAPS;
    attention_part rows = {&layer->rows, &layer->rows_norm, false, to_rows, run->rows};
    attn__token_source feed = {x, &layer->ffn_norm, run->bf16};
    attention_part columns = {&layer->columns, &layer->columns_norm, true, to_columns, run->columns};
    if (attn_tape_mode(tape).record || attn_tape_mode(tape).train) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_ARGUMENT,
                   "axial layer: computing in place needs a tape that neither records nor trains");
        return false;
    }
    if (x && run->bf16 && attn_tensor_dtype(x) != ATTN_F32) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_ARGUMENT, "axial layer: bf16 needs f32 parameters, not %s",
                   attn_dtype_name(attn_tensor_dtype(x)));
        return false;
    }
    const attention_part *first = layer->columns_first ? &columns : &rows,
                         *second = layer->columns_first ? &rows : &columns;
    return x && apply_attention(first, tape, x, run, max_tokens) &&
           (first->maps_alone || apply_attention(second, tape, x, run, max_tokens)) &&
           (to_rows || to_columns || attn__tokens_feed_forward(tape, &feed, &layer->fc1, &layer->fc2, max_tokens));
}

/* ------------------------------------------------------------------------------------------------- either way */

/* The attention maps of all heads. The maps of each group of heads are copied to these tensors. Heads are the first
 * axis. */
typedef struct gathered {
    attn_tensor *rows, *columns;
} gathered;

static void keep_maps(attn_tensor *all, int64_t first, const attn_tensor *maps)
{
    int64_t each = attn_tensor_size(maps) / attn_tensor_length(maps, 0);
    size_t element = attn_dtype_size(attn_tensor_dtype(maps));
    if (all) {
        memcpy((char *)attn_tensor_data(all) + (size_t)(first * each) * element, attn_tensor_data(maps),
               (size_t)attn_tensor_size(maps) * element);
    }
}

static void keep_rows(void *user, int64_t first, const attn_tensor *maps)
{
    keep_maps(((gathered *)user)->rows, first, maps);
}

static void keep_columns(void *user, int64_t first, const attn_tensor *maps)
{
    keep_maps(((gathered *)user)->columns, first, maps);
}

static attn_tensor *applied(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x, const attn_tensor *keep,
                            attn_tensor **row_weights, attn_tensor **column_weights)
{
    gathered maps = {0};
    int64_t heads = layer->rows.heads, r = attn_tensor_length(x, 0), c = attn_tensor_length(x, 1),
            b = attn_tensor_length(x, 2);
    attn_dtype dtype = attn_tensor_dtype(x);
    attn_nn_msa_layer_run run = {.keep = keep, .user = &maps};
    if (row_weights) {
        run.rows = keep_rows;
        *row_weights = maps.rows = layer->rows.untied
                                       ? attn_tape_tensor(tape, dtype, 5, (int64_t[]){heads, r, b, c, c}, NULL)
                                       : attn_tape_tensor(tape, dtype, 4, (int64_t[]){heads, b, c, c}, NULL);
    }
    if (column_weights) {
        run.columns = keep_columns;
        *column_weights = maps.columns = attn_tape_tensor(tape, dtype, 5, (int64_t[]){heads, c, b, r, r}, NULL);
    }
    attn_tensor *y = attn_tape_tensor(tape, dtype, 4, attn_tensor_shape(x), attn_tensor_data(x));
    return attn_nn_msa_layer_apply(layer, tape, y, &run) ? y : NULL;
}

attn_tensor *attn_nn_msa_layer_forward(const attn_nn_msa_layer *layer, attn_tape *tape, attn_tensor *x,
                                       const attn_tensor *keep, attn_tensor **row_weights, attn_tensor **column_weights)
{
    attn_tape_options mode = attn_tape_mode(tape);
    if (!attn__nn_has_rank(tape, x, 4, "alignment"))
        return NULL;
    if (mode.record || mode.train)
        return recorded(layer, tape, x, keep, row_weights, column_weights);
    return applied(layer, tape, x, keep, row_weights, column_weights);
}
