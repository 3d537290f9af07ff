/* SPDX-License-Identifier: MIT
 *
 * sentencepiece.h - C functions of the SentencePiece library (Kudo and Richardson 2018, arXiv:1808.06226). Only
 * sentencepiece.cc uses the library. No function throws an exception. If the result is not
 * ATTN__SPM_OK, `message`, a buffer of ATTN__SPM_MESSAGE bytes, describes the error. */
#ifndef ATTN_DATA_SENTENCEPIECE_H
#define ATTN_DATA_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN__SPM_MESSAGE = 256 };
typedef enum attn__spm_result { ATTN__SPM_OK = 0, ATTN__SPM_REFUSED, ATTN__SPM_NO_MEMORY } attn__spm_result;

typedef struct attn__spm attn__spm;
typedef void attn__spm_take(void *user, const char *text, size_t length);

attn__spm_result attn__spm_open(attn__spm **spm, const char *bytes, size_t size, char *message);
void attn__spm_close(attn__spm *spm);
int64_t attn__spm_size(const attn__spm *spm);
/* Returns the text of a piece, 0 <= id < size. *kind becomes 'u' for the unknown piece, 'c' for a control piece, and
 * 'n' for other pieces. */
const char *attn__spm_piece(const attn__spm *spm, int64_t id, size_t *length, char *kind);
/* Splits a text in UTF-8 into pieces, and calls `take` for each piece. */
attn__spm_result attn__spm_encode(const attn__spm *spm, const char *text, size_t length, attn__spm_take *take,
                                  void *user, char *message);
/* Joins n pieces to a text, and calls `take` once with the text. */
attn__spm_result attn__spm_decode(const attn__spm *spm, const char *const *pieces, const size_t *lengths, int64_t n,
                                  attn__spm_take *take, void *user, char *message);
/* Learns at most `size` pieces from n texts, and calls `take` once with the bytes of the model. `kind` is "unigram" or
 * "bpe". Ids 0 to 3 are <pad>, <bos>, <eos> and <unk>. Characters that are too rare for a piece are encoded as bytes.
 * The others are the share `coverage` of all characters (0: 0.9995). If they are more than `size`, *needed becomes the
 * smallest size that is enough, and the result is ATTN__SPM_REFUSED. */
attn__spm_result attn__spm_train(const char *const *texts, int64_t n, const char *kind, int64_t size, double coverage,
                                 int64_t *needed, attn__spm_take *take, void *user, char *message);

#ifdef __cplusplus
}
#endif
#endif
