/* SPDX-License-Identifier: MIT
 *
 * Implements the KV cache, which holds the keys and values of earlier tokens during decoding.
 */
#include "nn/check.h"

#include "base/context.h"
#include "base/integers.h"
#include "base/system.h"
#include "tensor/linear_part.h"
#include "tensor/op.h"

#include <inttypes.h>
#include <string.h>

attn_status attn_nn_kv_cache_init(attn_nn_kv_cache *cache, attn_context *context, attn_dtype dtype, int64_t rows,
                                  int64_t capacity, int64_t dim)
{
    int64_t shape[3] = {rows, capacity, dim};
    *cache = (attn_nn_kv_cache){0};
    attn_status status = attn_tensor_create(&cache->k, context, dtype, 3, shape);
    if (status == ATTN_OK)
        status = attn_tensor_create(&cache->v, context, dtype, 3, shape);
    if (status != ATTN_OK)
        attn_nn_kv_cache_free(cache);
    return status;
}

/* Frees a tensor of the cache. Its memory pages are first returned to the system. Otherwise the allocator may keep
 * the freed memory, although the larger cache that replaces this one does not fit into it. */
static void destroy(attn_tensor *x)
{
    if (x && x->storage && atomic_load(&x->storage->refs) == 1)
        attn__system_drop_pages(attn__storage_data(x->storage), x->storage->size);
    attn_tensor_destroy(x);
}

void attn_nn_kv_cache_free(attn_nn_kv_cache *cache)
{
    destroy(cache->k);
    destroy(cache->v);
    *cache = (attn_nn_kv_cache){0};
}

static size_t token_bytes(const attn_tensor *x)
{
    return (size_t)attn_tensor_length(x, 2) * attn_dtype_size(attn_tensor_dtype(x));
}

/* Appends the tokens of `from` to each row of `to`, after the row's first `length` tokens. Each row has room for
 * later tokens, so appending a token needs only one short copy per row. */
static void copy_behind(attn_tensor *to, int64_t length, const attn_tensor *from)
{
    size_t token = token_bytes(to);
    size_t room = token * (size_t)attn_tensor_length(to, 1), run = token * (size_t)attn_tensor_length(from, 1);
    char *out = (char *)attn_tensor_data(to) + token * (size_t)length;
    const char *in = attn_tensor_data(from);
    for (int64_t row = 0; row < attn_tensor_length(to, 0); row++)
        memcpy(out + (size_t)row * room, in + (size_t)row * run, run);
}

/* Does the same as copy_behind for an F32 `from` and a BF16 `to`: rounds the tokens to bf16. */
static void round_behind(attn_tensor *to, int64_t length, const attn_tensor *from)
{
    int64_t dim = attn_tensor_length(to, 2), room = dim * attn_tensor_length(to, 1);
    int64_t run = dim * attn_tensor_length(from, 1);
    uint16_t *out = (uint16_t *)attn_tensor_data(to) + dim * length;
    const float *in = from->data;
    for (int64_t row = 0; row < attn_tensor_length(to, 0); row++, out += room, in += run)
        attn__round_to_bf16(to->context, in, run, out);
}

/* Rounds keys or values to bf16 before they are stored. Attention would otherwise round them at each step. */
static void round_once(const attn_tape *tape, attn_tensor *x)
{
    if (attn__rounds(tape) && x->dtype == ATTN_F32)
        attn__elementwise_run(tape, ATTN_F32, ATTN__ELEMENTWISE_ROUND,
                              &(attn__elementwise_args){.x = x->data, .y = x->data}, x->size, 1);
}

static void note_rounding(const attn_tape *tape, attn_tensor *kept, int64_t length)
{
    kept->rounded = attn__rounds(tape) && kept->dtype == ATTN_F32 && (length == 0 || kept->rounded);
}

static void keep(const attn_tape *tape, attn_tensor *to, int64_t length, attn_tensor *from)
{
    if (to->dtype == ATTN_BF16 && from->dtype == ATTN_F32) {
        round_behind(to, length, from);
        return;
    }
    round_once(tape, from);
    copy_behind(to, length, from);
    note_rounding(tape, to, length);
}

attn_status attn_nn_multi_head_append(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *x,
                                      attn_nn_kv_cache *cache)
{
    attn_context *context = attn_tape_context(tape);
    if (!attn__nn_has_rank(tape, x, 3, "what a cache keeps"))
        return attn__result_status(context, NULL);
    int64_t n = attn_tensor_length(x, 1), room = attn_tensor_length(cache->k, 1) - cache->length;
    if (attn_tensor_length(x, 0) != attn_tensor_length(cache->k, 0)) {
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "tokens of %" PRId64 " rows cannot be appended to a cache of %" PRId64 " rows",
                          attn_tensor_length(x, 0), attn_tensor_length(cache->k, 0));
    }
    if (n > room) {
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "%" PRId64 " tokens cannot be appended to a cache with room for %" PRId64 " more tokens", n,
                          room);
    }
    attn_dtype type = attn_tensor_dtype(x), kept = attn_tensor_dtype(cache->k);
    if (attn_tensor_length(cache->k, 2) != layer->hidden) {
        return attn__fail(context, ATTN_ERROR_SHAPE, "the layer has %" PRId64 " channels, but the cache has %" PRId64,
                          layer->hidden, attn_tensor_length(cache->k, 2));
    }
    if (kept != type && (kept != ATTN_BF16 || type != ATTN_F32)) {
        return attn__fail(context, ATTN_ERROR_SHAPE, "tokens of type %s cannot be appended to a cache of type %s",
                          attn_dtype_name(type), attn_dtype_name(kept));
    }
    attn_tensor *k = attn_nn_linear_forward(&layer->w_k, tape, x);
    attn_tensor *v = attn_nn_linear_forward(&layer->w_v, tape, x);
    if (!k || !v)
        return attn__result_status(context, NULL);
    keep(tape, cache->k, cache->length, k);
    keep(tape, cache->v, cache->length, v);
    cache->length += n;
    return ATTN_OK;
}

