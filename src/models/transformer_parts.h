/* SPDX-License-Identifier: MIT
 *
 * transformer_parts.h - the encoder and the decoder that stand alone as architectures and together make the
 * Transformer. */
#ifndef ATTN_MODELS_TRANSFORMER_PARTS_H
#define ATTN_MODELS_TRANSFORMER_PARTS_H

#include "models/keys.h"

/* The keys both halves take, apart from their vocabularies' names. */
#define ATTN__KEYS_TRANSFORMER                                                                                         \
    ATTN__KEY_COUNT("num_hiddens", "256", "channels; num_heads divides it"),                                           \
        ATTN__KEY_COUNT("ffn_num_hiddens", "64", "channels inside the feed-forward network"),                          \
        ATTN__KEY_COUNT("num_heads", "4", "attention heads"),                                                          \
        {"num_blks", ATTN_VALUE_INT, "2", 0, ATTN__MAX_BLOCKS, NULL, "blocks"}, ATTN__KEY_DROPOUT,                     \
        ATTN__KEY_COUNT("max_len", "1000", "the longest sequence"), ATTN__KEY_FILL, ATTN__KEY_INIT

/* What both begin with: embeddings times sqrt(D), plus positions. */
typedef struct attn__transformer_front {
    attn_nn_embedding embedding;
    attn_nn_positional positions;
} attn__transformer_front;

typedef struct attn__transformer_encoder {
    attn__transformer_front front;
    int blocks;
    double fill;
    attn_nn_encoder_block block[ATTN__MAX_BLOCKS];
} attn__transformer_encoder;

typedef struct attn__transformer_decoder {
    attn__transformer_front front;
    int blocks;
    double fill;
    attn_nn_decoder_block block[ATTN__MAX_BLOCKS];
    attn_nn_linear dense;
} attn__transformer_decoder;

void attn__transformer_front_build(attn__transformer_front *front, attn_nn_builder *builder, const attn_config *config,
                                   int64_t vocabulary);
/* tokens [B,T] at positions first, first+1, ... -> [B,T,D] */
attn_tensor *attn__transformer_front_forward(const attn__transformer_front *front, attn_tape *tape,
                                             const attn_tensor *tokens, int64_t first);
attn_nn_block_options attn__transformer_block_options(const attn_config *config, bool bias);

/* Register the parameters in the builder's present place; `bias` is that of the attention's projections. */
void attn__transformer_encoder_build(attn__transformer_encoder *encoder, attn_nn_builder *builder,
                                     const attn_config *config, int64_t vocabulary, bool bias);
void attn__transformer_decoder_build(attn__transformer_decoder *decoder, attn_nn_builder *builder,
                                     const attn_config *config, int64_t vocabulary, bool bias);

/* tokens [B,T] -> [B,T,D]; `weights` (may be NULL) gets "encoder.i". */
attn_tensor *attn__transformer_encode(const attn__transformer_encoder *encoder, attn_tape *tape,
                                      const attn_tensor *tokens, const attn_tensor *lens, attn_named_list *weights);
/* tokens [B,T], encoded [B,Ts,D] -> logits [B,T,V]; weights gets "decoder.i" and "cross.i". */
attn_tensor *attn__transformer_decode(const attn__transformer_decoder *decoder, attn_tape *tape,
                                      const attn_tensor *tokens, attn_tensor *encoded, const attn_tensor *lens,
                                      const attn_seq2seq_options *options);

#endif
