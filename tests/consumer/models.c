/* SPDX-License-Identifier: MIT
 *
 * models.h: a small Transformer is made, run, saved and loaded. The argument is the folder of the model. */
#include <attn/models.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { SOURCE = 5, TARGET = 4, WORDS = 11 };

/* Computes the logits of a model, which the tape keeps until its reset. */
static const float *logits(attn_model *model, attn_tape *tape, const int32_t *source, const int32_t *target)
{
    attn_tensor *src = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, SOURCE}, source);
    attn_tensor *tgt = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, TARGET}, target);
    attn_tensor *result = attn_seq2seq_forward(model, tape, src, NULL, tgt, NULL);
    CHECK(result && attn_tensor_size(result) == TARGET * WORDS);
    return attn_tensor_data(result);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);

    /* The table of an architecture tells its settings. A wrong one is refused with a message. */
    const attn_architecture *transformer = attn_architecture_find("transformer");
    CHECK(transformer && transformer->seq2seq && !attn_architecture_find("perceptron"));
    attn_config *config;
    attn_model *model, *loaded;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    CHECK(attn_config_set_int(config, "src_vocab_size", 9) == ATTN_OK);
    CHECK(attn_config_set_int(config, "tgt_vocab_size", WORDS) == ATTN_OK);
    CHECK(attn_config_set_int(config, "num_hiddens", 16) == ATTN_OK);
    CHECK(attn_config_set_int(config, "num_heads", 3) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "transformer", config, NULL) == ATTN_ERROR_ARGUMENT && !model);
    printf("models: %s\n", attn_context_error(context));
    CHECK(attn_config_set_int(config, "num_heads", 4) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "transformer", config, &(attn_model_options){.seed = 1}) == ATTN_OK);
    CHECK(attn_model_save(model, folder) == ATTN_OK);
    CHECK(attn_model_load(&loaded, context, folder, NULL) == ATTN_OK);
    CHECK(attn_model_architecture(loaded) == transformer);
    CHECK(attn_config_int(attn_model_config(loaded), "num_hiddens", 0) == 16);

    /* The decoder is causal: another last word changes only the last logits. The loaded model has the same bits. */
    const int32_t source[SOURCE] = {3, 4, 5, 6, 7}, target[TARGET] = {1, 2, 3, 4}, changed[TARGET] = {1, 2, 3, 5};
    attn_tape *tape;
    CHECK(attn_tape_create(&tape, context) == ATTN_OK);
    const float *first = logits(model, tape, source, target), *second = logits(model, tape, source, changed);
    CHECK(memcmp(first, second, (TARGET - 1) * WORDS * sizeof *first) == 0);
    CHECK(memcmp(first, second, TARGET * WORDS * sizeof *first) != 0);
    CHECK(memcmp(first, logits(loaded, tape, source, target), TARGET * WORDS * sizeof *first) == 0);

    /* The first word of a greedy search has the largest logit behind the start token. */
    attn_tensor *src = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, SOURCE}, source);
    attn_hypothesis best;
    attn_beam_search_options options = {.bos = target[0], .eos = WORDS - 1, .max_len = 6, .min_len = 2};
    CHECK(attn_seq2seq_translate(model, src, NULL, &options, &best) == ATTN_OK);
    int likeliest = 0;
    for (int i = 1; i < WORDS - 1; i++)
        if (first[i] > first[likeliest])
            likeliest = i;
    CHECK(best.n >= 1 && best.n <= 6 && best.ids[0] == likeliest && best.log_prob < 0);

    /* Any architecture runs on named inputs. */
    attn_model *attention;
    CHECK(attn_model_create(&attention, context, "dot-product-attention", NULL, NULL) == ATTN_OK);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    const float one[2] = {1, 0}, keys[2][2] = {{0, 0}, {1.41421356f, 0}}, values[2] = {0, 1};
    CHECK(attn_named_add(&inputs, "queries", attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){1, 1, 2}, one)) ==
          ATTN_OK);
    CHECK(attn_named_add(&inputs, "keys", attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){1, 2, 2}, keys)) == ATTN_OK);
    CHECK(attn_named_add(&inputs, "values", attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){1, 2, 1}, values)) ==
          ATTN_OK);
    CHECK(attn_model_forward(attention, tape, &inputs, &outputs) == ATTN_OK);
    CHECK(fabs(*(float *)attn_tensor_data(outputs.items[0].tensor) - 1 / (1 + exp(-1))) < 1e-6);

    attn_hypotheses_free(context, &best, 1);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    attn_tape_destroy(tape);
    attn_model_destroy(attention);
    attn_model_destroy(loaded);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
