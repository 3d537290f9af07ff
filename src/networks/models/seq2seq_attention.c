/* SPDX-License-Identifier: MIT
 *
 * Defines an encoder and a decoder of gated recurrent units with additive attention (Bahdanau et al. 2014,
 * arXiv:1409.0473). The encoder's states stay in the layout of the recurrent layers, [Ts,B,H]. Attention reads this
 * layout by strides. */
#include "models/seq2seq.h"
#include "models/shortlist.h"
#include "base/context.h"
#include "nn/check.h"
#include "nn/guided.h"
#include "nn/named.h"
#include "tensor/tensor.h"

#include <string.h>

typedef struct encoder {
    attn_nn_embedding embedding;
    attn_nn_gru rnn;
} encoder;

typedef struct bahdanau {
    encoder encoder;
    attn_nn_embedding tgt_embedding;
    attn_nn_gru decoder;
    attn_nn_additive attention;
    attn_nn_linear dense;
    bool pack;
    double fill;
} bahdanau;

/* Registers the encoder's parameters, those of the recurrent layers under the name `rnn`. */
static void encoder_init(encoder *e, attn_nn_builder *builder, const attn_config *config, int64_t vocabulary,
                         const char *rnn)
{
    int64_t embed = attn_config_int(config, "embed_size", 0);
    attn__nn_embedding_named(&e->embedding, builder, "embedding", vocabulary, embed, 0);
    attn_nn_push(builder, rnn);
    attn_nn_gru_init(&e->rnn, builder, embed, attn_config_int(config, "num_hiddens", 0),
                     (int)attn_config_int(config, "num_layers", 0), attn_config_real(config, "dropout", 0));
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    bahdanau *m = self;
    int64_t src = attn__vocabulary_size(builder->context, config, "src_vocab_size");
    int64_t tgt = attn__vocabulary_size(builder->context, config, "tgt_vocab_size");
    int64_t embed = attn_config_int(config, "embed_size", 0), hidden = attn_config_int(config, "num_hiddens", 0);
    int layers = (int)attn_config_int(config, "num_layers", 0);
    double dropout = attn_config_real(config, "dropout", 0);
    m->pack = attn_config_bool(config, "pack_padding", false);
    m->fill = attn_config_real(config, "mask_fill", 0);
    attn_nn_push(builder, "encoder");
    encoder_init(&m->encoder, builder, config, src, "rnn");
    attn_nn_pop(builder);
    attn_nn_push(builder, "decoder.attention");
    attn_nn_additive_init(&m->attention, builder, hidden, hidden, hidden, dropout);
    attn_nn_pop(builder);
    attn__nn_embedding_named(&m->tgt_embedding, builder, "decoder.embedding", tgt, embed, 0);
    attn_nn_push(builder, "decoder.rnn");
    attn_nn_gru_init(&m->decoder, builder, hidden + embed, hidden, layers, dropout);
    attn_nn_pop(builder);
    attn_nn_push(builder, "decoder.dense");
    attn_nn_linear_init(&m->dense, builder, hidden, tgt, true);
    if (m->dense.weight)
        m->dense.weight->table = true;
    attn_nn_pop(builder);
}

/* The encoder's results that the decoder reads: states, states projected to keys, and lengths of the sources. */
typedef struct memory {
    attn_tensor *values, *keys; /* [Ts,B,H] */
    const attn_tensor *lens;
} memory;

/* Transposes ids [B,T] to [T,B], because recurrent layers need time as the first axis. */
static attn_tensor *time_major(attn_tape *tape, const attn_tensor *ids)
{
    int64_t batch = attn_tensor_length(ids, 0), steps = attn_tensor_length(ids, 1);
    attn_tensor *turned = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){steps, batch}, NULL);
    const int32_t *from = attn_tensor_data(ids);
    int32_t *to = turned ? attn_tensor_data(turned) : NULL;
    for (int64_t i = 0; turned && i < batch * steps; i++)
        to[i % steps * batch + i / steps] = from[i];
    return turned;
}

/* Runs the encoder on ids [B,T]. Returns the states [T,B,H]; `hidden` gets the final state of each layer. */
static attn_tensor *encoder_states(const encoder *e, attn_tape *tape, const attn_tensor *ids, const attn_tensor *lens,
                                   attn_tensor **hidden)
{
    attn_tensor *x = attn_nn_embedding_forward(&e->embedding, tape, time_major(tape, ids));
    return attn_nn_gru_forward(&e->rnn, tape, x, hidden, lens);
}

