/* SPDX-License-Identifier: MIT
 *
 * Implements the functions that all sequence-to-sequence models share. They run a model on a whole sequence, or keep
 * the state of decoding between steps.
 */
#include "models/seq2seq.h"

#include "base/context.h"
#include "tensor/tape_state.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <string.h>

const attn_port attn__seq2seq_inputs[3] = {
    ATTN__PORT_IDS("tokens", "(b,s)", "source ids"),
    ATTN__PORT_LENS("(b)"),
    ATTN__PORT_IDS("tgt_tokens", "(b,t)", "target ids, each sentence behind its start token"),
};
const attn_port attn__seq2seq_outputs[4] = {
    ATTN__PORT("logits", "(b,t,tgt_vocab_size)", "of the next token"),
    ATTN__PORT_OPTIONAL("encoder_weights", "(layers,b,h,s,s)", "the encoder's self-attention, where it has one"),
    ATTN__PORT_OPTIONAL("decoder_weights", "(layers,b,h,t,t)", "the decoder's self-attention, where it has one"),
    ATTN__PORT_OPTIONAL("cross_weights", "(layers,b,h,t,s)", "the decoder's attention to the source"),
};

int64_t attn__vocabulary_size(attn_context *context, const attn_config *config, const char *key)
{
    int64_t n = attn_config_int(config, key, attn_config_int(config, "vocab_size", 0));
    if (n < 1)
        attn__fail(context, ATTN_ERROR_ARGUMENT, "the key \"%s\" (or vocab_size) is missing", key);
    return n < 1 ? 1 : n;
}

attn_tensor *attn__tensor_keep(attn_context *context, const attn_tensor *x)
{
    attn_tensor *y = NULL;
    if (x &&
        attn_tensor_create(&y, context, attn_tensor_dtype(x), attn_tensor_rank(x), attn_tensor_shape(x)) == ATTN_OK) {
        memcpy(attn_tensor_data(y), attn_tensor_data(x),
               (size_t)attn_tensor_size(x) * attn_dtype_size(attn_tensor_dtype(x)));
    }
    return y;
}

attn_status attn__tensor_select(attn_tensor **x, attn_context *context, int axis, const int64_t *which, int64_t n)
{
    attn_tensor *y = NULL;
    int64_t shape[ATTN_MAX_RANK], outer = 1, old = attn_tensor_length(*x, axis);
    size_t bytes = attn_dtype_size(attn_tensor_dtype(*x));
    int rank = attn_tensor_rank(*x);
    for (int i = 0; i < rank; i++) {
        shape[i] = i == axis ? n : attn_tensor_length(*x, i);
        outer *= i < axis ? shape[i] : 1;
        bytes *= i > axis ? (size_t)shape[i] : 1;
    }
    attn_status status = attn_tensor_create(&y, context, attn_tensor_dtype(*x), rank, shape);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = 0; i < outer * n; i++) {
        size_t from = (size_t)(i / n * old + which[i % n]);
        memcpy((char *)attn_tensor_data(y) + (size_t)i * bytes, (const char *)attn_tensor_data(*x) + from * bytes,
               bytes);
    }
    attn_tensor_destroy(*x);
    *x = y;
    return ATTN_OK;
}

static bool is_ids(attn_context *context, const attn_tensor *x, int rank, int64_t batch, const char *what)
{
    if (!x) {
        attn__fail(context, ATTN_ERROR_ARGUMENT, "%s are missing", what);
        return false;
    }
    if (attn_tensor_dtype(x) != ATTN_I32 || attn_tensor_rank(x) != rank ||
        (batch >= 0 && attn_tensor_length(x, 0) != batch)) {
        char found[ATTN__SHAPE_TEXT];
        if (batch < 0)
            attn__fail(context, ATTN_ERROR_SHAPE, "%s: expected i32 of %d axes, found %s %s", what, rank,
                       attn_dtype_name(attn_tensor_dtype(x)), attn__shape_text(x, found));
        else
            attn__fail(context, ATTN_ERROR_SHAPE,
                       "%s: expected i32 of %d axes, the first of length %lld (the batch); found %s %s", what, rank,
                       (long long)batch, attn_dtype_name(attn_tensor_dtype(x)), attn__shape_text(x, found));
        return false;
    }
    return true;
}

