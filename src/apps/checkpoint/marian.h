/* SPDX-License-Identifier: MIT
 * marian.h - reads and writes a translator's directory in the form of Hugging Face's MarianMT (Junczys-Dowmunt et al.
 * 2018, arXiv:1804.00344). Its files are config.json, generation_config.json, model.safetensors or pytorch_model.bin,
 * source.spm, target.spm, vocab.json, and target_vocab.json if each side has its own vocabulary. Directories in
 * Marian's own form can also be read. */
#ifndef ATTN_APPS_MARIAN_H
#define ATTN_APPS_MARIAN_H

#include "apps/checkpoint/model_directory.h"
#include "apps/translator/translator.h"
#include "data/vocab.h"
#include "io/json.h"

/* Paths of the files of a directory in Marian's own form, such as an archive of OPUS-MT. All files are in the
 * directory itself. decoder.yml names them. */
typedef struct attn__archive {
    char settings[ATTN__PATH]; /* path of decoder.yml */
    char weights[ATTN__PATH];  /* path of the .npz, which also contains the model's settings */
    /* paths of the source vocabulary and of the target vocabulary, each a .yml, a text with one piece per line, or a
     * .spm whose piece numbers are the ids */
    char vocabularies[2][ATTN__PATH];
    /* Marian's force-decode: each input line contains a forced prefix of its translation */
    bool prefixed;
    char shortlist[ATTN__PATH]; /* path of the lexicon; "": there is none */
    int64_t shortlist_first, shortlist_best;
} attn__archive;
/* Finds the files of a directory of Marian's own form, and converts its settings to a config with the keys of
 * MarianMT's config.json. layer_norm_eps is 1e-6, as in Marian. ATTN_ERROR_UNSUPPORTED: the model is of another kind,
 * or the build has no libyaml. ATTN_ERROR_FORMAT: a file is invalid. Otherwise returns the statuses of
 * attn_checkpoint_open. */
attn_status attn__archive_read(attn__archive *archive, attn_config **config, attn_context *context,
                               const char *directory);

/* Fills a translator whose `context` and `config` are already set. If the directory has Marian's own form, `archive`
 * holds its files. If it has Hugging Face's form, `archive` is NULL. `names` is a names file for the weights. If
 * `names` is NULL, the default names file of the form is used. */
attn_status attn__marian_load(attn_translator *translator, const char *directory, const attn__archive *archive,
                              const char *names);

/* Sets the search settings and the maximum length of a loaded translator from the files of its directory. */
attn_status attn__marian_search(attn_translator *translator, const char *directory);

/* Writes all files of a directory in Hugging Face's form except the weights. The files are copied from `directory`. If
 * `directory` has Marian's own form, the files are converted. */
attn_status attn__marian_files(attn_context *context, const attn_config *config, const attn_vocab *source,
                               const attn_vocab *target, const char *directory, const char *to);
/* Writes the parameters of a model with the config `config` to model.safetensors. */
attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path);

/* The parsed files tokenizer_config.json, special_tokens_map.json and added_tokens.json of a directory. A file that
 * does not exist is NULL. As in transformers, the latter two count only if the first has no "added_tokens_decoder". */
typedef struct attn__marian_tokenizer {
    json_t *config, *specials, *added;
} attn__marian_tokenizer;
attn_status attn__marian_tokenizer_read(attn__marian_tokenizer *tokenizer, attn_context *context,
                                        const char *directory);
void attn__marian_tokenizer_free(attn__marian_tokenizer *tokenizer);
/* Returns the text of a named token, such as "unk_token". `otherwise` is returned if no file names the token. */
const char *attn__marian_named_token(const attn__marian_tokenizer *tokenizer, const char *name, const char *otherwise);
/* An added or special token. attn__marian_added_tokens returns a list of those with ids, in the order of their ids,
 * and then of those that have the id of their text in the vocabulary (id -1). The tokenizer owns the texts. Free the
 * list with attn__free, even on error. `path` is used in error messages. */
typedef struct attn__marian_added {
    const char *text;
    int64_t id;
    attn__added_token how;
} attn__marian_added;
attn_status attn__marian_added_tokens(attn__marian_added **list, int64_t *n, attn_context *context, const char *path,
                                      const attn__marian_tokenizer *tokenizer);

/* The files of a vocabulary. `path` is a .json or .yml of pieces and ids, a .spm, or a text with one piece per line.
 * The tokenizer's added tokens are added to its pieces. `spm` splits texts into pieces. `pad` is true if the file lacks
 * <pad>. Then <pad> gets the id `pad_token_id`, and the piece that had this id becomes the last piece. */
typedef struct attn__marian_vocab_source {
    const char *path, *spm;
    const attn_config *config;
    const attn__marian_tokenizer *tokenizer;
    bool pad;
    int64_t rows; /* number of the model's rows; special tokens that are not in the file get ids below it, or none */
} attn__marian_vocab_source;
attn_status attn__marian_vocab(attn_vocab **vocab, attn_context *context, const attn__marian_vocab_source *source);

#endif