/* `hidden` gets the final state of each layer. */
static memory encode(const bahdanau *m, attn_tape *tape, const attn_tensor *src, const attn_tensor *lens,
                     attn_tensor **hidden)
{
    attn_tensor *states = encoder_states(&m->encoder, tape, src, m->pack ? lens : NULL, hidden);
    return (memory){.values = states, .keys = attn_nn_linear_forward(&m->attention.w_k, tape, states), .lens = lens};
}

/* Runs one step of the decoder on an embedded token x [1,rows,E]. Returns the top layer's new state [1,rows,H] and
 * updates `hidden`. */
static attn_tensor *decode_step(const bahdanau *m, attn_tape *tape, const memory *source, attn_tensor *x,
                                attn_tensor **hidden, attn_tensor **weights, bool guided)
{
    if (!x || !source->keys)
        return NULL;
    attn_nn_mask mask = {.valid_lens = source->lens, .fill = m->fill};
    int64_t batch = attn_tensor_length(source->keys, 1), rows = attn_tensor_length(x, 1), size = m->decoder.hidden;
    attn_tensor *query = attn_reshape(tape, hidden[m->decoder.layers - 1], 3, (int64_t[]){batch, -1, size});
    attn_tensor *context = (guided ? attn__nn_additive_guided : attn_nn_additive_attend)(
        &m->attention, tape, query, source->keys, source->values, true, &mask, weights);
    attn_tensor *both[2] = {attn_reshape(tape, context, 3, (int64_t[]){1, rows, size}), x};
    return attn_nn_gru_forward(&m->decoder, tape, attn_concat(tape, both, 2, 2), hidden, NULL);
}

typedef struct steps {
    int64_t n;
    attn_tensor **state, **weights;
} steps;

static attn_tensor *join(const bahdanau *m, attn_tape *tape, const steps *all, const attn_seq2seq_options *options)
{
    attn_tensor *states = attn_concat(tape, all->state, (int)all->n, 0);
    if ((options->weights || options->guided) && states) {
        attn_tensor *map = attn_concat(tape, all->weights, (int)all->n, 1);
        int64_t batch = attn_tensor_length(states, 1);
        map = attn_reshape(tape, map, 4, (int64_t[]){batch, 1, all->n, -1});
        if (options->weights)
            attn__weights_add(options->weights, "cross", 0, map);
        if (options->guided)
            *options->guided = map;
    }
    return attn_nn_linear_forward(&m->dense, tape, attn_permute(tape, states, (int[]){1, 0, 2}));
}

static attn_tensor *decode(const bahdanau *m, attn_tape *tape, const memory *source, attn_tensor *x,
                           attn_tensor **hidden, const attn_seq2seq_options *options)
{
    _Static_assert(sizeof(attn_tensor *) <= sizeof(int64_t), "a pointer fits an element of the room");
    int64_t n = x ? attn_tensor_length(x, 0) : 0;
    if (x && n == 0)
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "seq2seq-attention: expected at least one target token");
    /* The two arrays of tensor pointers are allocated on the tape, so that the next training step can reuse their
     * memory. */
    attn_tensor *room = n > 0 ? attn_tape_tensor(tape, ATTN_I64, 1, (int64_t[]){2 * n}, NULL) : NULL;
    if (!room)
        return NULL;
    attn_tensor **slots = attn_tensor_data(room);
    steps all = {.n = n, .state = slots, .weights = slots + n};
    for (int64_t t = 0; t < n; t++) {
        attn_tensor *token = attn_slice(tape, x, 0, t, t + 1);
        attn_tensor **weights = options->weights || options->guided ? &all.weights[t] : NULL;
        all.state[t] = decode_step(m, tape, source, token, hidden, weights, options->guided != NULL);
    }
    return join(m, tape, &all, options);
}

static attn_tensor *forward(const void *self, attn_tape *tape, const attn_tensor *src, const attn_tensor *src_lens,
                            const attn_tensor *tgt_in, const attn_seq2seq_options *options)
{
    const bahdanau *m = self;
    attn_tensor *hidden[ATTN_NN_MAX_GRU_LAYERS] = {0};
    memory source = encode(m, tape, src, src_lens, hidden);
    attn_tensor *x = attn_nn_embedding_forward(&m->tgt_embedding, tape, time_major(tape, tgt_in));
    return source.keys ? decode(m, tape, &source, x, hidden, options) : NULL;
}

/* ---------------------------------------------------------------------------------------- step by step */

typedef struct state {
    attn_tensor *values, *keys;                  /* copies of the encoder's states and keys */
    attn_tensor *hidden[ATTN_NN_MAX_GRU_LAYERS]; /* [rows,H] */
    attn_tensor *spare;
} state;

