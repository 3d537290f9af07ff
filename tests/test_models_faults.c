/* SPDX-License-Identifier: MIT
 * Every allocation of a model's life failing in turn: an error, no crash, nothing left behind. */
#include "support/cmocka.h"
#include "support/faults.h"

#include "attn/models.h"

static attn_status translate(attn_model *model)
{
    attn_context *context = attn_model_context(model);
    int32_t ids[6] = {1, 2, 3, 3, 2, 1}, lens[2] = {3, 2};
    attn_tensor *src = NULL, *src_lens = NULL;
    attn_hypothesis results[2];
    attn_status status = attn_tensor_create(&src, context, ATTN_I32, 2, (int64_t[]){2, 3});
    if (status == ATTN_OK) {
        status = attn_tensor_create(&src_lens, context, ATTN_I32, 1, (int64_t[]){2});
    }
    if (status == ATTN_OK) {
        for (int i = 0; i < 6; i++) {
            ((int32_t *)attn_tensor_data(src))[i] = ids[i];
        }
        for (int i = 0; i < 2; i++) {
            ((int32_t *)attn_tensor_data(src_lens))[i] = lens[i];
        }
        attn_translate_options options = {.bos = 1, .eos = 2, .max_len = 4, .beam = 2};
        status = attn_seq2seq_translate(model, src, src_lens, &options, results);
    }
    if (status == ATTN_OK) {
        attn_hypotheses_free(context, results, 2);
    }
    attn_tensor_destroy(src);
    attn_tensor_destroy(src_lens);
    return status;
}

/* One training step with the attention weights wanted. */
static attn_status learn(attn_model *model)
{
    attn_context *context = attn_model_context(model);
    attn_named_list maps = {.context = context};
    attn_tape *tape = NULL;
    attn_status status = attn_tape_create(&tape, context);
    if (status == ATTN_OK) {
        int32_t ids[4] = {1, 3, 3, 0};
        int64_t shape[2] = {2, 2};
        attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true});
        attn_tensor *src = attn_tensor_make(tape, ATTN_I32, 2, shape, ids);
        attn_tensor *tgt = attn_tensor_make(tape, ATTN_I32, 2, shape, ids);
        attn_seq2seq_options options = {.weights = &maps};
        attn_tensor *logits =
            src && tgt ? attn_seq2seq_forward(model, tape, src, NULL, tgt, &options) : NULL;
        attn_tensor *loss = tgt ? attn_cross_entropy(tape, logits, tgt, NULL) : NULL;
        status = loss ? attn_backward(tape, loss) : attn_context_status(context);
    }
    attn_tape_destroy(tape);
    attn_named_clear(&maps);
    return status == ATTN_OK ? attn_context_status(context) : status;
}

static attn_status live(attn_context *context, void *user)
{
    const char *architecture = user;
    attn_config *config = NULL;
    attn_model *model = NULL;
    attn_status status = attn_config_create(&config, context);
    status = status == ATTN_OK ? attn_config_set_int(config, "vocab_size", 5) : status;
    status = status == ATTN_OK ? attn_config_set_int(config, "num_hiddens", 4) : status;
    status = status == ATTN_OK ? attn_config_set_real(config, "dropout", 0.1) : status;
    if (status == ATTN_OK && architecture[0] == 't') {
        status = attn_config_set_int(config, "num_blks", 1);
        status = status == ATTN_OK ? attn_config_set_int(config, "max_len", 8) : status;
    }
    if (status == ATTN_OK) {
        status = attn_model_create(&model, context, architecture, config, NULL);
    }
    attn_config_destroy(config);
    status = status == ATTN_OK ? learn(model) : status;
    status = status == ATTN_OK ? translate(model) : status;
    attn_model_destroy(model);
    return status;
}

static void every_failure_is_survived(void **state)
{
    static char transformer[] = "transformer", recurrent[] = "seq2seq-attention";
    (void)state;
    assert_true(faults_try_all(live, transformer) > 100);
    assert_true(faults_try_all(live, recurrent) > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failure_is_survived)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
