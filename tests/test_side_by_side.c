/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Runs eight threads that use all of the library at the same time, each with its own context: plans by rule and by
 * measuring, models with gradients, files of every kind, pictures, and errors. Each thread must get the same bits as a
 * thread that runs alone, and only its own errors. This test is most useful with the thread sanitizer.
 */
#include "support/cmocka.h"
#include "support/scratch.h"

#include "attn/image.h"
#include "attn/io.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "io/tensors/formats.h"
#include "io/images/image.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 3 };

/* Work of a thread, which adds its results to a checksum. */
typedef struct worker {
    int number; /* number of the thread; THREADS: a thread that runs alone */
    attn_context *context;
    uint64_t sum;
    attn_status status;
    attn_status (*work)(struct worker *w);
} worker;

static void take(worker *w, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        w->sum = (w->sum ^ bytes[i]) * 0x100000001b3u;
}

static void take_tensor(worker *w, const attn_tensor *t)
{
    if (t)
        take(w, attn_tensor_data(t), (size_t)attn_tensor_size(t) * attn_dtype_size(attn_tensor_dtype(t)));
}

static void *run(void *user)
{
    worker *w = user;
    w->status = attn_context_create(&w->context, &(attn_context_options){.threads = 1 + w->number % 2});
    for (int round = 0; round < ROUNDS && w->status == ATTN_OK; round++)
        w->status = w->work(w);
    size_t held = 0;
    if (w->status == ATTN_OK)
        attn_context_memory(w->context, &held, NULL, NULL);
    w->sum += held;
    return NULL;
}

static void side_by_side(attn_status (*work)(worker *w))
{
    pthread_t threads[THREADS];
    worker workers[THREADS + 1] = {{0}};
    for (int i = 0; i <= THREADS; i++) {
        workers[i].number = i;
        workers[i].work = work;
    }
    run(&workers[THREADS]);
    if (workers[THREADS].status != ATTN_OK)
        fail_msg("alone: %s", attn_context_error(workers[THREADS].context));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i <= THREADS; i++) {
        if (workers[i].status != ATTN_OK)
            fail_msg("thread %d: %s", i, attn_context_error(workers[i].context));
        assert_true(workers[i].sum == workers[THREADS].sum);
        attn_context_destroy(workers[i].context);
    }
}

/* ------------------------------------------------------------------------------------------------ plans */

static attn_status execute(worker *w, const attn_plan *plan, const float *in, float *out)
{
    attn_arrays a = {.q = in, .k = in + 50, .v = in + 100, .o = out};
    attn_status status = attn_plan_execute(plan, &a, NULL);
    take(w, out, 2000 * sizeof *out);
    return status;
}

/* Makes plans by rule and adds their results. Results of plans by measuring are not added, because the chosen solver
 * may vary. */
static attn_status plan_and_run(worker *w)
{
    static const char *const problems[] = {"b1h2q9k11d16:causal", "b1h1q5k7d8:bthd,dropout=0.2",
                                           "axis3x5c8h2:col",     "window5x6w3h1d8:zero",
                                           "tied3x4h2d8",         "addb1h2q4k5d8"};
    float in[3000], out[2000];
    attn_status status = ATTN_OK;
    for (int i = 0; i < 3000; i++)
        in[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (size_t i = 0; i < sizeof problems / sizeof *problems && status == ATTN_OK; i++) {
        attn_problem problem;
        attn_plan *plan = NULL;
        memset(out, 0, sizeof out);
        status = attn_problem_parse(&problem, w->context, problems[i], ATTN_DIRECTION_FORWARD);
        if (status == ATTN_OK)
            status = attn_plan_create(&plan, w->context, &problem, NULL);
        if (status == ATTN_OK && problem.score == ATTN_SCORE_DOT)
            status = execute(w, plan, in, out);
        attn_plan_destroy(plan);
    }
    return status;
}

static attn_status measure(worker *w)
{
    attn_problem problem;
    attn_plan *plan = NULL;
    attn_status status = attn_problem_parse(&problem, w->context, "b1h1q8k8d8", ATTN_DIRECTION_FORWARD);
    if (status == ATTN_OK)
        status = attn_plan_create(&plan, w->context, &problem, &(attn_plan_options){.effort = ATTN_MEASURE});
    attn_plan_destroy(plan);
    char wisdom[256];
    if (status == ATTN_OK && attn_wisdom_export(w->context, wisdom, sizeof wisdom) >= sizeof wisdom)
        return ATTN_ERROR_INTERNAL;
    return status == ATTN_OK ? attn_wisdom_import(w->context, wisdom) : status;
}

static void plans(void **state)
{
    side_by_side(plan_and_run);
}

/* Adds nothing to the checksum, because the context keeps its wisdom in memory until it ends. */
static void *run_measure(void *user)
{
    worker *w = user;
    w->status = attn_context_create(&w->context, NULL);
    for (int round = 0; round < ROUNDS && w->status == ATTN_OK; round++)
        w->status = measure(w);
    attn_context_destroy(w->context);
    return NULL;
}

static void measured_plans(void **state)
{
    pthread_t threads[THREADS];
    worker workers[THREADS] = {{0}};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_measure, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].status, ATTN_OK);
    }
}

