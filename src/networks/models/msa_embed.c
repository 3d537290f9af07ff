/* SPDX-License-Identifier: MIT
 *
 * Computes the first layer's input from tokens. */
#include "models/msa_model.h"

#include "base/context.h"
#include "tensor/tape_state.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------- checks */

/* Checks that no row of an alignment is longer than its first row. This is required because row attention masks keys
 * only by the padding of the first row, as in the code for which the published weights were made. */
static bool first_rows_are_longest(attn_tape *tape, const attn__msa_tokens *t)
{
    const uint8_t *keep = t->keep ? attn_tensor_data(t->keep) : NULL;
    int64_t map = t->rows * t->cols;
    for (int64_t i = 0; keep && i < t->batch * map; i++) {
        if (keep[i] && !keep[i / map * map + i % t->cols]) {
            attn__fail(
                attn_tape_context(tape), ATTN_ERROR_ARGUMENT,
                "alignment %lld: column %lld is padding in the first row but not in row %lld; the first row must be the "
                "longest",
                (long long)(i / map), (long long)(i % t->cols), (long long)(i % map / t->cols));
            return false;
        }
    }
    return true;
}

bool attn__msa_sizes_fit(const attn__msa *msa, attn_context *context, int64_t batch, int64_t rows, int64_t cols)
{
    if (batch < 1 || rows < 1 || cols < 1) {
        attn__fail(context, ATTN_ERROR_SHAPE,
                   "tokens: expected at least one alignment, row and column, found [%lld,%lld,%lld]", (long long)batch,
                   (long long)rows, (long long)cols);
    } else if (cols > msa->max_positions) {
        attn__fail(context, ATTN_ERROR_SHAPE,
                   "a row has %lld tokens, but the model has positions for at most %lld: <cls> and %lld residues",
                   (long long)cols, (long long)msa->max_positions, (long long)msa->max_positions - 1);
    } else if (msa->msa_positions && rows > attn_tensor_length(msa->msa_positions, 1)) {
        attn__fail(
            context, ATTN_ERROR_SHAPE,
            "the alignment has %lld rows, but the model has positions for at most %lld: take a part of the alignment",
            (long long)rows, (long long)attn_tensor_length(msa->msa_positions, 1));
    } else {
        return true;
    }
    return false;
}

bool attn__msa_tokens_check(const attn__msa *msa, attn_tape *tape, const attn_tensor *ids, attn__msa_tokens *tokens)
{
    attn_context *context = attn_tape_context(tape);
    *tokens = (attn__msa_tokens){.ids = ids};
    if (!ids || attn_tensor_rank(ids) != 3 || attn_tensor_dtype(ids) != ATTN_I32) {
        attn__fail(context, ATTN_ERROR_SHAPE, "tokens: expected i32 [alignments,rows,columns], found %s of %d axes",
                   ids ? attn_dtype_name(attn_tensor_dtype(ids)) : "none", ids ? attn_tensor_rank(ids) : 0);
        return false;
    }
    tokens->batch = attn_tensor_length(ids, 0);
    tokens->rows = attn_tensor_length(ids, 1);
    tokens->cols = attn_tensor_length(ids, 2);
    if (!attn__msa_sizes_fit(msa, context, tokens->batch, tokens->rows, tokens->cols))
        return false;
    const int32_t *id = attn_tensor_data(ids);
    int64_t n = attn_tensor_size(ids), kept = 0;
    attn_tensor *keep = attn_tape_tensor(tape, ATTN_U8, 3, attn_tensor_shape(ids), NULL);
    if (!keep)
        return false;
    for (int64_t i = 0; i < n; i++)
        kept += ((uint8_t *)attn_tensor_data(keep))[i] = id[i] != ATTN__MSA_PAD;
    tokens->keep = kept < n ? keep : NULL; /* NULL if there is no padding, because attention without a mask is faster */
    return first_rows_are_longest(tape, tokens);
}

int64_t attn__msa_columns(const attn__msa_tokens *tokens, int64_t b)
{
    int64_t cols = tokens->cols;
    const uint8_t *keep = tokens->keep ? attn_tensor_data(tokens->keep) : NULL;
    while (keep && cols > 0 && !keep[b * tokens->rows * tokens->cols + cols - 1])
        cols--;
    return cols;
}

/* ---------------------------------------------------------------------------------------------- embedding */

/* Returns the positions of the tokens, as in fairseq. The tokens that are not padding are counted from padding_idx +
 * 1. So <cls> has position 2, and padding has position 1. */
