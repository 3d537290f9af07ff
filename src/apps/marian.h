/* SPDX-License-Identifier: MIT
 * marian.h - a translator from a directory in the form of Hugging Face's MarianMT (Junczys-Dowmunt et al. 2018,
 * arXiv:1804.00344): config.json, generation_config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm,
 * vocab.json, and target_vocab.json where each side has a vocabulary of its own. */
#ifndef ATTN_APPS_MARIAN_H
#define ATTN_APPS_MARIAN_H

#include "apps/translator.h"

/* Whether a config.json is that of such a model. */
bool attn__marian_is(const attn_config *config);
/* Fills a translator whose `context` and `config` are there already.  `names`: a names file for its weights; NULL: that of Hugging
 * Face's names. */
attn_status attn__marian_load(attn_translator *translator, const char *directory, const char *names);

/* What such a directory may hold beside its weights; NULL-terminated. */
extern const char *const attn__marian_files[];
/* Writes parameters of a model with such a `config` as its model.safetensors. */
attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path);

/* vocab.json with the pieces of `spm`. */
attn_status attn__marian_vocab(attn_vocab **vocab, attn_context *context, const char *directory, const char *json,
                               const char *spm, const attn_config *config);

#endif
