/* SPDX-License-Identifier: MIT
 *
 * Contacts of proteins, and logits of masked residues. */
#include "apps/encoder/encoder.h"

#include "base/context.h"
#include "base/integers.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ contacts */

/* Adds the contacts of one window to the sums, and counts the windows of each pair. */
static attn_status add_window(attn_encoder *encoder, const attn_encoder_text *protein, const attn__encoder_piece *piece,
                              int32_t *ids, float *sums, float *counts)
{
    int64_t n = attn__encoder_piece_ids(protein, piece, ids), residues = protein->n - 2, own = n - 2;
    attn_tensor *map = attn__encoder_forward(encoder, ids, NULL, n, NULL, 1, "contacts");
    if (!map)
        return attn__result_status(encoder->context, NULL);
    const float *p = attn_tensor_data(map);
    int64_t first = piece->part ? piece->begin - 1 : 0;
    for (int64_t i = 0; i < own; i++)
        for (int64_t j = 0; j < own; j++) {
            int64_t at = (first + i) * residues + first + j;
            sums[at] += p[i * own + j];
            if (counts)
                counts[at]++;
        }
    return ATTN_OK;
}

attn_status attn_encoder_contacts(attn_encoder *encoder, const attn_encoder_text *protein, float *contacts)
{
    ATTN__CALL(encoder->context);
    attn_context *context = encoder->context;
    attn__encoder_piece *pieces = NULL;
    int64_t n = 0, pairs = (protein->n - 2) * (protein->n - 2);
    if (!encoder->info.contacts)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the model has no contact regression; ESM-2 has it in a second file, whose name ends in "
                          "-contact-regression.pt",
                          encoder->directory);
    attn_status status = attn__encoder_pieces(encoder, protein, 1, &pieces, &n);
    int32_t *ids = attn__alloc(context, attn__size_mul((size_t)protein->n, sizeof *ids));
    float *counts = n > 1 ? attn__alloc_zero(context, attn__size_mul((size_t)pairs, sizeof *counts)) : NULL;
    if (status == ATTN_OK && (!ids || (n > 1 && !counts)))
        status = ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        memset(contacts, 0, (size_t)pairs * sizeof *contacts);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = add_window(encoder, protein, &pieces[i], ids, contacts, counts);
    for (int64_t i = 0; counts && status == ATTN_OK && i < pairs; i++)
        contacts[i] = counts[i] > 0 ? contacts[i] / counts[i] : NAN;
    attn__free(context, counts);
    attn__free(context, ids);
    attn__free(context, pieces);
    return status;
}

/* ------------------------------------------------------------------------------------------------ masked residues */

/* Returns the window of a text with the place in its middle, if possible. *at becomes the place's index in the window. */
static attn__encoder_piece around(const attn_encoder *encoder, const attn_encoder_text *text, int64_t place,
                                  int64_t *at)
{
    int64_t most = encoder->info.max_length - 2;
    if (!encoder->info.protein || text->n <= encoder->info.max_length) {
        *at = place;
        return (attn__encoder_piece){.n = text->n};
    }
    int64_t begin = attn__min(attn__max(place - most / 2, 1), text->n - 1 - most);
    *at = place - begin + 1;
    return (attn__encoder_piece){.begin = begin, .n = most, .part = true};
}

/* Runs `count` windows, each with another place masked, and copies the logits of these places. */
static attn_status guess(attn_encoder *encoder, const attn_encoder_text *text, const int64_t *places, int64_t count,
                         int32_t *ids, int32_t *offsets, float *logits)
{
    int64_t vocabulary = encoder->info.vocabulary, at = 0, total = 0;
    for (int64_t i = 0; i < count; i++) {
        attn__encoder_piece piece = around(encoder, text, places[i], &at);
        offsets[i] = (int32_t)total;
        int64_t n = attn__encoder_piece_ids(text, &piece, ids + total);
        ids[total + at] = encoder->mask;
        total += n;
    }
    offsets[count] = (int32_t)total;
    attn_tensor *out = attn__encoder_forward(encoder, ids, NULL, total, offsets, count, "token_logits");
    if (!out)
        return attn__result_status(encoder->context, NULL);
    const float *all = attn_tensor_data(out);
    for (int64_t i = 0; i < count; i++) {
        (void)around(encoder, text, places[i], &at);
        memcpy(logits + i * vocabulary, all + (offsets[i] + at) * vocabulary, (size_t)vocabulary * sizeof *logits);
    }
    return ATTN_OK;
}

attn_status attn_encoder_logits(attn_encoder *encoder, const attn_encoder_text *text, const int64_t *places, int64_t n,
                                float *logits)
{
    enum { TOGETHER = 2048 };
    ATTN__CALL(encoder->context);
    if (!encoder->info.masked_head || encoder->mask < 0)
        return attn__fail(encoder->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the model has no head that predicts masked tokens", encoder->directory);
    for (int64_t i = 0; i < n; i++)
        if (places[i] < 0 || places[i] >= text->n)
            return attn__fail(encoder->context, ATTN_ERROR_ARGUMENT,
                              "place %lld is not one of the text's %lld tokens, counted from 0", (long long)places[i],
                              (long long)text->n);
    int64_t size = encoder->info.protein ? attn__min(text->n, encoder->info.max_length) : text->n;
    int64_t each = attn__max(TOGETHER / attn__max(size, 1), 1);
    int32_t *ids = attn__alloc(encoder->context, attn__size_mul((size_t)(each * size), sizeof *ids));
    int32_t *offsets = attn__alloc(encoder->context, (size_t)(each + 1) * sizeof *offsets);
    attn_status status = ids && offsets ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n && status == ATTN_OK; i += each) {
        status = guess(encoder, text, places + i, attn__min(each, n - i), ids, offsets,
                       logits + i * encoder->info.vocabulary);
        if (status == ATTN_OK)
            status = attn__work(encoder->context, "residues", attn__min(i + each, n), n);
    }
    attn__free(encoder->context, ids);
    attn__free(encoder->context, offsets);
    return status;
}
