/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Lets each allocation in the life of a model fail. Each failure must give an error, without a crash or a leak.
 */
#include "support/cmocka.h"
#include "support/faults.h"
#include "support/small_models.h"

#include <stdio.h>
#include <string.h>

#include "attn/models.h"
#include "models/kind.h"
#include "tensor/tape_state.h"
#include "tensor/parts.h"

static attn_status translate(attn_model *model)
{
    attn_context *context = attn_model_context(model);
    int32_t ids[6] = {1, 2, 3, 3, 2, 1}, lens[2] = {3, 2};
    attn_tensor *src = NULL, *src_lens = NULL;
    attn_hypothesis results[2];
    attn_status status = attn_tensor_create(&src, context, ATTN_I32, 2, (int64_t[]){2, 3});
    if (status == ATTN_OK)
        status = attn_tensor_create(&src_lens, context, ATTN_I32, 1, (int64_t[]){2});
    if (status == ATTN_OK) {
        for (int i = 0; i < 6; i++)
            ((int32_t *)attn_tensor_data(src))[i] = ids[i];
        for (int i = 0; i < 2; i++)
            ((int32_t *)attn_tensor_data(src_lens))[i] = lens[i];
        static const int32_t some[] = {0, 2, 3};
        static const attn_beam_sentence sentences[] = {{.allowed = some, .nallowed = 3},
                                                       {.allowed = some, .nallowed = 2}};
        attn_beam_search_options options = {.bos = 1, .eos = 2, .max_len = 4, .beam = 2};
        options.sentences = sentences;
        status = attn_seq2seq_translate(model, src, src_lens, &options, results);
    }
    if (status == ATTN_OK)
        attn_hypotheses_free(context, results, 2);
    attn_tensor_destroy(src);
    attn_tensor_destroy(src_lens);
    return status;
}

/* Runs one training step with the attention weights requested. */
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
        attn_tensor *src = attn_tape_tensor(tape, ATTN_I32, 2, shape, ids);
        attn_tensor *tgt = attn_tape_tensor(tape, ATTN_I32, 2, shape, ids);
        attn_seq2seq_options options = {.weights = &maps};
        attn_tensor *logits = src && tgt ? attn_seq2seq_forward(model, tape, src, NULL, tgt, &options) : NULL;
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
    if (status == ATTN_OK)
        status = attn_model_create(&model, context, architecture, config, NULL);
    attn_config_destroy(config);
    status = status == ATTN_OK ? learn(model) : status;
    status = status == ATTN_OK ? translate(model) : status;
    attn_model_destroy(model);
    return status;
}

static void every_failure_is_survived(void **state)
{
    static char transformer[] = "transformer", recurrent[] = "seq2seq-attention";
    assert_true(faults_try_all(live, transformer) > 100);
    assert_true(faults_try_all(live, recurrent) > 80);
}

/* ------------------------------------------------------------------------------------ every architecture */

/* Makes the inputs of a small model and adds them to `inputs`, which owns them. */
static attn_status make_inputs(attn_context *context, const attn_architecture *a, small_filling *fill, bool optional,
                               attn_named_list *inputs)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < a->ninputs && status == ATTN_OK; i++) {
        const attn_port *port = &a->inputs[i];
        int64_t shape[ATTN_MAX_RANK];
        attn_tensor *x = NULL;
        if (port->optional && !optional)
            continue;
        int rank = small_model_shape(fill, port->shape, shape);
        status = attn_tensor_create(&x, context, port->integer ? ATTN_I32 : ATTN_F32, rank, shape);
        if (status == ATTN_OK)
            attn_tensor_set_requires_grad(x, !port->integer);
        if (status == ATTN_OK && (status = attn_named_add(inputs, port->name, x)) != ATTN_OK)
            attn_tensor_destroy(x);
    }
    return status;
}

static attn_status go_back(attn_tape *tape, attn_tensor *y)
{
    attn_tensor *ones = NULL;
    if (!attn_tensor_requires_grad(y))
        return ATTN_OK;
    attn_status status =
        attn_tensor_create(&ones, attn_tape_context(tape), ATTN_F32, attn_tensor_rank(y), attn_tensor_shape(y));
    if (status == ATTN_OK)
        status = attn_backward_from(tape, y, ones);
    attn_tensor_destroy(ones);
    return status;
}

typedef struct whole_life {
    const attn_architecture *architecture;
    const attn_config *config;
    small_filling fill;
    bool optional; /* true: every optional output is requested, too */
} whole_life;

static attn_status run_model(attn_model *model, attn_tape *tape, whole_life *life)
{
    attn_context *context = attn_model_context(model);
    const attn_architecture *a = life->architecture;
    attn_named_list inputs = {.context = context, .owns = true}, outputs = {.context = context};
    small_filling fill = life->fill;
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true});
    attn_status status = make_inputs(context, a, &fill, life->optional, &inputs);
    for (int i = 0; i < a->noutputs && life->optional && status == ATTN_OK; i++)
        status = attn_named_add(&outputs, a->outputs[i].name, NULL);
    if (status == ATTN_OK)
        status = attn_model_forward(model, tape, &inputs, &outputs);
    if (status == ATTN_OK)
        status = go_back(tape, attn_named_find(&outputs, a->outputs[0].name));
    attn_tape_reset(tape, NULL);
    attn_named_clear(&outputs);
    attn_named_clear(&inputs);
    return status;
}

static attn_status whole(attn_context *context, void *user)
{
    whole_life *life = user;
    attn_model *model = NULL;
    attn_tape *tape = NULL;
    attn_status status = attn_model_create(&model, context, life->architecture->name, life->config, NULL);
    if (status == ATTN_OK)
        status = attn_tape_create(&tape, context);
    if (status == ATTN_OK)
        status = run_model(model, tape, life);
    attn_tape_destroy(tape);
    attn_model_destroy(model);
    return status;
}

static bool find_sizes(whole_life *life)
{
    static const int64_t sizes[] = {3, 4, 8, 32, 33, 1};
    attn_context *context;
    bool taken = false;
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.threads = 1}), ATTN_OK);
    for (int i = 0; i < 24 && !taken; i++) {
        int64_t n = sizes[i / 4];
        life->fill =
            (small_filling){.config = life->config, .batch = 2, .channels = i & 1, .first = n, .others = i & 2 ? n : 3};
        taken = whole(context, life) == ATTN_OK;
        attn_context_clear_error(context);
    }
    attn_context_destroy(context);
    return taken;
}

static void every_architecture_survives(void **state)
{
    attn_context *context;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    for (int i = 0; i < attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i);
        attn_config *config = small_model_config(context, a);
        whole_life life = {.architecture = a, .config = config};
        for (int optional = 0; optional < 2; optional++) {
            life.optional = optional;
            bool taken = find_sizes(&life);
            long tried = taken ? faults_try_all(whole, &life) : 0;
            if (tried < 0)
                fail_msg("%s", a->name);
            printf("%s%s: %ld allocations failed in turn\n", a->name, optional ? ", every output" : "", tried);
            fflush(stdout);
        }
        attn_config_destroy(config);
    }
    attn_context_destroy(context);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {TEST(every_failure_is_survived)};
    const struct CMUnitTest all[] = {cmocka_unit_test(every_architecture_survives)};
    /* The full test takes minutes, because some models make thousands of allocations. */
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        return cmocka_run_group_tests(all, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