static attn_tensor *positions_of(attn_tape *tape, const attn_tensor *ids)
{
    attn_tensor *positions = attn_tape_tensor(tape, ATTN_I32, attn_tensor_rank(ids), attn_tensor_shape(ids), NULL);
    int64_t cols = attn_tensor_length(ids, -1);
    const int32_t *id = attn_tensor_data(ids);
    int32_t *position = positions ? attn_tensor_data(positions) : NULL, count = 0;
    for (int64_t i = 0; position && i < attn_tensor_size(ids); i++) {
        count = i % cols ? count : 0;
        count += id[i] != ATTN__MSA_PAD;
        position[i] = id[i] == ATTN__MSA_PAD ? ATTN__MSA_PAD : count + ATTN__MSA_PAD;
    }
    return positions;
}

/* Embeds the tokens `ids` [B,n,C]. `first` is the index in the alignments of the first of the n rows. Returns
 * [B,n,C,D], in which padding is not yet zero. */
static attn_tensor *embed_rows(const attn__msa *msa, attn_tape *tape, const attn_tensor *ids, int64_t first)
{
    attn_tensor *x = attn_nn_embedding_forward(&msa->embed_tokens, tape, ids);
    x = attn_add(tape, x, attn_nn_embedding_forward(&msa->embed_positions, tape, positions_of(tape, ids)));
    if (msa->msa_positions)
        x = attn_add(tape, x, attn_slice(tape, msa->msa_positions, 1, first, first + attn_tensor_length(ids, 1)));
    return attn_dropout(tape, attn_nn_layer_norm_forward(&msa->norm_before, tape, x), msa->dropout);
}

static attn_tensor *embed_all(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *t)
{
    attn_tensor *x = embed_rows(msa, tape, t->ids, 0);
    if (x && t->keep) {
        attn_tensor *factor = attn_cast(tape, t->keep, attn_tensor_dtype(x));
        x = attn_mul(tape, x, attn_reshape(tape, factor, 4, (int64_t[]){t->batch, t->rows, t->cols, 1}));
    }
    return attn_permute(tape, x, (int[]){1, 2, 0, 3});
}

/* Copies y [1,1,C,D], the embedding of row `row` of alignment `b`, into x [R,C,B,D]. Padding is not copied. */
static void put_row(const attn__msa_tokens *t, int64_t b, int64_t row, const attn_tensor *y, attn_tensor *x)
{
    size_t bytes = (size_t)attn_tensor_length(x, 3) * attn_dtype_size(attn_tensor_dtype(x));
    const int32_t *id = (const int32_t *)attn_tensor_data(t->ids) + (b * t->rows + row) * t->cols;
    for (int64_t col = 0; col < t->cols; col++) {
        char *to = (char *)attn_tensor_data(x) + (size_t)((row * t->cols + col) * t->batch + b) * bytes;
        if (id[col] != ATTN__MSA_PAD) /* padding is not written, because x is zero initially */
            memcpy(to, (const char *)attn_tensor_data(y) + (size_t)col * bytes, bytes);
    }
}

/* Embeds one row at a time. If all rows were embedded at once, the intermediate sums would need five times the
 * memory of the result. */
static attn_tensor *embed_in_parts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *t)
{
    attn_dtype dtype = attn_tensor_dtype(msa->embed_tokens.weight);
    attn_tensor *x = attn_tape_tensor(tape, dtype, 4, (int64_t[]){t->rows, t->cols, t->batch, msa->dim}, NULL);
    bool fine = x != NULL;
    for (int64_t i = 0; i < t->batch * t->rows && fine; i++) {
        const int32_t *id = (const int32_t *)attn_tensor_data(t->ids) + i * t->cols;
        attn_scope_begin(tape);
        attn_tensor *ids = attn_tape_tensor(tape, ATTN_I32, 3, (int64_t[]){1, 1, t->cols}, id);
        attn_tensor *y = ids ? embed_rows(msa, tape, ids, i % t->rows) : NULL;
        fine = y != NULL;
        if (fine)
            put_row(t, i / t->rows, i % t->rows, y, x);
        attn_scope_end(tape, NULL);
    }
    return fine ? x : NULL;
}

attn_tensor *attn__msa_embed(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens)
{
    attn_tape_options mode = attn_tape_mode(tape);
    return mode.record || mode.train ? embed_all(msa, tape, tokens) : embed_in_parts(msa, tape, tokens);
}
