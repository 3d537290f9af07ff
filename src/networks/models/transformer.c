/* SPDX-License-Identifier: MIT
 *
 * Defines the Transformer, which consists of an encoder and a decoder. It runs on whole sequences, or decodes one token
 * at a time.
 */
#include "models/lineage.h"
#include "models/seq2seq.h"
#include "models/shortlist.h"
#include "models/transformer_parts.h"

#include "base/context.h"
#include "tensor/op.h"

#include <string.h>

typedef struct transformer {
    attn__transformer_encoder encoder;
    attn__transformer_decoder decoder;
} transformer;

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    transformer *t = self;
    int64_t src = attn__vocabulary_size(builder->context, config, "src_vocab_size");
    int64_t tgt = attn__vocabulary_size(builder->context, config, "tgt_vocab_size");
    const char *tie = attn_config_text(config, "tie", "none");
    bool all = strcmp(tie, "all") == 0;
    if (all && src != tgt) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "transformer: tie=all needs one vocabulary, but there are %lld source and %lld target tokens",
                   (long long)src, (long long)tgt);
        return;
    }
    attn_nn_push(builder, "encoder");
    attn__transformer_encoder_build(&t->encoder, builder, config, src, attn_config_bool(config, "use_bias", false));
    attn_nn_pop(builder);
    attn__decoder_options options = {.vocabulary = tgt,
                                     .bias = attn_config_bool(config, "decoder_bias", false),
                                     .tied = all || strcmp(tie, "decoder") == 0,
                                     .output_bias = attn_config_bool(config, "output_bias", true),
                                     .shared = all ? t->encoder.front.embedding.weight : NULL};
    attn_nn_push(builder, "decoder");
    attn__transformer_decoder_build(&t->decoder, builder, config, &options);
    attn_nn_pop(builder);
}

static attn_tensor *forward(const void *self, attn_tape *tape, const attn_tensor *src, const attn_tensor *src_lens,
                            const attn_tensor *tgt_in, const attn_seq2seq_options *options)
{
    const transformer *t = self;
    attn_tensor *encoded = attn__transformer_encode(&t->encoder, tape, src, src_lens, options->weights);
    return attn__transformer_decode(&t->decoder, tape, tgt_in, encoded, src_lens, options);
}

/* ---------------------------------------------------------------------------------------- step by step */

typedef struct state {
    /* caches of self-attention [rows,room,D], to which each step appends one token */
    attn_nn_kv_cache own[ATTN__MAX_BLOCKS];
    attn_nn_kv_cache cross[ATTN__MAX_BLOCKS]; /* caches of cross-attention [B,Ts,D], which are computed once */
    /* scratch buffer for moving rows of the caches `own`; only its tensor k is used */
    attn_nn_kv_cache spare;
    /* tracks which rows of the caches `own` share tokens; used if each sentence has several rows */
    attn__lineage lineage;
} state;

static const transformer *self_of(const attn_decoding *decoding)
{
    return decoding->model->self;
}

/* Number of tokens for which the caches have room at the start. It is small, because most translations are far
 * shorter than the model's maximum. */
enum { FIRST_ROOM = 32 };
/* Number of tokens, over all rows, that are moved at a time when hypotheses are reordered. */
enum { REORDER_TOKENS = 8 };

/* Returns the type of the caches of self-attention. The type is bf16 if two conditions are met. First, attention
 * would round keys and values to bf16 anyway. Second, `decode` is the best solver for one query, because `decode`
 * can read bf16 keys with f32 queries. */
static attn_dtype own_dtype(const attn_decoding *decoding, const attn_tape *tape)
{
    enum { NARROW = 16 };
    const attn_nn_multi_head *layer = &self_of(decoding)->decoder.block[0].attention1;
    bool rounds = attn__rounds(tape) && decoding->model->dtype == ATTN_F32;
    bool best = layer->hidden > NARROW * layer->heads && !decoding->model->context->batch_invariant;
    return rounds && best ? ATTN_BF16 : decoding->model->dtype;
}

