/* SPDX-License-Identifier: MIT
 *
 * Implements linear layers that process some tokens at a time. The normalized tokens, and the hidden channels between
 * two layers, are read again while they are in the last-level cache. They are never stored for all tokens.
 */
#include "nn/token_parts.h"

#include "base/integers.h"
#include "kernels/bf16x3/bf16x3.h"
#include "tensor/op.h"
#include "tensor/packed_weights.h"

enum { FEW = 64, MOST = 3 }; /* FEW: up to this number of tokens, products are faster if the weights are not packed */

static bool in_parts(const attn_context *context, bool bf16)
{
    return !bf16 && attn__bf16x3_for(context->isa);
}

double attn__tokens_packed(const attn_context *context, bool bf16)
{
    return in_parts(context, bf16) ? ATTN__BF16X3_F32 * (double)sizeof(uint16_t) / (double)sizeof(float) : 1;
}

enum { LEAST_AT_ONCE = 1024, MOST_AT_ONCE = 4096 };

/* The number is larger on AMX: all threads wait for the thread that computes the last rows, which with 1,024 rows costs
 * an eighth of the time. */
int64_t attn__tokens_at_once(const attn_context *context, bool bf16)
{
    return in_parts(context, bf16) ? MOST_AT_ONCE : LEAST_AT_ONCE;
}

int64_t attn__tokens_hidden(const attn_context *context, bool bf16, int64_t tokens, int64_t dim, int64_t wide)
{
    int64_t fit = tokens / attn__ceil_div(wide, dim);
    return attn__min(attn__max(fit, LEAST_AT_ONCE), attn__tokens_at_once(context, bf16));
}

static int64_t tokens_of(const attn_tensor *x)
{
    return attn_tensor_size(x) / attn_tensor_length(x, -1);
}

static attn_tensor *flat(attn_tape *tape, attn_tensor *x)
{
    return attn__op_view(tape, x, 0, 2, (int64_t[]){tokens_of(x), attn_tensor_length(x, -1)});
}

/* Reports whether tokens are rounded to bf16. With int8 precision they are not rounded, because int8 quantizes each
 * row of f32 tokens. */
static bool rounds(const attn_tape *tape, const attn__token_source *source)
{
    return source->bf16 && tape->precision != ATTN_PRECISION_INT8;
}

static attn_tensor *normalized(const attn__token_source *source, attn_tape *tape, attn_tensor *part)
{
    attn_tensor *h = source->norm ? attn_nn_layer_norm_forward(source->norm, tape, part) : part;
    return rounds(tape, source) && h && attn_tensor_dtype(h) == ATTN_F32 ? attn__rounded(tape, h) : h;
}

attn_tensor *attn__tokens_normalized(attn_tape *tape, const attn__token_source *source)
{
    attn_scope_begin(tape);
    return attn_scope_end(tape, normalized(source, tape, source->x));
}

/* Packs the weights for the products of all parts. If the weights cannot be packed, does nothing and returns true.
 * Returns false if there is no memory. */
static bool pack(attn_tape *tape, const attn_nn_linear *linear, int64_t row, int64_t rows, bool bf16,
                 attn__packed *packed)
{
    const attn_tensor *w = linear->weight;
    int64_t in = attn_tensor_length(w, 1);
    bool rounded;
    const void *from = attn__weight_rows(tape, w, &rounded);
    if (attn_tensor_dtype(w) != ATTN_F32)
        return true;
    if (!from)
        return false;
    return (rounded ? attn__gemm_pack_rounded(tape, (const uint16_t *)from + row * in, in, rows, in, packed)
                    : attn__gemm_pack(tape, bf16 ? ATTN_BF16 : ATTN_F32, (const float *)from + row * in, in, rows, in,
                                      false, packed)) == ATTN_OK;
}

