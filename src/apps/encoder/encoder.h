/* SPDX-License-Identifier: MIT
 *
 * encoder.h - the struct of a loaded encoder, and the parts of loading it. */
#ifndef ATTN_APPS_ENCODER_H
#define ATTN_APPS_ENCODER_H

#include "apps/checkpoint/model_directory.h"
#include "attn/encode.h"
#include "attn/io.h"

enum { ATTN__ESM_VOCABULARY = 33 };

struct attn_encoder {
    attn_context *context;
    attn_model *model;
    bool borrowed; /* true: the caller owns the model */
    attn_tape *tape;
    struct attn__tokenizer *tokenizer; /* NULL: the directory has none, or the model reads proteins */
    attn_encoder_info info;
    char directory[ATTN__PATH]; /* of the files beside the weights */
    attn_config *prompts;       /* config_sentence_transformers.json; NULL: there is none */
    bool lower_case;            /* as sentence_bert_config.json says */
    bool skips_prompt;          /* true: the pooling leaves the prompt's tokens out */
    bool rotary;                /* positions are rotary, so that texts may be longer than the directory says */
    int32_t mask;               /* id of the mask; -1: unknown */
    char *prompt;               /* put before each text; NULL: none */
    int64_t prompt_tokens;      /* tokens of the prompt that the pooling leaves out */
};

/* Reports whether attn_encoder_load may be able to load `path`: a directory whose config.json describes an encoder, or
 * a .pt of ESM-2. Returns false if the path cannot be read. */
bool attn__encoder_is_at(attn_context *context, const char *path);

/* Reads the files of sentence-transformers in encoder->directory: pooling, normalization, longest text, prompts. */
attn_status attn__encoder_published(attn_encoder *encoder);
/* Opens the tokenizer of the directory, if it has one, and limits info.max_length. */
attn_status attn__encoder_tokenizer(attn_encoder *encoder);
void attn__encoder_tokenizer_free(attn_encoder *encoder);

/* A window of a text: the tokens of the text from `begin` on, `n` of them. For a part of a protein, <cls> and <eos> are
 * put around them. Of the window's tokens, those from `keep` to `kept` are results; they begin at row `row` of the
 * text's results. */
typedef struct attn__encoder_piece {
    int64_t text, begin, n, keep, kept, row;
    bool part; /* true: a part of a longer protein */
} attn__encoder_piece;

/* Free *pieces with attn__free, even on failure. */
attn_status attn__encoder_pieces(const attn_encoder *encoder, const attn_encoder_text *texts, int64_t n,
                                 attn__encoder_piece **pieces, int64_t *npieces);
/* Writes the ids of a piece, and returns their number. */
int64_t attn__encoder_piece_ids(const attn_encoder_text *text, const attn__encoder_piece *piece, int32_t *ids);
/* Returns the number of ids of a piece. */
int64_t attn__encoder_piece_size(const attn__encoder_piece *piece);

/* A run of the model on ids [1,n] of packed texts (offsets), or on one text (offsets NULL), with one output. Resets the
 * tape, which owns the result. Returns NULL if an error is recorded. */
attn_tensor *attn__encoder_forward(attn_encoder *encoder, const int32_t *ids, const int32_t *types, int64_t n,
                                   const int32_t *offsets, int64_t texts, const char *output);

#endif