static attn_status begin(attn_decoding *decoding, attn_tape *tape, const attn_tensor *src)
{
    const transformer *t = self_of(decoding);
    state *s = decoding->state;
    attn_context *context = decoding->model->context;
    attn_dtype dtype = decoding->model->dtype;
    int64_t rows = attn_decoding_rows(decoding);
    int64_t room = decoding->max_len < FIRST_ROOM ? decoding->max_len : FIRST_ROOM;
    attn_tensor *encoded = attn__transformer_encode(&t->encoder, tape, src, decoding->lens, NULL);
    attn_status status = attn__result_status(context, encoded);
    if (status == ATTN_OK && decoding->width > 1)
        status = attn__lineage_begin(&s->lineage, context, rows, decoding->max_len);
    for (int i = 0; status == ATTN_OK && i < t->decoder.blocks; i++) {
        int64_t dim = attn_tensor_length(encoded, 2);
        status = attn_nn_kv_cache_init(&s->own[i], context, own_dtype(decoding, tape), rows, room, dim);
        if (status == ATTN_OK) {
            status = attn_nn_kv_cache_init(&s->cross[i], context, dtype, decoding->batch,
                                           attn_tensor_length(encoded, 1), dim);
        }
        if (status == ATTN_OK)
            status = attn_nn_multi_head_append(&t->decoder.block[i].attention2, tape, encoded, &s->cross[i]);
    }
    return status;
}

/* Changes the rows of the self-attention caches, or the number of tokens for which they have room. If `rows` is
 * NULL, the rows stay the same. */
static attn_status select_own(attn_decoding *decoding, const int64_t *rows, int64_t n, int64_t room)
{
    state *s = decoding->state;
    attn_status status = ATTN_OK;
    attn_nn_kv_cache_free(&s->spare); /* freed, because `spare` has the old number of rows */
    for (int i = 0; status == ATTN_OK && i < self_of(decoding)->decoder.blocks; i++)
        status = attn_nn_kv_cache_select(&s->own[i], decoding->model->context, rows, n, room);
    return status;
}

static attn_status make_room(attn_decoding *decoding)
{
    const state *s = decoding->state;
    int64_t room = attn_tensor_length(s->own[0].k, 1), most = decoding->max_len;
    if (s->own[0].length < room || room == most)
        return ATTN_OK;
    return select_own(decoding, NULL, attn_decoding_rows(decoding), room < most - room ? 2 * room : most);
}

static attn_tensor *step(attn_decoding *decoding, attn_tape *tape, const attn_tensor *tokens)
{
    const attn__transformer_decoder *d = &self_of(decoding)->decoder;
    state *s = decoding->state;
    attn_nn_mask cross = {.valid_lens = decoding->lens, .fill = d->fill};
    int64_t rows = attn_decoding_rows(decoding);
    if (d->blocks > 0 && make_room(decoding) != ATTN_OK)
        return NULL;
    if (decoding->width > 1)
        attn__lineage_step(&s->lineage, decoding->step);
    attn_tensor *column = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){rows, 1}, attn_tensor_data(tokens));
    int64_t position = decoding->first_position ? 0 : decoding->step;
    attn_tensor *x = attn__transformer_front_forward(&d->front, tape, column, position);
    for (int i = 0; i < d->blocks; i++) {
        attn_scope_begin(tape);
        x = attn_nn_decoder_block_step(&d->block[i], tape, x, &s->own[i], &s->cross[i], &cross);
        x = attn_scope_end(tape, x);
    }
    x = attn__shortlist_output(decoding->shortlist, tape, &d->dense, attn__transformer_norm(&d->norm, tape, x));
    return attn_reshape(tape, x, 2, (int64_t[]){rows, -1});
}

/* Only the self-attention caches are reordered, because all hypotheses of a sentence share the keys and values of the
 * encoder. */
static attn_status reorder(attn_decoding *decoding, const int64_t *rows)
{
    state *s = decoding->state;
    attn__lineage_reorder(&s->lineage, rows, decoding->step);
    for (int i = 0; i < self_of(decoding)->decoder.blocks; i++) {
        if (!s->spare.k) {
            const int64_t *own = attn_tensor_shape(s->own[i].k), shape[3] = {own[0], REORDER_TOKENS, own[2]};
            attn_status status =
                attn_tensor_create(&s->spare.k, decoding->model->context, attn_tensor_dtype(s->own[i].k), 3, shape);
            if (status != ATTN_OK)
                return status;
        }
        attn_nn_kv_cache_reorder(&s->own[i], &s->spare, rows, s->lineage.shared);
    }
    return ATTN_OK;
}

