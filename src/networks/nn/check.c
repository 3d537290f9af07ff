/* SPDX-License-Identifier: MIT */
#include "nn/check.h"

#include "base/context.h"
#include "tensor/tensor.h"

#include <inttypes.h>

bool attn__nn_has_rank(attn_tape *tape, const attn_tensor *x, int rank, const char *what)
{
    if (x && attn_tensor_rank(x) != rank) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "%s: expected %d axes, found %d", what, rank,
                   attn_tensor_rank(x));
    }
    return x && attn_tensor_rank(x) == rank;
}

bool attn__nn_has_channels(attn_tape *tape, const char *what, const attn_tensor *x, int rank, int axis,
                           int64_t channels)
{
    if (!attn__nn_has_rank(tape, x, rank, what))
        return false;
    int64_t found = attn_tensor_length(x, axis);
    if (found != channels)
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "%s: expected %" PRId64 " channels in axis %d (counted from 0), found %" PRId64, what, channels,
                   axis, found);
    return found == channels;
}

bool attn__nn_positions_fit(attn_tape *tape, const char *what, const attn_tensor *x, const attn_tensor *positions)
{
    if (!positions)
        return true;
    const int64_t *n = attn_tensor_shape(x), *p = attn_tensor_shape(positions);
    char found[ATTN__SHAPE_TEXT];
    if (attn_tensor_rank(positions) == 3 && (p[0] == 1 || p[0] == n[0]) && p[1] == n[1] && p[2] == n[2])
        return true;
    attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
               "%s: expected [1,%" PRId64 ",%" PRId64 "] or [%" PRId64 ",%" PRId64 ",%" PRId64 "], found %s", what,
               n[1], n[2], n[0], n[1], n[2], attn__shape_text(positions, found));
    return false;
}

int attn__nn_lens_per(const attn_nn_mask *mask)
{
    return mask && mask->valid_lens ? attn_tensor_rank(mask->valid_lens) : 0;
}

bool attn__nn_lens_fit(attn_tape *tape, const attn_nn_mask *mask, int64_t batch, int64_t queries)
{
    attn_context *context = attn_tape_context(tape);
    const attn_tensor *lens = mask ? mask->valid_lens : NULL;
    if (!lens)
        return true;
    int rank = attn_tensor_rank(lens);
    if (attn_tensor_dtype(lens) != ATTN_I32) {
        attn__fail(context, ATTN_ERROR_ARGUMENT, "valid_lens: expected i32, found %s",
                   attn_dtype_name(attn_tensor_dtype(lens)));
        return false;
    }
    if (rank < 1 || rank > 2 || attn_tensor_length(lens, 0) != batch ||
        (rank == 2 && attn_tensor_length(lens, 1) != queries)) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(context, ATTN_ERROR_SHAPE,
                   "valid_lens: expected the shape [%" PRId64 "] or [%" PRId64 ",%" PRId64 "], found %s", batch, batch,
                   queries, attn__shape_text(lens, found));
        return false;
    }
    return true;
}

static bool keys_fit(attn_tape *tape, const attn_tensor *keys, int64_t batch, int64_t n)
{
    bool fits = !keys || (attn_tensor_dtype(keys) == ATTN_U8 && attn_tensor_rank(keys) == 2 &&
                          attn_tensor_length(keys, 0) == batch && attn_tensor_length(keys, 1) == n);
    if (!fits) {
        char found[ATTN__SHAPE_TEXT];
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "mask of keys: expected u8 [%" PRId64 ",%" PRId64 "], found %s %s", batch, n,
                   attn_dtype_name(attn_tensor_dtype(keys)), attn__shape_text(keys, found));
    }
    return fits;
}

bool attn__nn_attention_fits(attn_tape *tape, const attn_tensor *queries, const attn_tensor *keys,
                             const attn_tensor *values, const attn_nn_mask *mask)
{
    if (!attn__nn_has_rank(tape, queries, 3, "queries") || !attn__nn_has_rank(tape, keys, 3, "keys") ||
        !attn__nn_has_rank(tape, values, 3, "values"))
        return false;
    const int64_t *q = attn_tensor_shape(queries), *k = attn_tensor_shape(keys), *v = attn_tensor_shape(values);
    if (q[0] != k[0] || k[0] != v[0]) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "axis 0, the batch, has length %" PRId64 " in queries, %" PRId64 " in keys and %" PRId64
                   " in values; the lengths must be equal",
                   q[0], k[0], v[0]);
        return false;
    }
    if (k[1] != v[1]) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "axis 1 has length %" PRId64 " in keys and %" PRId64 " in values; the lengths must be equal", k[1],
                   v[1]);
        return false;
    }
    return keys_fit(tape, mask ? mask->keys : NULL, k[0], k[1]) && attn__nn_lens_fit(tape, mask, q[0], q[1]);
}
