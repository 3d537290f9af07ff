/* SPDX-License-Identifier: MIT
 * marian.h - a translator from a directory in the form of Hugging Face's MarianMT (Junczys-Dowmunt et al. 2018,
 * arXiv:1804.00344): config.json, generation_config.json, model.safetensors or pytorch_model.bin, source.spm,
 * target.spm, vocab.json, and target_vocab.json if each side has its own vocabulary. The directory may also have
 * Marian's own form. */
#ifndef ATTN_APPS_MARIAN_H
#define ATTN_APPS_MARIAN_H

#include "apps/checkpoint/model_directory.h"
#include "apps/translator/translator.h"
#include "data/vocab.h"
#include "io/json.h"

/* Whether a config.json describes a MarianMT model. */
bool attn__marian_is(const attn_config *config);

/* The files that decoder.yml names, in a directory of Marian's own form (OPUS-MT's archives). Each file is in the
 * directory. */
typedef struct attn__archive {
    char settings[ATTN__PATH]; /* path of decoder.yml */
    char weights[ATTN__PATH];  /* path of the .npz, which also contains the model's settings */
    char vocabularies[2]
                     [ATTN__PATH]; /* vocabularies of source and target: .yml, lines of text, or .spm whose numbers are
                                 * ids */
    bool prefixed;                 /* force-decode: each input line contains a forced prefix of its translation */
    char shortlist[ATTN__PATH];    /* path of the lexicon; "": none */
    int64_t shortlist_first, shortlist_best;
} attn__archive;
/* Whether the directory has a decoder.yml and no config.json. */
bool attn__archive_is(attn_context *context, const char *directory);
/* Converts its settings to the form of a MarianMT directory's config.json, with layer_norm_eps 1e-6 as in Marian.
 * ATTN_ERROR_UNSUPPORTED: another kind of model, or a build without libyaml; ATTN_ERROR_FORMAT; statuses of
 * attn_checkpoint_open. */
attn_status attn__archive_read(attn__archive *archive, attn_config **config, attn_context *context,
                               const char *directory);

/* Fills a translator whose `context` and `config` are already set. `archive`: NULL for Hugging Face's form. `names`: a
 * names file for its weights; NULL: the default of the form. */
attn_status attn__marian_load(attn_translator *translator, const char *directory, const attn__archive *archive,
                              const char *names);

/* Sets the loaded translator's search settings and maximum length from its files. */
attn_status attn__marian_search(attn_translator *translator, const char *directory);

/* Writes the files of a directory in Hugging Face's form, except the weights. They are copied from `directory`, or
 * converted if it has Marian's own form. */
attn_status attn__marian_files(attn_context *context, const attn_config *config, const attn_vocab *source,
                               const attn_vocab *target, const char *directory, const char *to);
/* Writes the parameters of a model with this `config` to model.safetensors. */
attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path);

/* tokenizer_config.json and added_tokens.json of a directory; NULL: the file is missing. */
typedef struct attn__marian_tokenizer {
    json_t *config, *added;
} attn__marian_tokenizer;
attn_status attn__marian_tokenizer_read(attn__marian_tokenizer *tokenizer, attn_context *context,
                                        const char *directory);
void attn__marian_tokenizer_free(attn__marian_tokenizer *tokenizer);
/* The result of add_tokens, by id. The tokenizer owns the texts; free the list with attn__free, on error too. `path`:
 * for messages. */
typedef struct attn__marian_added {
    const char *text;
    int64_t id;
    attn__added_token how;
} attn__marian_added;
attn_status attn__marian_added_tokens(attn__marian_added **list, int64_t *n, attn_context *context, const char *path,
                                      const attn__marian_tokenizer *tokenizer);

/* The vocabulary in the file `path` (a .json or .yml of pieces and ids, a .spm, or text with one piece a line), with
 * the tokenizer's added tokens. `spm` splits texts into pieces. With `pad` the file lacks <pad>, which is added with
 * the id `pad_token_id`; the piece that had this id becomes the last. */
typedef struct attn__marian_vocab_source {
    const char *path, *spm;
    const attn_config *config;
    const attn__marian_tokenizer *tokenizer;
    bool pad;
} attn__marian_vocab_source;
attn_status attn__marian_vocab(attn_vocab **vocab, attn_context *context, const attn__marian_vocab_source *source);

#endif
