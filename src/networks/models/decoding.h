/* SPDX-License-Identifier: MIT
 *
 * decoding.h - decodes a sequence with a model, one token at a time.
 */
#ifndef ATTN_MODELS_DECODING_H
#define ATTN_MODELS_DECODING_H

#include "attn/models.h"

/* State of decoding between two steps: projected keys and values, or hidden states. */
typedef struct attn_decoding attn_decoding;

typedef struct attn_decoding_options {
    int64_t max_len;     /* maximum number of steps; 0: 64 */
    int64_t beam;        /* number of hypotheses per sentence; 0: 1 */
    bool first_position; /* true: every token is decoded at position 0, as in Dive into Deep Learning */
} attn_decoding_options;

/* Encodes `src`, I32 [B,Ts], on `tape`, which should not record. The lengths src_lens are I32 [B] or NULL. Afterwards
 * the tape may be reset and src freed. The decoding has B * beam rows, and the rows of one sentence are adjacent.
 * `options` may be NULL. Destroy the decoding with attn_decoding_destroy. ATTN_ERROR_UNSUPPORTED: the model has no
 * decoder. ATTN_ERROR_SHAPE, ATTN_ERROR_ARGUMENT: src or an option does not fit. ATTN_ERROR_MEMORY: there is no
 * memory. */
attn_status attn_decoding_create(attn_decoding **decoding, attn_model *model, attn_tape *tape, const attn_tensor *src,
                                 const attn_tensor *src_lens, const attn_decoding_options *options);
void attn_decoding_destroy(attn_decoding *decoding); /* Frees the decoding, which may be NULL. */
/* Takes one token for each row (I32 [B*beam]) and returns the logits of the next token, [B*beam,V], on `tape`. Up to
 * rounding, these logits equal those of attn_seq2seq_forward for the whole sequence. The tape may be reset between
 * steps. ATTN_ERROR_SHAPE: there were more than max_len steps. */
attn_tensor *attn_decoding_step(attn_decoding *decoding, attn_tape *tape, const attn_tensor *tokens);
/* Reorders the rows: row i continues the previous row rows[i], which must belong to the same sentence (else
 * ATTN_ERROR_ARGUMENT). */
attn_status attn_decoding_reorder(attn_decoding *decoding, const int64_t *rows);
int64_t attn_decoding_rows(const attn_decoding *decoding);

#endif
