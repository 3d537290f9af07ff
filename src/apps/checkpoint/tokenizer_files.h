/* SPDX-License-Identifier: MIT
 *
 * tokenizer_files.h - opens the tokenizers of published models. In a build without utf8proc, the functions fail with
 * ATTN_ERROR_UNSUPPORTED and a message. */
#ifndef ATTN_CHECKPOINT_TOKENIZER_FILES_H
#define ATTN_CHECKPOINT_TOKENIZER_FILES_H

#include "attn/io.h"
#include "data/tokenizer.h"

/* X(name, function): the files that describe a tokenizer, the preferred one first, and the functions of
 * tokenizer_open.c that read them. */
#define ATTN__TOKENIZER_FILES(X)                                                                                       \
    X("tokenizer.json", build_json)                                                                                    \
    X("vocab.txt", build_bert)                                                                                         \
    X("sentencepiece.bpe.model", build_pieces)                                                                         \
    X("spiece.model", build_pieces)

/* Returns the name of the directory's tokenizer file. Returns NULL if it has none. */
const char *attn__tokenizer_file(const char *directory);
/* Opens the tokenizer of a published model: tokenizer.json or, if it is missing, vocab.txt or else a SentencePiece
 * model (sentencepiece.bpe.model of XLM-RoBERTa, spiece.model of T5). Names of special tokens come from
 * tokenizer_config.json. ATTN_ERROR_NOT_FOUND: the directory has no tokenizer. ATTN_ERROR_FORMAT: a file is damaged.
 * ATTN_ERROR_UNSUPPORTED: a file asks for something that attn does not support; the message names it. */
attn_status attn__tokenizer_open(attn__tokenizer **tokenizer, attn_context *context, const char *directory);
/* Does the same with the text of a tokenizer.json. `name` is the name of the file in messages. */
attn_status attn__tokenizer_parse(attn__tokenizer **tokenizer, attn_context *context, const char *json, size_t size,
                                  const char *name);
/* Does the same with the bytes of one of the files that attn__tokenizer_open reads, and of tokenizer_config.json (NULL:
 * there is none). `name` is the file's name without a directory. */
attn_status attn__tokenizer_parse_file(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                                       const attn_bytes *file, const attn_bytes *config);

#endif