static const attn__seq2seq *seq2seq_of(const attn_model *model)
{
    if (!model->kind->seq2seq) {
        attn__fail(model->context, ATTN_ERROR_UNSUPPORTED, "%s is not an architecture from sequences to sequences",
                   model->kind->about.name);
    }
    return model->kind->seq2seq;
}

static bool sources_fit(attn_context *context, const attn_tensor *src, const attn_tensor *lens)
{
    return is_ids(context, src, 2, -1, "source tokens") &&
           (!lens || is_ids(context, lens, 1, attn_tensor_length(src, 0), "source lengths"));
}

attn_tensor *attn_seq2seq_forward(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                  const attn_tensor *src_lens, const attn_tensor *tgt_in,
                                  const attn_seq2seq_options *options)
{
    ATTN__TAPE_CALL(attn_tape_context(tape));
    if (ATTN__CHECK_RESERVED(model->context, options, attn_seq2seq_options) != ATTN_OK)
        return NULL;
    const attn__seq2seq *s = seq2seq_of(model);
    attn_seq2seq_options o = options ? *options : (attn_seq2seq_options){0};
    if (!s || !sources_fit(model->context, src, src_lens) ||
        !is_ids(model->context, tgt_in, 2, attn_tensor_length(src, 0), "target tokens"))
        return NULL;
    if (!attn__model_begin(model, tape))
        return NULL;
    if (o.guided)
        *o.guided = NULL;
    uint64_t failures = model->context->failures;
    attn_tensor *logits = s->forward(model->self, tape, src, src_lens, tgt_in, &o);
    attn__model_end(tape);
    /* Fails if requested maps are missing because there was no memory. Otherwise the caller could mistake the
     * incomplete maps for a result. */
    return o.weights && model->context->failures != failures ? NULL : logits;
}

void attn__seq2seq_run(const void *self, const attn__call *call)
{
    static const char *const parts[] = {"encoder", "decoder", "cross"};
    attn_context *context = attn_tape_context(call->tape);
    attn_named_list maps = {.context = context};
    attn_tensor *src = attn__call_input(call, "tokens"), *lens = attn__call_input(call, "valid_lens");
    attn_tensor *tgt = attn__call_input(call, "tgt_tokens"), *slot;
    bool wanted = false;
    for (int i = 1; i < 4; i++)
        wanted = wanted || attn__wanted(call, attn__seq2seq_outputs[i].name, &slot);
    if (!sources_fit(context, src, lens) || !is_ids(context, tgt, 2, attn_tensor_length(src, 0), "target tokens"))
        return;
    attn_seq2seq_options options = {.weights = wanted ? &maps : NULL};
    attn__call_output(call, "logits", call->model->kind->seq2seq->forward(self, call->tape, src, lens, tgt, &options));
    for (int i = 0; i < 3; i++)
        if (attn__wanted(call, attn__seq2seq_outputs[i + 1].name, &slot))
            attn__call_output(call, attn__seq2seq_outputs[i + 1].name, attn__stack(call->tape, &maps, parts[i]));
    attn_named_clear(&maps);
}

/* ------------------------------------------------------------------------------------------ decoding */

static attn_decoding *begin(attn_model *model, attn_tape *tape, const attn_tensor *src, const attn_tensor *src_lens,
                            const attn_decoding_options *o)
{
    attn_decoding *d = attn__alloc_zero(model->context, sizeof *d);
    if (!d)
        return NULL;
    d->model = model;
    d->batch = attn_tensor_length(src, 0);
    d->width = o->beam > 0 ? o->beam : 1;
    d->max_len = o->max_len > 0 ? o->max_len : 64;
    d->first_position = o->first_position;
    d->lens = attn__tensor_keep(model->context, src_lens);
    d->state = attn__alloc_zero(model->context, model->kind->seq2seq->state_size);
    bool done = d->state && (!src_lens || d->lens) && attn__model_begin(model, tape);
    if (done) {
        done = model->kind->seq2seq->begin(d, tape, src) == ATTN_OK;
        attn__model_end(tape);
    }
    if (!done) {
        attn_decoding_destroy(d);
        return NULL;
    }
    return d;
}

