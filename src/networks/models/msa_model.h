/* SPDX-License-Identifier: MIT
 *
 * msa_model.h - the MSA Transformer's parts, and the function that runs it once.
 *
 * Letters: B alignments, R rows, C columns (the first is <cls>), D channels, H heads, L layers, V tokens of the
 * alphabet. */
#ifndef ATTN_MODELS_MSA_MODEL_H
#define ATTN_MODELS_MSA_MODEL_H

#include "models/model_keys.h"

/* Ids of special tokens. All published checkpoints have the same alphabet. */
enum { ATTN__MSA_CLS = 0, ATTN__MSA_PAD = 1 };

extern const char *const attn__msa_orders[];
#define ATTN__MSA_KEY_TIED                                                                                             \
    ATTN__KEY_FLAG("tied", "true", "one map for all rows; false: each row has its own, with its own padding")
/* clang-format off */
#define ATTN__MSA_KEY_ORDER                                                                                            \
    {"order", ATTN_CONFIG_TYPE_TEXT, "row-column", 0, 0, attn__msa_orders, "which attention of a layer comes first"}
/* clang-format on */

typedef struct attn__msa {
    int64_t layers, dim, heads, vocabulary, max_positions;
    bool untied, columns_first;
    bool compat; /* true: results in padded batches are the same as those of ESM's code */
    double dropout;
    attn_nn_embedding embed_tokens, embed_positions;
    attn_tensor *msa_positions; /* learned positions of the rows, [1,rows,1,D or 1]; NULL: none */
    attn_nn_layer_norm norm_before, norm_after, head_norm;
    attn_nn_linear dense, regression;
    attn_tensor *head_bias;
    attn_nn_msa_layer layer[ATTN__MAX_BLOCKS];
} attn__msa;

/* The outputs that the caller of attn__msa_run requests. */
typedef struct attn__msa_wishes {
    bool logits, contacts, row_maps, column_maps;
    int64_t map_layer; /* layer whose maps are returned, counted from 1; 0: maps of all layers */
    /* hidden[i]: representation i is requested; 0 is the embedding, L is the last layer after the norm */
    bool hidden[ATTN__MAX_BLOCKS + 1];
    int64_t max_tokens; /* maximum number of tokens that are projected at once, as in attn_nn_msa_layer_run */
} attn__msa_wishes;

/* The results of attn__msa_run. An output that was not requested is NULL. The tape owns the tensors. */
typedef struct attn__msa_results {
    attn_tensor *logits;   /* [B,R,C,V] */
    attn_tensor *contacts; /* contact probabilities [B,C-1,C-1] */
    /* maps of row attention [B,L,H,C,C], untied [B,L,H,R,C,C]; L is 1 if only one layer is requested */
    attn_tensor *row_maps;
    /* maps of column attention [B,L,H,C,R,R]; L is 1 if only one layer is requested */
    attn_tensor *column_maps;
    attn_tensor *hidden[ATTN__MAX_BLOCKS + 1]; /* [B,R,C,D] */
} attn__msa_results;

/* Runs the model on tokens I32 [B,R,C]. On failure it sets the error and returns false. */
bool attn__msa_run(const attn__msa *msa, attn_tape *tape, const attn_tensor *tokens, const attn__msa_wishes *wishes,
                   attn__msa_results *results);
/* Returns the struct of an MSA Transformer, or NULL for another model. */
const attn__msa *attn__msa_of(const attn_model *model);

/* -------------------------------------------------------------------------------------------- its stages */

/* A batch of checked tokens, with data that was computed from the tokens. */
typedef struct attn__msa_tokens {
    const attn_tensor *ids; /* I32 [B,R,C] */
    attn_tensor *keep;      /* U8 [B,R,C], zero for padding; NULL: no padding */
    int64_t batch, rows, cols;
} attn__msa_tokens;
bool attn__msa_tokens_check(const attn__msa *msa, attn_tape *tape, const attn_tensor *ids, attn__msa_tokens *tokens);
/* Checks that the model has positions for this number of rows and columns. If not, sets ATTN_ERROR_SHAPE and returns
 * false. */
bool attn__msa_sizes_fit(const attn__msa *msa, attn_context *context, int64_t batch, int64_t rows, int64_t cols);
/* Returns the number of columns of alignment b, without the columns of padding. */
int64_t attn__msa_columns(const attn__msa_tokens *tokens, int64_t b);
/* Returns the embedding of the tokens after the norm, [R,C,B,D]. It is zero for padding. */
attn_tensor *attn__msa_embed(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens);

/* Adds the maps of a layer's row attention to the regression's sums [B,C-1,C-1]. `maps` [n,B,C,C] are those of heads
 * [first, first + n). If there is no memory, sets the error and returns false. */
bool attn__msa_add_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens, int64_t layer,
                            int64_t first, const attn_tensor *maps, attn_tensor *sums);
/* Converts the regression's sums to contact probabilities, in place. The probabilities of padded columns are zero.
 * Returns false and records an error if there is no memory. */
bool attn__msa_finish_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens,
                               attn_tensor *sums);

#endif