/* ----------------------------------------------------------------------------------------------- models */

static attn_status build_and_learn(worker *w, const char *name, const char *settings, const char *input, bool integer,
                                   const int64_t *shape, int rank)
{
    attn_config *config = NULL;
    attn_model *model = NULL;
    attn_tape *tape = NULL;
    attn_named_list inputs = {.context = w->context}, outputs = {.context = w->context};
    attn_status status = attn_config_parse(&config, w->context, settings, strlen(settings), "settings");
    if (status == ATTN_OK)
        status = attn_model_create(&model, w->context, name, config, &(attn_model_options){.seed = 7});
    if (status == ATTN_OK)
        status = attn_tape_create(&tape, w->context);
    if (status == ATTN_OK) {
        attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = 3});
        attn_tensor *x = attn_tape_tensor(tape, integer ? ATTN_I32 : ATTN_F32, rank, shape, NULL);
        status = x ? attn_named_add(&inputs, input, x) : ATTN_ERROR_MEMORY;
        for (int64_t i = 0; x && i < attn_tensor_size(x); i++)
            if (integer)
                ((int32_t *)attn_tensor_data(x))[i] = (int32_t)(i % 3 + 4);
            else
                ((float *)attn_tensor_data(x))[i] = (float)(i % 7) / 7;
    }
    if (status == ATTN_OK)
        status = attn_model_forward(model, tape, &inputs, &outputs);
    if (status == ATTN_OK) {
        attn_tensor *y = outputs.items[0].tensor, *loss = attn_mul(tape, y, y);
        while (loss && attn_tensor_rank(loss) > 0)
            loss = attn_mean(tape, loss, 0);
        status = loss ? attn_backward(tape, loss) : attn_context_status(w->context);
        take_tensor(w, y);
    }
    const attn_named_list *list = status == ATTN_OK ? attn_model_parameters(model) : NULL;
    for (int64_t i = 0; list && i < list->n; i++)
        take_tensor(w, attn_tensor_grad(list->items[i].tensor));
    attn_named_clear(&outputs);
    attn_named_clear(&inputs);
    attn_tape_destroy(tape);
    attn_model_destroy(model);
    attn_config_destroy(config);
    return status;
}

static attn_status models_of_all_kinds(worker *w)
{
    static const int64_t sequence[] = {2, 5, 8}, tokens[] = {1, 3, 4}, image[] = {1, 1, 8, 8};
    attn_status status = build_and_learn(w, "self-attention", "{\"dim\": 8, \"heads\": 2}", "x", false, sequence, 3);
    if (status == ATTN_OK)
        status = build_and_learn(w, "msa-transformer",
                                 "{\"layers\": 1, \"embed_dim\": 8, \"ffn_embed_dim\": 8, \"attention_heads\": 2}",
                                 "tokens", true, tokens, 3);
    if (status == ATTN_OK)
        status = build_and_learn(w, "vit",
                                 "{\"img_size\": 8, \"patch_size\": 4, \"num_classes\": 3, \"in_channels\": 1, "
                                 "\"num_hiddens\": 8, \"mlp_num_hiddens\": 8, \"num_blks\": 1, \"num_heads\": 2}",
                                 "x", false, image, 4);
    return status;
}