static attn_status select_rows(attn_decoding *decoding, const int64_t *sentences, int64_t n, const int64_t *rows)
{
    state *s = decoding->state;
    int blocks = self_of(decoding)->decoder.blocks;
    if (decoding->width > 1)
        attn__lineage_select(&s->lineage, rows, n * decoding->width, decoding->step);
    attn_status status =
        blocks ? select_own(decoding, rows, n * decoding->width, attn_tensor_length(s->own[0].k, 1)) : ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < blocks; i++) {
        status = attn_nn_kv_cache_select(&s->cross[i], decoding->model->context, sentences, n,
                                         attn_tensor_length(s->cross[i].k, 1));
    }
    return status;
}

static void end(attn_decoding *decoding)
{
    state *s = decoding->state;
    for (int i = 0; i < self_of(decoding)->decoder.blocks; i++) {
        attn_nn_kv_cache_free(&s->own[i]);
        attn_nn_kv_cache_free(&s->cross[i]);
    }
    attn_nn_kv_cache_free(&s->spare);
    attn__lineage_end(&s->lineage, decoding->model->context);
}

static const attn__seq2seq seq2seq = {.forward = forward,
                                      .state_size = sizeof(state),
                                      .begin = begin,
                                      .step = step,
                                      .reorder = reorder,
                                      .select = select_rows,
                                      .end = end};

/* clang-format off */
#define HALF_KEY(name, most, doc) {name, ATTN_CONFIG_TYPE_INT, "", 0, most, NULL, doc}
/* clang-format on */
static const attn_setting keys[] = {
    ATTN__KEYS_VOCABULARIES,
    ATTN__KEYS_TRANSFORMER,
    ATTN__KEY_FLAG("use_bias", "false", "biases of the encoder's projections"),
    ATTN__KEY_FLAG("decoder_bias", "false", "biases of the decoder's projections; the book has none"),
    ATTN__KEY_FLAG("output_bias", "true", "a bias of the output layer"),
    ATTN__KEY_FLAG("encoder_norm", "false", "a norm behind the encoder's last block"),
    ATTN__KEY_FLAG("decoder_norm", "false", "a norm behind the decoder's last block"),
    {"tie", ATTN_CONFIG_TYPE_TEXT, "none", 0, 0, attn__tie_choices,
     "which layers share one table: none; decoder: its embedding and the output layer; all: the encoder's embedding "
     "too"},
    HALF_KEY("enc_num_blks", ATTN__MAX_BLOCKS, "blocks of the encoder; default num_blks"),
    HALF_KEY("dec_num_blks", ATTN__MAX_BLOCKS, "blocks of the decoder; default num_blks"),
    HALF_KEY("enc_num_heads", 1 << 30, "heads of the encoder; default num_heads"),
    HALF_KEY("dec_num_heads", 1 << 30, "heads of the decoder; default num_heads"),
    HALF_KEY("enc_ffn_num_hiddens", 1 << 30, "width of the encoder's feed-forward networks; default ffn_num_hiddens"),
    HALF_KEY("dec_ffn_num_hiddens", 1 << 30, "width of the decoder's feed-forward networks; default ffn_num_hiddens"),
};

const attn__kind attn__kind_transformer = {
    .about = {.name = "transformer",
              .summary =
                  "encoder and causal decoder; depending on the settings that of the book, Marian, fairseq or PyTorch",
              .source = "Vaswani et al. 2017, arXiv:1706.03762; Dive into Deep Learning, 11.7",
              .seq2seq = true,
              ATTN__PORTS(keys, attn__seq2seq_inputs, attn__seq2seq_outputs)},
    .size = sizeof(transformer),
    .build = build,
    .forward = attn__seq2seq_run,
    .seq2seq = &seq2seq,
};
