/* SPDX-License-Identifier: MIT
 *
 * Searches the outputs of a sequence-to-sequence model, greedily or with a beam.
 */
#include "models/beam.h"
#include "models/kind.h"
#include "models/shortlist.h"

#include "base/context.h"
#include "tensor/packed_weights.h"

#include <string.h>

/* Reorders the model's rows in the order of the hypotheses, and removes finished sentences from the model's batch.
 * `places` is a scratch array with one element per sentence. */
static attn_status follow(attn_decoding *decoding, attn__beam *beam, int64_t *places)
{
    int64_t n;
    attn_status status = attn_decoding_reorder(decoding, beam->rows);
    if (status == ATTN_OK && attn__beam_leave(beam, places, &n))
        status = attn__decoding_select(decoding, places, n);
    return status;
}

static attn_status run_steps(attn_decoding *decoding, attn__beam *beam, attn_tape *tape, int64_t *places)
{
    attn_status status = ATTN_OK;
    bool left = true;
    while (status == ATTN_OK && left) {
        int64_t rows = attn_decoding_rows(decoding);
        attn_tape_reset(tape, &(attn_tape_options){0});
        attn_tensor *tokens = attn_tape_tensor(tape, ATTN_I32, 1, &rows, beam->tokens);
        attn_tensor *logits = tokens ? attn_decoding_step(decoding, tape, tokens) : NULL;
        left = logits && attn__beam_advance(beam, logits);
        status = attn__result_status(beam->context, logits);
        if (left)
            status = follow(decoding, beam, places);
    }
    return status;
}

static attn_status decode(attn_decoding *decoding, attn__beam *beam, attn_tape *tape)
{
    int64_t *places = attn__alloc(beam->context, attn__size_mul((size_t)beam->batch, sizeof *places));
    attn_status status = places ? run_steps(decoding, beam, tape, places) : ATTN_ERROR_MEMORY;
    attn__free(beam->context, places);
    return status;
}

attn_status attn__seq2seq_search(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                 const attn_tensor *src_lens, const attn_beam_search_options *options,
                                 attn_hypothesis *results)
{
    attn_decoding *decoding = NULL;
    attn__shortlist shortlist = {0};
    attn__beam beam = {.context = model->context};
    attn_decoding_options o = {
        .max_len = options->max_len, .beam = options->beam, .first_position = options->first_position};
    int64_t vocabulary =
        attn_config_int(model->config, "tgt_vocab_size", attn_config_int(model->config, "vocab_size", 0));
    attn_tape_reset(tape, &(attn_tape_options){0});
    attn_status status = attn__packed_weights_begin(tape);
    if (status != ATTN_OK)
        return status;
    status = attn_decoding_create(&decoding, model, tape, src, src_lens, &o);
    attn_tape_reset(tape, &(attn_tape_options){0});
    attn__pool_trim(tape->pool); /* free the memory that the encoder needed, because a decoding step needs far less */
    if (status == ATTN_OK)
        status = attn__beam_create(&beam, model->context, attn_tensor_length(src, 0), vocabulary, options);
    if (status == ATTN_OK)
        status = attn__shortlist_create(&shortlist, model->context, attn_tensor_length(src, 0), vocabulary, options);
    if (status == ATTN_OK && shortlist.n > 0) {
        decoding->shortlist = &shortlist;
        status = attn__beam_limit(&beam, &shortlist);
    }
    if (status == ATTN_OK)
        status = decode(decoding, &beam, tape);
    attn__shortlist_destroy(&shortlist, tape);
    attn__packed_weights_end(tape);
    if (status == ATTN_OK)
        status = attn__beam_results(&beam, results);
    attn__beam_destroy(&beam);
    attn_decoding_destroy(decoding);
    return status;
}

attn_status attn_seq2seq_translate(attn_model *model, const attn_tensor *src, const attn_tensor *src_lens,
                                   const attn_beam_search_options *options, attn_hypothesis *results)
{
    ATTN__CALL(model->context);
    if (ATTN__CHECK_RESERVED(model->context, options, attn_beam_search_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_tape *tape = NULL;
    if (!options || (options->bos == 0 && options->eos == 0)) {
        return attn__fail(
            model->context, ATTN_ERROR_ARGUMENT,
            "attn_beam_search_options must give bos and eos, the tokens that a sentence starts and ends with; %s",
            options ? "both are 0" : "there are no options");
    }
    attn_status status = attn_tape_create(&tape, model->context);
    if (status == ATTN_OK)
        status = attn__seq2seq_search(model, tape, src, src_lens, options, results);
    attn_tape_destroy(tape);
    return status;
}

void attn_hypotheses_free(attn_context *context, attn_hypothesis *results, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        attn__free(context, results[i].ids);
        results[i] = (attn_hypothesis){0};
    }
}
