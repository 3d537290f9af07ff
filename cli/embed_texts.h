/* SPDX-License-Identifier: MIT
 *
 * embed_texts.h - attn embed for encoders: texts or single proteins to vectors, and a ranking of texts by a query.
 */
#ifndef CLI_EMBED_TEXTS_H
#define CLI_EMBED_TEXTS_H

#include "command.h"

#include "attn/encode.h"

extern const char *const cli_embed_pools[];
/* clang-format off */
#define CLI_ENCODER_LENGTH                                                                                             \
    CLI_INT("max_length", 0, "0", 0, 1 << 20,                                                                          \
            "most tokens of an encoder's text, which is cut there (a protein: length of its windows); 0: as the model says")
/* Options of attn embed that only encoders have. */
#define CLI_EMBED_OPTIONS                                                                                              \
    CLI_CHOICE("pool", cli_embed_pools, "own",                                                                         \
               "of an encoder: own (as the directory says, else mean), mean, cls, max, last, or none: a vector for each token"), \
        CLI_FLAG("normalize", 0, "of an encoder: divide each vector by its length; default: as the directory says"),   \
        CLI_FLAG("unnormalized", 0, "of an encoder: do not divide vectors by their length, even if the directory says so"), \
        CLI_TEXT("prompt", 0, "TEXT", "", "of an encoder: what stands before each text, such as \"passage: \"; default: as the directory says"), \
        CLI_TEXT("prompt_name", 0, "NAME", "", "a prompt by its name in config_sentence_transformers.json"),           \
        CLI_ENCODER_LENGTH,                                                                                            \
        CLI_FLAG("ids", 0, "each line holds the ids of a text, with special tokens and spaces between"),               \
        CLI_INT("batch", 0, "1024", 1, 1 << 20, "tokens that an encoder computes together"),                           \
        CLI_TEXT("similar", 0, "QUERY", "", "rank the texts by the cosine of their vectors with this text's; no file is written"), \
        CLI_TEXT("query_prompt", 0, "TEXT", "", "what stands before the query of --similar, such as \"query: \"; default: --prompt"), \
        CLI_INT("top", 0, "10", 1, 1000000, "texts that --similar prints")
/* clang-format on */

/* Reports whether --model is an encoder. */
bool cli_encoder_is(const cli_call *cli);
/* Returns an exit code. Errors have been printed. */
int cli_encoder_load(const cli_call *cli, attn_encoder **encoder);
/* Loads --model as an encoder of proteins, and refuses the options of models of alignments. */
int cli_encoder_of_proteins(const cli_call *cli, attn_encoder **encoder);
/* Splits the query of `path` into tokens, and tells of windows. Free them with attn_encoder_text_free. */
int cli_encoder_protein(const cli_call *cli, const attn_encoder *encoder, const char *path, const char *query,
                        attn_encoder_text *tokens);
/* Refuses the given options among `names`, which ends with NULL: they are options of `whose`, and the model is `kind`.
 * Returns an exit code. */
int cli_embed_refuse(const cli_call *cli, const char *const *names, const char *whose, const char *kind);
/* Counts the texts from the position of an open file to its end: lines, or the proteins of FASTA. Leaves the position.
 * Returns -1 if the file is not a regular file or cannot be read. */
int64_t cli_count_texts(int file, bool proteins);
/* Runs attn embed with an encoder. Returns an exit code. */
int cli_embed_texts(const cli_call *cli);

#endif