attn_status attn_decoding_create(attn_decoding **decoding, attn_model *model, attn_tape *tape, const attn_tensor *src,
                                 const attn_tensor *src_lens, const attn_decoding_options *options)
{
    ATTN__CALL(model->context);
    attn_decoding_options o = options ? *options : (attn_decoding_options){0};
    *decoding = NULL;
    if (seq2seq_of(model) && sources_fit(model->context, src, src_lens))
        *decoding = begin(model, tape, src, src_lens, &o);
    return attn__result_status(model->context, *decoding);
}

void attn_decoding_destroy(attn_decoding *decoding)
{
    if (!decoding)
        return;
    attn_context *context = decoding->model->context;
    if (decoding->state)
        decoding->model->kind->seq2seq->end(decoding);
    attn_tensor_destroy(decoding->lens);
    attn__free(context, decoding->state);
    attn__free(context, decoding);
}

attn_tensor *attn_decoding_step(attn_decoding *decoding, attn_tape *tape, const attn_tensor *tokens)
{
    ATTN__TAPE_CALL(attn_tape_context(tape));
    attn_context *context = decoding->model->context;
    if (!is_ids(context, tokens, 1, attn_decoding_rows(decoding), "tokens of a step"))
        return NULL;
    if (decoding->step >= decoding->max_len) {
        attn__fail(context, ATTN_ERROR_SHAPE, "decoding: step %" PRId64 " was requested, but max_len is %" PRId64,
                   decoding->step + 1, decoding->max_len);
        return NULL;
    }
    if (!attn__model_begin(decoding->model, tape))
        return NULL;
    attn_tensor *logits = decoding->model->kind->seq2seq->step(decoding, tape, tokens);
    attn__model_end(tape);
    decoding->step += logits != NULL;
    return logits;
}

attn_status attn_decoding_reorder(attn_decoding *decoding, const int64_t *rows)
{
    ATTN__CALL(decoding->model->context);
    int64_t n = attn_decoding_rows(decoding);
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        if (rows[i] < 0 || rows[i] >= n || rows[i] / decoding->width != i / decoding->width) {
            return attn__fail(decoding->model->context, ATTN_ERROR_ARGUMENT,
                              "decoding: row %" PRId64 " cannot continue row %" PRId64
                              "; it can continue only the rows %" PRId64 " to %" PRId64 " of its sentence",
                              i, rows[i], i - i % decoding->width, i - i % decoding->width + decoding->width - 1);
        }
        same = same && rows[i] == i;
    }
    return same ? ATTN_OK : decoding->model->kind->seq2seq->reorder(decoding, rows);
}

attn_status attn__decoding_select(attn_decoding *decoding, const int64_t *sentences, int64_t n)
{
    attn_context *context = decoding->model->context;
    int64_t width = decoding->width;
    int64_t *rows = attn__alloc(context, attn__size_mul(attn__size_mul((size_t)n, (size_t)width), sizeof *rows));
    if (!rows)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n * width; i++)
        rows[i] = sentences[i / width] * width + i % width;
    attn_status status = decoding->model->kind->seq2seq->select(decoding, sentences, n, rows);
    if (status == ATTN_OK && decoding->lens)
        status = attn__tensor_select(&decoding->lens, context, 0, sentences, n);
    decoding->batch = status == ATTN_OK ? n : decoding->batch;
    attn__free(context, rows);
    return status;
}

int64_t attn_decoding_rows(const attn_decoding *decoding)
{
    return decoding->batch * decoding->width;
}