static bool project_part(attn_tape *tape, const attn__token_source *source, attn_tensor *x, int64_t begin, int64_t end,
                         int n, const attn__token_linear *linears, attn_tensor *const *y, const attn__packed *packed)
{
    attn_tensor *h = normalized(source, tape, attn__part_of(tape, x, begin, end));
    bool fine = h != NULL;
    for (int i = 0; i < n && fine; i++) {
        attn__linear_part part = {.x = h,
                                  .w = linears[i].linear->weight,
                                  .b = linears[i].linear->bias,
                                  .row = linears[i].row,
                                  .packed = &packed[i],
                                  .y = attn__part_of(tape, y[i], begin, end)};
        fine = attn__linear_part_run(tape, &part);
    }
    return fine;
}

bool attn__tokens_project(attn_tape *tape, const attn__token_source *source, int n, const attn__token_linear *linears)
{
    attn__packed packed[MOST] = {0};
    attn_tensor *y[MOST], *x = flat(tape, source->x);
    int64_t tokens = tokens_of(source->x), each = attn__tokens_at_once(tape->context, source->bf16);
    bool fine = x != NULL;
    for (int i = 0; i < n && fine; i++) {
        y[i] = flat(tape, linears[i].y);
        fine = y[i] && ((tokens <= FEW && !source->bf16) ||
                        pack(tape, linears[i].linear, linears[i].row, attn_tensor_length(y[i], 1), rounds(tape, source),
                             &packed[i]));
    }
    for (int64_t at = 0; at < tokens && fine; at += each) {
        attn_scope_begin(tape);
        fine = project_part(tape, source, x, at, attn__min(at + each, tokens), n, linears, y, packed);
        attn_scope_end(tape, NULL);
    }
    for (int i = 0; i < n; i++)
        attn__gemm_unpack(&packed[i]);
    return fine;
}

/* Adds the feed-forward network's result to x. x holds the tokens of one part. */
static bool feed_part(attn_tape *tape, const attn__token_source *source, attn_tensor *x, const attn_nn_linear *fc1,
                      const attn_nn_linear *fc2, const attn__packed packed[2])
{
    attn_tensor *h = normalized(source, tape, x);
    attn__linear_part wide = {
        .x = h, .w = fc1->weight, .b = fc1->bias, .packed = &packed[0], .activation = ATTN_ACTIVATION_GELU_ERF};
    h = attn__linear_new(tape, &wide, attn_tensor_length(fc1->weight, 0),
                         rounds(tape, source) ? ATTN_BF16 : attn_tensor_dtype(x));
    return attn__linear_part_run(
        tape,
        &(attn__linear_part){.x = h, .w = fc2->weight, .b = fc2->bias, .packed = &packed[1], .add = true, .y = x});
}

bool attn__tokens_feed_forward(attn_tape *tape, const attn__token_source *source, const attn_nn_linear *fc1,
                               const attn_nn_linear *fc2, int64_t max_tokens)
{
    int64_t tokens = tokens_of(source->x), dim = attn_tensor_length(source->x, -1);
    int64_t each = attn__tokens_hidden(tape->context, source->bf16, tokens, dim, attn_tensor_length(fc1->weight, 0));
    attn_tensor *x = flat(tape, source->x);
    attn__packed packed[2] = {0};
    each = max_tokens > 0 ? attn__min(max_tokens, each) : each;
    bool narrow = rounds(tape, source), fine = x != NULL, many = source->bf16 || (tokens > FEW && each > FEW);
    fine = fine && (!many || (pack(tape, fc1, 0, attn_tensor_length(fc1->weight, 0), narrow, &packed[0]) &&
                              pack(tape, fc2, 0, attn_tensor_length(fc2->weight, 0), narrow, &packed[1])));
    for (int64_t at = 0; at < tokens && fine; at += each) {
        attn_scope_begin(tape);
        attn_tensor *part = attn__part_of(tape, x, at, attn__min(at + each, tokens));
        fine = part && feed_part(tape, source, part, fc1, fc2, packed);
        attn_scope_end(tape, NULL);
    }
    attn__gemm_unpack(&packed[0]);
    attn__gemm_unpack(&packed[1]);
    return fine;
}
