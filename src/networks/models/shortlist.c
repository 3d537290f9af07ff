/* SPDX-License-Identifier: MIT */
#include "models/shortlist.h"

#include "base/context.h"
#include "tensor/op.h"
#include "tensor/matrix_product.h"
#include "tensor/packed_weights.h"

#include <string.h>

static bool is_allowed(const attn_beam_sentence *s, int32_t token)
{
    int64_t low = 0, high = s->nallowed;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (s->allowed[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->nallowed && s->allowed[low] == token;
}

static attn_status check(attn_context *context, int64_t batch, int64_t vocabulary, const attn_beam_search_options *o)
{
    for (int64_t i = 0; i < batch; i++) {
        const attn_beam_sentence *s = &o->sentences[i];
        for (int64_t j = 0; j < s->nallowed; j++) {
            int32_t token = s->allowed[j];
            if (token < 0 || token >= vocabulary) {
                return attn__fail(
                    context, ATTN_ERROR_ARGUMENT,
                    "sentence %lld of the batch: the allowed token %d is not one of the %lld target tokens",
                    (long long)i + 1, (int)token, (long long)vocabulary);
            }
            if (j > 0 && token <= s->allowed[j - 1]) {
                return attn__fail(
                    context, ATTN_ERROR_ARGUMENT,
                    "sentence %lld of the batch: the allowed token %d follows %d; allowed tokens must ascend",
                    (long long)i + 1, (int)token, (int)s->allowed[j - 1]);
            }
        }
        if (!is_allowed(s, o->eos)) {
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "sentence %lld of the batch: its allowed tokens lack the end token, %d", (long long)i + 1,
                              (int)o->eos);
        }
        for (int64_t j = 0; j < s->nprefix; j++) {
            if (!is_allowed(s, s->prefix[j])) {
                return attn__fail(context, ATTN_ERROR_ARGUMENT,
                                  "sentence %lld of the batch: its allowed tokens lack the token %d of its given "
                                  "beginning",
                                  (long long)i + 1, (int)s->prefix[j]);
            }
        }
    }
    return ATTN_OK;
}

/* Fills list->tokens, and the columns of each sentence. `place` [vocabulary] must be zero before. It gets the index
 * in the list of each token of the list. */
static attn_status collect(attn__shortlist *list, int64_t batch, const attn_beam_search_options *o, int32_t *place)
{
    int64_t all = 0;
    for (int64_t i = 0; i < batch; i++) {
        list->first[i] = all;
        all += o->sentences[i].nallowed;
        for (int64_t j = 0; j < o->sentences[i].nallowed; j++)
            place[o->sentences[i].allowed[j]] = 1;
    }
    list->first[batch] = all;
    list->columns = attn__alloc(list->context, attn__size_mul((size_t)all, sizeof *list->columns));
    for (int64_t token = 0; list->columns && token < list->vocabulary; token++) {
        if (place[token]) {
            place[token] = (int32_t)list->n;
            list->tokens[list->n++] = (int32_t)token;
        }
    }
    for (int64_t i = 0; list->columns && i < batch; i++)
        for (int64_t j = 0; j < o->sentences[i].nallowed; j++)
            list->columns[list->first[i] + j] = place[o->sentences[i].allowed[j]];
    return list->columns ? ATTN_OK : ATTN_ERROR_MEMORY;
}

attn_status attn__shortlist_create(attn__shortlist *list, attn_context *context, int64_t batch, int64_t vocabulary,
                                   const attn_beam_search_options *options)
{
    *list = (attn__shortlist){.context = context, .vocabulary = vocabulary};
    bool limited = false;
    for (int64_t i = 0; options->sentences && i < batch; i++)
        limited = limited || options->sentences[i].allowed;
    if (!limited)
        return ATTN_OK;
    attn_status status = check(context, batch, vocabulary, options);
    if (status != ATTN_OK)
        return status;
    size_t size = attn__size_mul((size_t)vocabulary, sizeof(int32_t));
    int32_t *place = attn__alloc_zero(context, size);
    list->tokens = attn__alloc(context, size);
    list->first = attn__alloc(context, attn__size_mul((size_t)batch + 1, sizeof *list->first));
    status = place && list->tokens && list->first ? collect(list, batch, options, place) : ATTN_ERROR_MEMORY;
    attn__free(context, place);
    return status;
}

void attn__shortlist_destroy(attn__shortlist *list, attn_tape *tape)
{
    if (list->rows.weight)
        attn__packed_weights_forget(tape, list->rows.weight);
    attn_tensor_destroy(list->rows.weight);
    attn_tensor_destroy(list->rows.bias);
    attn__free(list->context, list->tokens);
    attn__free(list->context, list->columns);
    attn__free(list->context, list->first);
    *list = (attn__shortlist){0};
}

/* Copies those rows of x [vocabulary,...] that belong to tokens of the list. */
static attn_tensor *copy_rows(const attn__shortlist *list, const attn_tensor *x)
{
    attn_tensor *y = NULL;
    int64_t shape[2] = {list->n, attn_tensor_rank(x) > 1 ? attn_tensor_length(x, 1) : 1};
    size_t row = (size_t)shape[1] * attn_dtype_size(attn_tensor_dtype(x));
    if (attn_tensor_create(&y, list->context, attn_tensor_dtype(x), attn_tensor_rank(x), shape) != ATTN_OK)
        return NULL;
    for (int64_t i = 0; i < list->n; i++) {
        char *to = (char *)attn_tensor_data(y) + (size_t)i * row;
        if (attn__op_is_packed(x, NULL))
            attn__gemm_packed_row(list->context, x->packed, list->tokens[i], to);
        else
            memcpy(to, (const char *)attn_tensor_data(x) + (size_t)list->tokens[i] * row, row);
    }
    return y;
}

static bool copy_layer(attn__shortlist *list, const attn_nn_linear *layer)
{
    if (attn__op_is_adapted(layer->weight)) {
        attn__fail(list->context, ATTN_ERROR_UNSUPPORTED,
                   "the output layer has an adapter, so a shortlist cannot be used");
        return false;
    }
    list->rows.weight = copy_rows(list, layer->weight);
    if (list->rows.weight && layer->bias)
        list->rows.bias = copy_rows(list, layer->bias);
    return list->rows.weight && (list->rows.bias || !layer->bias);
}

attn_tensor *attn__shortlist_output(attn__shortlist *list, attn_tape *tape, const attn_nn_linear *layer, attn_tensor *x)
{
    if (!list || list->n == list->vocabulary)
        return attn_nn_linear_forward(layer, tape, x);
    if (!list->rows.weight && !copy_layer(list, layer))
        return NULL;
    return attn_nn_linear_forward(&list->rows, tape, x);
}