static void models(void **state)
{
    side_by_side(models_of_all_kinds);
}

/* ------------------------------------------------------------------------------------------------ files */

static char folder[64];

static attn_status array_there_and_back(worker *w, const char *path)
{
    attn_tensor *array = NULL, *again = NULL;
    attn_bytes bytes = {0};
    attn_status status = attn_tensor_create(&array, w->context, ATTN_F32, 2, (int64_t[]){3, 4});
    for (int i = 0; status == ATTN_OK && i < 12; i++)
        ((float *)attn_tensor_data(array))[i] = (float)i;
    if (status == ATTN_OK)
        status = attn_npy_write(array, w->context, path);
    if (status == ATTN_OK)
        status = attn_file_read(&bytes, w->context, path, 0);
    if (status == ATTN_OK)
        status = attn_npy_parse(&again, w->context, bytes.data, bytes.size, path);
    take_tensor(w, again);
    attn_bytes_free(w->context, &bytes);
    attn_tensor_destroy(array);
    attn_tensor_destroy(again);
    return status;
}

static attn_status weights(worker *w, const char *path)
{
    attn_named_list list = {.context = w->context, .owns = true};
    attn_status status = attn_weights_read(&list, path, NULL, NULL, NULL);
    for (int64_t i = 0; i < list.n; i++)
        take_tensor(w, list.items[i].tensor);
    attn_named_clear(&list);
    return status;
}

static attn_status picture(worker *w)
{
    unsigned char pixels[8 * 8];
    attn_image image = {.width = 8, .height = 8, .channels = 1, .pixels = pixels}, again = {0};
    attn_bytes png = {0};
    for (int i = 0; i < 64; i++)
        pixels[i] = (unsigned char)(i * 5);
    attn_status status = attn_image_png(&png, w->context, &image);
    if (status == ATTN_OK)
        status = attn_image_parse(&again, w->context, png.data, png.size, "picture", NULL);
    if (status == ATTN_OK)
        take(w, again.pixels, 64);
    attn_image_free(w->context, &again);
    attn_bytes_free(w->context, &png);
    return status;
}

/* Reads and writes the thread's own array, reads a published file as all threads do, and replaces a file that all
 * threads replace. This file must be complete at every moment. */
static attn_status every_file(worker *w)
{
    char own[512], common[512];
    snprintf(own, sizeof own, "%s/own%d.npy", folder, w->number);
    snprintf(common, sizeof common, "%s/common.npy", folder);
    attn_status status = array_there_and_back(w, own);
    if (status == ATTN_OK)
        status = array_there_and_back(w, common);
    if (status == ATTN_OK)
        status = weights(w, "tests/data/pt/linear.pt");
    if (status == ATTN_OK)
        status = weights(w, "tests/data/pt/legacy.pt");
    return status == ATTN_OK ? picture(w) : status;
}

static void files(void **state)
{
    scratch_open(folder);
    side_by_side(every_file);
    assert_int_equal(scratch_close(folder), THREADS + 2);
}

/* ----------------------------------------------------------------------------------------------- errors */

/* Causes an error that names the thread, and that must stay in its context whatever other threads do. */
static attn_status err(worker *w)
{
    char name[64];
    snprintf(name, sizeof name, "/nowhere/of-thread-%d", w->number);
    attn_bytes bytes = {0};
    for (int i = 0; i < 50; i++) {
        if (attn_file_read(&bytes, w->context, name, 0) != ATTN_ERROR_NOT_FOUND ||
            !strstr(attn_context_error(w->context), name))
            return ATTN_ERROR_INTERNAL;
        if (w->number % 2 == 0)
            attn_context_clear_error(w->context);
    }
    attn_context_clear_error(w->context);
    return ATTN_OK;
}

static void errors(void **state)
{
    side_by_side(err);
}

RUN_TESTS(TEST(plans), TEST(measured_plans), TEST(models), TEST(files), TEST(errors))
