/* SPDX-License-Identifier: MIT
 * marian.h - a translator from a directory in the form of Hugging Face's MarianMT (Junczys-Dowmunt et al. 2018,
 * arXiv:1804.00344): config.json, generation_config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm,
 * vocab.json, and target_vocab.json where each side has a vocabulary of its own; or in Marian's own form. */
#ifndef ATTN_APPS_MARIAN_H
#define ATTN_APPS_MARIAN_H

#include "apps/model_directory.h"
#include "apps/translator.h"

/* Whether a config.json is that of such a model. */
bool attn__marian_is(const attn_config *config);

/* What decoder.yml of a directory as Marian itself leaves it names (OPUS-MT's archives): each lies in the directory. */
typedef struct attn__archive {
    char settings[ATTN__PATH];        /* decoder.yml */
    char weights[ATTN__PATH];         /* .npz, with the model's settings in it */
    char vocabularies[2][ATTN__PATH]; /* the source's and the target's: .yml, or .spm whose numbers are ids */
} attn__archive;
/* Whether the directory has a decoder.yml and no config.json. */
bool attn__archive_is(attn_context *context, const char *directory);
/* Its settings as a MarianMT directory's config.json has them, with layer_norm_eps, Marian's 1e-6.
 * ATTN_ERROR_UNSUPPORTED: another kind of model, or a build without libyaml; ATTN_ERROR_FORMAT; statuses of
 * attn_checkpoint_open. */
attn_status attn__archive_read(attn__archive *archive, attn_config **config, attn_context *context,
                               const char *directory);

/* Fills a translator whose `context` and `config` are there already.  `archive`: NULL for Hugging Face's form.
 * `names`: a names file for its weights; NULL: that of the form. */
attn_status attn__marian_load(attn_translator *translator, const char *directory, const attn__archive *archive,
                              const char *names);

/* Writes what a directory in Hugging Face's form holds beside its weights: copies of `directory`'s, or, where that
 * is Marian's own, the same said in that form. */
attn_status attn__marian_files(attn_context *context, const attn_config *config, const attn_vocab *source,
                               const attn_vocab *target, const char *directory, const char *to);
/* Writes parameters of a model with such a `config` as its model.safetensors. */
attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path);

/* The vocabulary in the file `path` (a .json or .yml of pieces and ids, or a .spm), whose texts are cut by `spm`.
 * One without <pad> gets it as its last where `pad`. */
attn_status attn__marian_vocab(attn_vocab **vocab, attn_context *context, const char *path, const char *spm,
                               const attn_config *config, bool pad);

#endif