/* Copies n rows of `from` to `to`. Row i of `to` becomes row rows[i] of `from`, or row i if `rows` is NULL. `to` and
 * `from` may be the same tensor if rows move only to lower indices. */
static void copy_rows(attn_tensor *to, const attn_tensor *from, const int64_t *rows, int64_t n, int64_t length)
{
    size_t token = token_bytes(to), used = token * (size_t)length;
    size_t out_row = token * (size_t)attn_tensor_length(to, 1), in_row = token * (size_t)attn_tensor_length(from, 1);
    char *out = attn_tensor_data(to);
    const char *in = attn_tensor_data(from);
    for (int64_t i = 0; i < n; i++)
        memmove(out + (size_t)i * out_row, in + (size_t)(rows ? rows[i] : i) * in_row, used);
}

/* Reports whether the indices `rows` are strictly ascending. If they are, rows can be copied in place one by one,
 * and no copy overwrites a row that is still needed. */
static bool moves_forward(const int64_t *rows, int64_t n)
{
    bool forward = true;
    for (int64_t i = 0; rows && i < n; i++)
        forward = forward && rows[i] >= i && (i == 0 || rows[i] > rows[i - 1]);
    return forward;
}

static void shorten(attn_tensor *x, int64_t rows)
{
    x->shape[0] = rows;
    x->size = rows * x->shape[1] * x->shape[2];
}

static attn_status select_apart(attn_nn_kv_cache *cache, attn_context *context, const int64_t *rows, int64_t n,
                                int64_t capacity)
{
    attn_nn_kv_cache chosen;
    attn_status status = attn_nn_kv_cache_init(&chosen, context, attn_tensor_dtype(cache->k), n, capacity,
                                               attn_tensor_length(cache->k, 2));
    if (status != ATTN_OK)
        return status;
    copy_rows(chosen.k, cache->k, rows, n, cache->length);
    copy_rows(chosen.v, cache->v, rows, n, cache->length);
    chosen.length = cache->length;
    chosen.k->rounded = cache->k->rounded;
    chosen.v->rounded = cache->v->rounded;
    attn_nn_kv_cache_free(cache);
    *cache = chosen;
    return ATTN_OK;
}

attn_status attn_nn_kv_cache_select(attn_nn_kv_cache *cache, attn_context *context, const int64_t *rows, int64_t n,
                                    int64_t capacity)
{
    int64_t had = attn_tensor_length(cache->k, 0);
    if (capacity < cache->length) {
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "a cache with %" PRId64 " tokens cannot be changed to have room for only %" PRId64,
                          cache->length, capacity);
    }
    if (!rows && n > had) {
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "the first %" PRId64 " rows of a cache are requested, but the cache has %" PRId64 " rows", n,
                          had);
    }
    if (n > had || capacity != attn_tensor_length(cache->k, 1) || !moves_forward(rows, n))
        return select_apart(cache, context, rows, n, capacity);
    copy_rows(cache->k, cache->k, rows, n, cache->length);
    copy_rows(cache->v, cache->v, rows, n, cache->length);
    shorten(cache->k, n);
    shorten(cache->v, n);
    return ATTN_OK;
}

/* Copies n tokens of a row of x to row `place` of `spare`. If `back` is true, copies from `spare` to x. */
static void move_tokens(attn_tensor *x, attn_tensor *spare, int64_t row, int64_t at, int64_t n, int64_t place,
                        bool back)
{
    size_t token = token_bytes(x);
    char *in = (char *)attn_tensor_data(x) + token * (size_t)(row * attn_tensor_length(x, 1) + at);
    char *out = (char *)attn_tensor_data(spare) + token * (size_t)(place * attn_tensor_length(spare, 1));
    memcpy(back ? in : out, back ? out : in, token * (size_t)n);
}

/* Copies tokens in x from row rows[i] to row i, for each i. The first shared[i] tokens of both rows are equal and
 * are not copied. The tokens are processed in groups that fit `spare`: a group is copied from all rows to `spare`,
 * and then back to the new rows. */
static void move_rows(attn_tensor *x, attn_tensor *spare, const int64_t *rows, const int64_t *shared, int64_t length)
{
    int64_t room = attn_tensor_length(spare, 1), n = attn_tensor_length(x, 0);
    for (int64_t first = 0; first < length; first += room) {
        int64_t end = attn__min(first + room, length);
        for (int back = 0; back < 2; back++) {
            for (int64_t i = 0; i < n; i++) {
                int64_t at = attn__max(first, shared ? shared[i] : 0);
                if (rows[i] != i && at < end)
                    move_tokens(x, spare, back ? i : rows[i], at, end - at, i, back);
            }
        }
    }
}

void attn_nn_kv_cache_reorder(attn_nn_kv_cache *cache, attn_nn_kv_cache *spare, const int64_t *rows,
                              const int64_t *shared)
{
    move_rows(cache->k, spare->k, rows, shared, cache->length);
    move_rows(cache->v, spare->k, rows, shared, cache->length);
}