static const bahdanau *self_of(const attn_decoding *decoding)
{
    return decoding->model->self;
}

/* Copies rows of `from` to `to`: row i of `to` becomes row rows[i] of `from`. If `rows` is NULL, each row of `from`
 * is repeated `width` times. */
static void copy_rows(attn_tensor *to, const attn_tensor *from, const int64_t *rows, int64_t width)
{
    size_t bytes = (size_t)attn_tensor_length(to, 1) * attn_dtype_size(attn_tensor_dtype(to));
    for (int64_t i = 0; i < attn_tensor_length(to, 0); i++) {
        size_t source = (size_t)(rows ? rows[i] : i / width);
        memcpy((char *)attn_tensor_data(to) + (size_t)i * bytes, (const char *)attn_tensor_data(from) + source * bytes,
               bytes);
    }
}

static attn_status begin(attn_decoding *decoding, attn_tape *tape, const attn_tensor *src)
{
    const bahdanau *m = self_of(decoding);
    state *s = decoding->state;
    attn_context *context = decoding->model->context;
    attn_tensor *hidden[ATTN_NN_MAX_GRU_LAYERS] = {0};
    int64_t shape[2] = {attn_decoding_rows(decoding), m->decoder.hidden};
    memory source = encode(m, tape, src, decoding->lens, hidden);
    if (!source.keys)
        return attn__result_status(context, source.keys);
    s->values = attn__tensor_keep(context, source.values);
    s->keys = attn__tensor_keep(context, source.keys);
    attn_status status = attn_tensor_create(&s->spare, context, decoding->model->dtype, 2, shape);
    for (int l = 0; status == ATTN_OK && l < m->decoder.layers; l++) {
        status = attn_tensor_create(&s->hidden[l], context, decoding->model->dtype, 2, shape);
        if (status == ATTN_OK)
            copy_rows(s->hidden[l], hidden[l], NULL, decoding->width);
    }
    return s->values && s->keys ? status : attn__result_status(context, NULL);
}

static attn_tensor *step(attn_decoding *decoding, attn_tape *tape, const attn_tensor *tokens)
{
    const bahdanau *m = self_of(decoding);
    state *s = decoding->state;
    attn_tensor *hidden[ATTN_NN_MAX_GRU_LAYERS];
    memory source = {.values = s->values, .keys = s->keys, .lens = decoding->lens};
    int64_t rows = attn_decoding_rows(decoding);
    attn_tensor *ids = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, rows}, attn_tensor_data(tokens));
    memcpy(hidden, s->hidden, sizeof hidden);
    attn_tensor *x = attn_nn_embedding_forward(&m->tgt_embedding, tape, ids);
    attn_tensor *top = decode_step(m, tape, &source, x, hidden, NULL, false);
    attn_tensor *logits = attn__shortlist_output(decoding->shortlist, tape, &m->dense, top);
    for (int l = 0; logits && l < m->decoder.layers; l++)
        copy_rows(s->hidden[l], hidden[l], NULL, 1);
    return attn_reshape(tape, logits, 2, (int64_t[]){rows, -1});
}

static attn_status reorder(attn_decoding *decoding, const int64_t *rows)
{
    state *s = decoding->state;
    for (int l = 0; l < self_of(decoding)->decoder.layers; l++) {
        attn_tensor *old = s->hidden[l];
        copy_rows(s->spare, old, rows, 1);
        s->hidden[l] = s->spare;
        s->spare = old;
    }
    return ATTN_OK;
}

static attn_status select_rows(attn_decoding *decoding, const int64_t *sentences, int64_t n, const int64_t *rows)
{
    attn_context *context = decoding->model->context;
    state *s = decoding->state;
    attn_status status = attn__tensor_select(&s->values, context, 1, sentences, n);
    if (status == ATTN_OK)
        status = attn__tensor_select(&s->keys, context, 1, sentences, n);
    if (status == ATTN_OK)
        status = attn__tensor_select(&s->spare, context, 0, rows, n * decoding->width);
    for (int l = 0; status == ATTN_OK && l < self_of(decoding)->decoder.layers; l++)
        status = attn__tensor_select(&s->hidden[l], context, 0, rows, n * decoding->width);
    return status;
}

static void end(attn_decoding *decoding)
{
    state *s = decoding->state;
    for (int l = 0; l < self_of(decoding)->decoder.layers; l++)
        attn_tensor_destroy(s->hidden[l]);
    attn_tensor_destroy(s->spare);
    attn_tensor_destroy(s->keys);
    attn_tensor_destroy(s->values);
}

