/* SPDX-License-Identifier: MIT
 *
 * tokenizer_read.h - parts of tokenizers that both tokenizer.json and vocab.txt have. */
#ifndef ATTN_CHECKPOINT_TOKENIZER_READ_H
#define ATTN_CHECKPOINT_TOKENIZER_READ_H

#include "data/tokenizer/parts.h"
#include "io/json.h"

/* Add Bert's normalizer, pre-tokenizer and template. Each flag is a step of the normalizer. */
attn_status attn__tokenizer_add_bert_normalizer(attn__tokenizer *t, bool clean, bool chinese, bool accents, bool lower);
attn_status attn__tokenizer_add_bert_splitters(attn__tokenizer *t);
attn_status attn__tokenizer_add_bert_template(attn__tokenizer *t, int32_t cls, int32_t sep);
/* Appends to a template what `as` writes: A and B for the texts, and c and s for the tokens cls and sep, each
 * followed by the digit of its type. */
attn_status attn__tokenizer_add_template(attn__tokenizer *t, attn__template *to, const char *as, int32_t cls,
                                         int32_t sep);
/* Makes the model a WordPiece model. Call this after all its tokens were added. */
void attn__tokenizer_set_word_piece(attn__tokenizer *t, const char *prefix, int64_t most_characters);
/* Reads an added token, {"content": "..", "lstrip": ..}. */
attn_status attn__tokenizer_read_added(attn__tokenizer *t, const char *name, const json_t *json);

#endif
