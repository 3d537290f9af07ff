/* SPDX-License-Identifier: MIT
 *
 * subword.h - the internal form of a SentencePiece model, which converts texts to pieces and pieces to texts.
 *
 * If attn was built without the SentencePiece library, every function that makes a model fails with
 * ATTN_ERROR_UNSUPPORTED and a message. */
#ifndef ATTN_DATA_SUBWORD_H
#define ATTN_DATA_SUBWORD_H

#include "attn/attn.h"

typedef struct attn__subword attn__subword;
typedef void attn__subword_take(void *user, const char *piece, size_t length);

/* Makes a model from the bytes of a .spm file. The bytes are checked completely and copied. ATTN_ERROR_FORMAT: the
 * file is damaged; the message contains `name`. */
attn_status attn__subword_parse(attn__subword **subword, attn_context *context, const char *bytes, size_t size,
                                const char *name);
/* Learns a model from n texts, as attn__spm_train describes. ATTN_ERROR_ARGUMENT: the texts do not allow this size. The
 * message has the smallest size, if the texts have too many characters. */
attn_status attn__subword_train(attn__subword **subword, attn_context *context, const char *const *texts, int64_t n,
                                const char *kind, int64_t size, double coverage);
void attn__subword_destroy(attn__subword *subword); /* NULL is allowed */
/* Returns the bytes of the model's .spm file. The model owns the bytes. */
const char *attn__subword_bytes(const attn__subword *subword, size_t *size);
int64_t attn__subword_size(const attn__subword *subword);
const char *attn__subword_piece(const attn__subword *subword, int64_t id, size_t *length, char *kind);

/* Splits a text into pieces, and calls `take` for each piece. ATTN_ERROR_FORMAT: the text is not UTF-8. May also
 * return ATTN_ERROR_MEMORY. */
attn_status attn__subword_encode(const attn__subword *subword, const char *text, size_t length,
                                 attn__subword_take *take, void *user);
/* Joins n pieces to a text of *size bytes, which may contain zero bytes. Free the text with attn__free. */
attn_status attn__subword_decode(const attn__subword *subword, const char *const *pieces, const size_t *lengths,
                                 int64_t n, char **text, size_t *size);

/* Checks the normalization rules in a .spm file. They contain offsets, which the library follows without checks.
 * ATTN_ERROR_FORMAT: an offset is out of bounds. May also return ATTN_ERROR_MEMORY. */
attn_status attn__subword_check(attn_context *context, const char *bytes, size_t size, const char *name);

#endif