static const attn__seq2seq seq2seq = {.forward = forward,
                                      .state_size = sizeof(state),
                                      .begin = begin,
                                      .step = step,
                                      .reorder = reorder,
                                      .select = select_rows,
                                      .end = end};

static const attn_setting keys[] = {
    ATTN__KEYS_VOCABULARIES,
    ATTN__KEY_COUNT("embed_size", "256", "channels of the embeddings"),
    ATTN__KEY_COUNT("num_hiddens", "256", "channels of the recurrent states and of the attention"),
    {"num_layers", ATTN_CONFIG_TYPE_INT, "2", 1, ATTN_NN_MAX_GRU_LAYERS, NULL,
     "recurrent layers, in encoder and decoder"},
    ATTN__KEY_DROPOUT,
    ATTN__KEY_FLAG("pack_padding", "false",
                   "the decoder starts from the encoder's state at the end of each sentence; false: behind its "
                   "padding, as in the book, so that results depend on how much there is"),
    ATTN__KEY_FILL,
    ATTN__KEY_INIT,
};

const attn__kind attn__kind_seq2seq_attention = {
    .about = {.name = "seq2seq-attention",
              .summary = "gated recurrent encoder and decoder with additive attention",
              .source = "Bahdanau et al. 2014, arXiv:1409.0473; Dive into Deep Learning, 11.4",
              .seq2seq = true,
              ATTN__PORTS(keys, attn__seq2seq_inputs, attn__seq2seq_outputs)},
    .size = sizeof(bahdanau),
    .build = build,
    .forward = attn__seq2seq_run,
    .seq2seq = &seq2seq,
};

/* ------------------------------------------------------------------------------- the encoder alone */

static void encoder_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    encoder_init(self, builder, config, attn_config_int(config, "vocab_size", 0), "rnn.rnn");
}

/* Joins the final states [B,H] of the layers to [layers,B,H]. */
static attn_tensor *joined_layers(attn_tape *tape, attn_tensor **hidden, int layers)
{
    for (int l = 0; l < layers; l++) {
        if (!hidden[l])
            return NULL;
        int64_t shape[3] = {1, attn_tensor_length(hidden[l], 0), attn_tensor_length(hidden[l], 1)};
        hidden[l] = attn_reshape(tape, hidden[l], 3, shape);
    }
    return attn_concat(tape, hidden, layers, 0);
}

static void encoder_forward(const void *self, const attn__call *call)
{
    const encoder *e = self;
    attn_tensor *hidden[ATTN_NN_MAX_GRU_LAYERS] = {0}, *tokens = attn__call_input(call, "tokens"), *slot;
    if (!attn__nn_has_rank(call->tape, tokens, 2, "seq2seq-encoder: tokens"))
        return;
    attn__call_output(call, "out", encoder_states(e, call->tape, tokens, NULL, hidden));
    if (attn__wanted(call, "state", &slot))
        attn__call_output(call, "state", joined_layers(call->tape, hidden, e->rnn.layers));
}

static const attn_setting encoder_keys[] = {
    ATTN__KEY_COUNT("vocab_size", NULL, "size of the vocabulary"),
    ATTN__KEY_COUNT("embed_size", NULL, "channels of the embeddings"),
    ATTN__KEY_COUNT("num_hiddens", NULL, "channels of the recurrent states"),
    {"num_layers", ATTN_CONFIG_TYPE_INT, NULL, 1, ATTN_NN_MAX_GRU_LAYERS, NULL, "recurrent layers"},
    ATTN__KEY_DROPOUT,
    ATTN__KEY_INIT,
};
static const attn_port encoder_inputs[] = {ATTN__PORT_IDS("tokens", "(b,t)", "ids below vocab_size")};
static const attn_port encoder_outputs[] = {
    ATTN__PORT("out", "(t,b,num_hiddens)", "states of the last layer"),
    ATTN__PORT_OPTIONAL("state", "(num_layers,b,num_hiddens)", "the last state of each layer"),
};

const attn__kind attn__kind_seq2seq_encoder = {
    .about = {.name = "seq2seq-encoder",
              .summary = "an embedding and layers of gated recurrent units",
              .source = "Cho et al. 2014, arXiv:1406.1078; Dive into Deep Learning, 10.7",
              ATTN__PORTS(encoder_keys, encoder_inputs, encoder_outputs)},
    .size = sizeof(encoder),
    .build = encoder_build,
    .forward = encoder_forward,
};
