/* SPDX-License-Identifier: MIT
 *
 * transformer_parts.h - the Transformer's encoder and decoder. Each is also an architecture of its own.
 */
#ifndef ATTN_MODELS_TRANSFORMER_PARTS_H
#define ATTN_MODELS_TRANSFORMER_PARTS_H

#include "models/contact_maps.h"
#include "models/model_keys.h"

/* The config keys that encoder and decoder have, except the names of their vocabularies. */
#define ATTN__KEYS_TRANSFORMER                                                                                         \
    ATTN__KEY_COUNT("num_hiddens", "256", "channels; num_heads divides it"),                                           \
        ATTN__KEY_COUNT("ffn_num_hiddens", "64", "channels inside the feed-forward network"),                          \
        ATTN__KEY_COUNT("num_heads", "4", "attention heads"),                                                          \
        {"num_blks", ATTN_CONFIG_TYPE_INT, "2", 0, ATTN__MAX_BLOCKS, NULL, "blocks"}, ATTN__KEY_DROPOUT,               \
        ATTN__KEY_COUNT("max_len", "1000", "the longest sequence"), ATTN__KEY_FILL, ATTN__KEY_INIT,                    \
        {"norm",                                                                                                       \
         ATTN_CONFIG_TYPE_TEXT,                                                                                        \
         "post",                                                                                                       \
         0,                                                                                                            \
         0,                                                                                                            \
         attn__norm_choices,                                                                                           \
         "where norms stand: post, behind the residual connections, or pre, before the layers"},                       \
        {"activation",                                                                                                 \
         ATTN_CONFIG_TYPE_TEXT,                                                                                        \
         "relu",                                                                                                       \
         0,                                                                                                            \
         0,                                                                                                            \
         attn__activation_choices,                                                                                     \
         "of the feed-forward network: relu, gelu, gelu_tanh, gelu_sigmoid, silu (x sigmoid(x)), tanh"},               \
        {"positions",                                                                                                  \
         ATTN_CONFIG_TYPE_TEXT,                                                                                        \
         "interleaved",                                                                                                \
         0,                                                                                                            \
         0,                                                                                                            \
         attn__position_choices,                                                                                       \
         "sines and cosines interleaved, in halves (Marian), in halves as tensor2tensor has them; learned; none"},     \
        {"position_offset", ATTN_CONFIG_TYPE_INT, "0", 0, 1 << 20, NULL, "row of the first position"},                 \
        {"embedding_scale",                                                                                            \
         ATTN_CONFIG_TYPE_TEXT,                                                                                        \
         "sqrt",                                                                                                       \
         0,                                                                                                            \
         0,                                                                                                            \
         attn__scale_choices,                                                                                          \
         "embeddings are multiplied by the root of num_hiddens, or by one"},                                           \
        ATTN__KEY_FLAG("embedding_norm", "false", "a norm behind embedding and positions"),                            \
    {                                                                                                                  \
        "eps", ATTN_CONFIG_TYPE_REAL, "1e-5", 1e-12, 1, NULL, "of the norms"                                           \
    }

extern const char *const attn__norm_choices[], *const attn__norm_kinds[], *const attn__rotary_choices[];
extern const char *const attn__activation_choices[], *const attn__position_choices[], *const attn__scale_choices[],
                                                                                          *const attn__tie_choices[];

/* A half of the Transformer. The config keys of a half have a prefix, such as "enc_num_heads" or "dec_num_heads",
 * and override the keys without prefix, such as "num_heads". */
typedef enum attn__half { ATTN__ENCODER, ATTN__DECODER } attn__half;

/* The input layers of an encoder or decoder: embeddings times sqrt(D), plus positions. */
typedef struct attn__transformer_front {
    attn_nn_embedding embedding;
    attn_nn_positional positions;
    attn_nn_embedding segments; /* embedding of segments; it is used only if its weight is not NULL */
    attn_nn_layer_norm norm;    /* norm of the input; it is used only if its weight is not NULL */
    /* ESM's token dropout (Lin et al. 2022, doi:10.1126/science.ade2574): the embedding of this token is 0, and all
     * embeddings are scaled for the share of masked tokens. -1: none */
    int64_t masked_token;
} attn__transformer_front;

