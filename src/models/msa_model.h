/* SPDX-License-Identifier: MIT
 *
 * msa_model.h - the MSA Transformer's parts, and the function that runs it once.
 *
 * Letters: B alignments, R rows, C columns (the first is <cls>), D channels, H heads, L layers, V tokens of the
 * alphabet. */
#ifndef ATTN_MODELS_MSA_MODEL_H
#define ATTN_MODELS_MSA_MODEL_H

#include "models/model_keys.h"

/* Token ids of the alphabet that all published checkpoints share. */
enum { ATTN__MSA_CLS = 0, ATTN__MSA_PAD = 1 };

/* Keys that the separate layers and the whole model share. */
extern const char *const attn__msa_orders[];
#define ATTN__MSA_KEY_TIED                                                                                             \
    ATTN__KEY_FLAG("tied", "true", "one map for all rows; false: each row has its own, with its own padding")
/* clang-format off */
#define ATTN__MSA_KEY_ORDER                                                                                            \
    {"order", ATTN_CONFIG_TYPE_TEXT, "row-column", 0, 0, attn__msa_orders, "which attention of a layer precedes"}
/* clang-format on */

typedef struct attn__msa {
    int64_t layers, dim, heads, vocabulary, max_positions;
    bool untied, columns_first;
    bool compat; /* reproduce ESM's results in padded batches */
    double dropout;
    attn_nn_embedding embed_tokens, embed_positions;
    attn_tensor *msa_positions; /* learned positions of the rows, [1,rows,1,D or 1]; NULL: none */
    attn_nn_layer_norm norm_before, norm_after, head_norm;
    attn_nn_linear dense, regression;
    attn_tensor *head_bias;
    attn_nn_msa_layer layer[ATTN__MAX_BLOCKS];
} attn__msa;

/* The outputs that a caller requests of a run. */
typedef struct attn__msa_wishes {
    bool logits, contacts, row_maps, column_maps;
    int64_t map_layer;                 /* return only the maps of this layer, counted from 1; 0: all layers */
    bool hidden[ATTN__MAX_BLOCKS + 1]; /* requested representations: 0 is the embedding, L the normalized last layer */
    int64_t max_tokens;                /* as in attn_nn_msa_layer_run */
} attn__msa_wishes;

/* The results of a run; the tape owns the tensors. Outputs that were not requested are NULL. */
typedef struct attn__msa_results {
    attn_tensor *logits;   /* [B,R,C,V] */
    attn_tensor *contacts; /* [B,C-1,C-1] probabilities */
    /* row maps [B,L,H,C,C], untied [B,L,H,R,C,C]; L is 1 if only one layer is requested */
    attn_tensor *row_maps;
    attn_tensor *column_maps;                  /* column maps [B,L,H,C,R,R]; L is 1 if only one layer is requested */
    attn_tensor *hidden[ATTN__MAX_BLOCKS + 1]; /* [B,R,C,D] */
} attn__msa_results;

/* Runs the model on tokens I32 [B,R,C]. On failure it sets the error and returns false. */
bool attn__msa_run(const attn__msa *msa, attn_tape *tape, const attn_tensor *tokens, const attn__msa_wishes *wishes,
                   attn__msa_results *results);
/* Returns the struct of an MSA Transformer, or NULL for another model. */
const attn__msa *attn__msa_of(const attn_model *model);

/* -------------------------------------------------------------------------------------------- its stages */

/* Tokens that were checked, and data computed from them. */
typedef struct attn__msa_tokens {
    const attn_tensor *ids; /* I32 [B,R,C] */
    attn_tensor *keep;      /* U8 [B,R,C], zero for padding; NULL: no padding */
    int64_t batch, rows, cols;
} attn__msa_tokens;
bool attn__msa_tokens_check(const attn__msa *msa, attn_tape *tape, const attn_tensor *ids, attn__msa_tokens *tokens);
/* Checks that the model has positions for this number of rows and columns. Otherwise it sets ATTN_ERROR_SHAPE and
 * returns false. */
bool attn__msa_sizes_fit(const attn__msa *msa, attn_context *context, int64_t batch, int64_t rows, int64_t cols);
/* Returns the number of columns of alignment b without padding. */
int64_t attn__msa_columns(const attn__msa_tokens *tokens, int64_t b);
/* Returns the normalized embedding of the tokens, [R,C,B,D], which is zero for padding. */
attn_tensor *attn__msa_embed(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens);

/* Adds a layer's row maps [n,B,C,C] of heads [first, first + n) to the regression's sums [B,C-1,C-1]. Without memory
 * it sets the error and returns false. */
bool attn__msa_add_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens, int64_t layer,
                            int64_t first, const attn_tensor *maps, attn_tensor *sums);
/* Converts the regression's sums to probabilities in place. They are zero outside an alignment's own columns. */
void attn__msa_finish_contacts(const attn__msa *msa, const attn__msa_tokens *tokens, attn_tensor *sums);

#endif