typedef struct attn__transformer_encoder {
    attn__transformer_front front;
    int blocks;
    double fill;
    /* In blocks whose number is not a multiple of global_every, a query attends keys at most local_window far from it.
     * 0: all blocks attend to all tokens. */
    int64_t local_window, global_every;
    attn_nn_encoder_block block[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm; /* norm of the last block's output; it is used only if its weight is not NULL */
} attn__transformer_encoder;

typedef struct attn__encoder_input {
    const attn_tensor *tokens;    /* I32 [B,T]; of packed texts [1,N] */
    const attn_tensor *segments;  /* I32 like the tokens; NULL: all tokens belong to the first segment */
    const attn_tensor *lens;      /* I32 [B] or [B,T]; NULL: there is no padding */
    const attn_nn_packed *packed; /* packed texts; NULL: the batch is padded */
} attn__encoder_input;

/* Results of an encoder's blocks that are computed only on request. */
typedef struct attn__encoder_maps {
    attn_named_list *weights; /* gets the weights "encoder.i" of block i; NULL: not requested */
    /* sums of a contact regression [B,P,P] and the residues of each protein, I32 [B]; NULL: not requested */
    attn__contact_regression regression;
    attn_tensor *contacts, *residues;
} attn__encoder_maps;

typedef struct attn__transformer_decoder {
    attn__transformer_front front;
    int blocks;
    double fill;
    attn_nn_decoder_block block[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm;
    attn_nn_linear dense;
} attn__transformer_decoder;

/* Registers the parameters of the input layers of a half. If `shared` is not NULL, it is an existing embedding
 * table, which is used instead of a new one. */
void attn__transformer_front_build(attn__transformer_front *front, attn_nn_builder *builder, const attn_config *config,
                                   int64_t vocabulary, attn_tensor *shared);
/* Embeds tokens [B,T] at positions first, first+1, and so on. Returns [B,T,D]. */
attn_tensor *attn__transformer_front_forward(const attn__transformer_front *front, attn_tape *tape,
                                             const attn_tensor *tokens, int64_t first);
/* Embeds the tokens of an encoder's input, with the embeddings of their segments. */
attn_tensor *attn__transformer_front_encode(const attn__transformer_front *front, attn_tape *tape,
                                            const attn__encoder_input *input);
attn_nn_block_options attn__transformer_block_options(const attn_config *config, attn__half half, bool bias);
/* Returns the value of a setting whose choices are attn__activation_choices. */
attn_activation attn__transformer_activation(const attn_config *config, const char *key);
/* Applies the norm to x if the norm has parameters. Otherwise returns x unchanged. */
attn_tensor *attn__transformer_norm(const attn_nn_layer_norm *norm, attn_tape *tape, attn_tensor *x);
void attn__transformer_norm_build(attn_nn_layer_norm *norm, attn_nn_builder *builder, const attn_config *config,
                                  const char *key, const char *name);
/* Makes a norm of the kind that the settings name. */
void attn__transformer_norm_make(attn_nn_layer_norm *norm, attn_nn_builder *builder, const attn_config *config,
                                 const char *name);
/* Returns the value of the half's key ("enc_KEY" or "dec_KEY"), or of KEY if the half's key is not set. */
int64_t attn__transformer_size(const attn_config *config, attn__half half, const char *key);

/* Registers the encoder's parameters below the builder's current prefix. If `bias` is true, the attention's
 * projections have biases. */
void attn__transformer_encoder_build(attn__transformer_encoder *encoder, attn_nn_builder *builder,
                                     const attn_config *config, int64_t vocabulary, bool bias);
/* Options for building a decoder. If `shared` is not NULL, it is the encoder's embedding table, which the decoder
 * uses too. If `tied` is true, the output layer uses the decoder's embedding table as its weight. */
typedef struct attn__decoder_options {
    int64_t vocabulary;
    bool bias, tied, output_bias;
    attn_tensor *shared;
} attn__decoder_options;
void attn__transformer_decoder_build(attn__transformer_decoder *decoder, attn_nn_builder *builder,
                                     const attn_config *config, const attn__decoder_options *options);

/* Runs the encoder on tokens [B,T]. Returns [B,T,D]; `weights` (may be NULL) gets the attention weights "encoder.i"
 * of each block i. */
attn_tensor *attn__transformer_encode(const attn__transformer_encoder *encoder, attn_tape *tape,
                                      const attn_tensor *tokens, const attn_tensor *lens, attn_named_list *weights);
/* Does the same for any input. `maps` may be NULL. */
attn_tensor *attn__transformer_encode_input(const attn__transformer_encoder *encoder, attn_tape *tape,
                                            const attn__encoder_input *input, const attn__encoder_maps *maps);
/* Runs the decoder on tokens [B,T] and the encoder's result `encoded` [B,Ts,D]. Returns the logits [B,T,V];
 * options->weights (may be NULL) gets "decoder.i" and "cross.i" of each block i. */
attn_tensor *attn__transformer_decode(const attn__transformer_decoder *decoder, attn_tape *tape,
                                      const attn_tensor *tokens, attn_tensor *encoded, const attn_tensor *lens,
                                      const attn_seq2seq_options *options);

#endif
