/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the checkpoint and settings of a training run: resumed and refused runs, checkpoints of older and newer
 * versions of attn, and averages of weights.
 */
#include "support/cmocka.h"

#include "apps/run/run.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"
#include "io/json.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, ROWS = 3, WIDTH = 4 };

/* Settings of two versions of attn. The newer version has one more. */
static const char *const ways[] = {"straight", "round", NULL};
static const attn_setting all_keys[] = {
    ATTN__RUN_KEYS("rows", "rows", "2", "1", "adam", "0.01", "constant", "0", "0", "0.1"),
    ATTN__INT("seed", "1", 0, 0, "seed"),
    ATTN__INT("average", "1", 1, 9, "epochs that are averaged"),
    ATTN__REAL("ema", "0", 0, 1, "decay of a moving average"),
    ATTN__TEXT("way", "straight", ways, "a setting that was added"),
};
enum { KEYS = sizeof all_keys / sizeof *all_keys };
static const attn__keys older = {.keys = all_keys, .n = KEYS - 1}, newer = {.keys = all_keys, .n = KEYS};

static attn_status prepare(attn__run *run)
{
    attn_config *config;
    run->fingerprint = 7;
    run->no_validation = true;
    attn_status status = attn_config_create(&config, run->context);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "dim", WIDTH);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "heads", 2);
    if (status == ATTN_OK)
        status = attn_model_create(&run->model, run->context, "self-attention", config, NULL);
    attn_config_destroy(config);
    return status == ATTN_OK ? attn__run_check_data(run) : status;
}

static attn_status write(const attn__run *run)
{
    char path[200];
    snprintf(path, sizeof path, "%s/config.json", run->directory);
    return attn_config_write(attn_model_config(run->model), run->context, path);
}

static int64_t steps(void *self)
{
    (void)self;
    return STEPS;
}

static attn_tensor *loss(void *self, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    attn__run *run = self;
    float x[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)((i * 7 + step * 3 + epoch) % 11) / 5;
    attn_named_list in = {.context = run->context}, out = {.context = run->context};
    attn_tensor *given = attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){1, ROWS, WIDTH}, x), *y = NULL;
    *counted = ROWS;
    if (given && attn_named_add(&in, "x", given) == ATTN_OK &&
        attn_model_forward(run->model, tape, &in, &out) == ATTN_OK)
        y = attn_named_find(&out, "out");
    attn_named_clear(&in);
    attn_named_clear(&out);
    y = y ? attn_reshape(tape, attn_mul(tape, y, y), 1, (int64_t[]){ROWS * WIDTH}) : NULL;
    return y ? attn_mean(tape, y, 0) : NULL;
}

typedef struct training {
    char directory[64];
    int64_t stop_at; /* number of steps before the run is stopped; 0: no stop */
} training;

static bool progress(void *user, const attn_progress *p)
{
    return p->epoch_ends || p->all_steps != ((const training *)user)->stop_at;
}

static void release(void *self)
{
    (void)self;
}

static const char *const in_memory[] = {"none", NULL};

/* Trains in a context with the JSON text `settings`. If `settings` is NULL, resumes. */
static attn_status train_in(attn_context *context, const attn__keys *keys, training *of, const char *settings)
{
    attn__run_kind kind = {.size = sizeof(attn__run),
                           .keys = keys,
                           .in_memory = in_memory,
                           .prepare = prepare,
                           .write = write,
                           .steps = steps,
                           .loss = loss,
                           .release = release};
    attn_config *given = NULL;
    attn_status status = settings ? attn_config_parse(&given, context, settings, strlen(settings), "test") : ATTN_OK;
    attn_trainer_job job = {
        .directory = of->directory, .settings = given, .resume = !settings, .progress = progress, .user = of};
    if (status == ATTN_OK)
        status = attn__run_train(context, &kind, &job);
    attn_config_destroy(given);
    return status;
}

/* The text of an error must contain `about`. */
static attn_status train(const attn__keys *keys, training *of, const char *settings, const char *about)
{
    attn_context *context = test_context();
    attn_status status = train_in(context, keys, of, settings);
    if (about && !strstr(attn_context_error(context), about))
        fail_msg("'%s' is not in: %s", about, attn_context_error(context));
    end_context(context);
    return status;
}

static attn_bytes read_in(const training *of, const char *name)
{
    char path[200];
    attn_bytes bytes = {0};
    attn_context *context = test_context();
    snprintf(path, sizeof path, "%s/%s", of->directory, name);
    assert_int_equal(attn_file_read(&bytes, context, path, 0), ATTN_OK);
    attn_bytes copy = {.data = malloc(bytes.size + 1), .size = bytes.size};
    memcpy(copy.data, bytes.data, bytes.size + 1);
    attn_bytes_free(context, &bytes);
    end_context(context);
    return copy;
}

static void check_same(const training *a, const training *b, const char *name)
{
    attn_bytes x = read_in(a, name), y = read_in(b, name);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    free(x.data);
    free(y.data);
}

/* Replaces every `from` in a file by `to`, which has the same length, so that offsets do not change. */
static void replace(const training *of, const char *name, const char *from, const char *to)
{
    char path[200];
    size_t length = strlen(from);
    int found = 0;
    attn_bytes bytes = read_in(of, name);
    attn_context *context = test_context();
    assert_int_equal(length, strlen(to));
    for (size_t i = 0; i + length <= bytes.size; i++) {
        if (memcmp((char *)bytes.data + i, from, length) == 0) {
            memcpy((char *)bytes.data + i, to, length);
            found++;
        }
    }
    assert_true(found > 0);
    snprintf(path, sizeof path, "%s/%s", of->directory, name);
    assert_int_equal(attn_file_write(context, path, bytes.data, bytes.size), ATTN_OK);
    end_context(context);
    free(bytes.data);
}

static void close_all(training *jobs, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(scratch_close(jobs[i].directory) > 3);
}

static void open_all(training *jobs, int n)
{
    for (int i = 0; i < n; i++) {
        jobs[i] = (training){.stop_at = i == 0 ? 0 : STEPS + 1};
        scratch_open(jobs[i].directory);
    }
}

static void a_setting_that_was_added_since(void **state)
{
    training jobs[3];
    open_all(jobs, 3);
    assert_int_equal(train(&newer, &jobs[0], "{\"seed\": 5}", NULL), ATTN_OK);
    assert_int_equal(train(&older, &jobs[1], "{\"seed\": 5}", NULL), ATTN_ERROR_INTERRUPTED);
    jobs[1].stop_at = 0;
    assert_int_equal(train(&newer, &jobs[1], NULL, NULL), ATTN_OK);
    check_same(&jobs[0], &jobs[1], "model.safetensors");
    check_same(&jobs[0], &jobs[1], "checkpoint.safetensors");
    assert_int_equal(train(&newer, &jobs[2], "{\"way\": \"round\"}", NULL), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(train(&older, &jobs[2], NULL, "\"way\""), ATTN_ERROR_FORMAT);
    close_all(jobs, 3);
}

static void a_setting_that_was_changed(void **state)
{
    static const char *const changes[][2] = {{"\"seed\": 1", "\"seed\": 2"},
                                             {"\"rate\": 0.01", "\"rate\": 0.03"},
                                             {"\"straight\"", "\"round\"   "},
                                             {"\"constant\"", "\"cosine\"  "},
                                             {"\"label_smoothing\": 0.2", "\"label_smoothing\": 0.1"}};
    training jobs[2];
    open_all(jobs, 2);
    assert_int_equal(train(&newer, &jobs[1], "{\"label_smoothing\": 0.2, \"way\": \"straight\"}", NULL),
                     ATTN_ERROR_INTERRUPTED);
    replace(&jobs[1], "training.json", "\"epochs\"", "\"epochz\"");
    assert_int_equal(train(&newer, &jobs[1], NULL, "\"epochz\" is not a setting"), ATTN_ERROR_FORMAT);
    replace(&jobs[1], "training.json", "\"epochz\"", "\"epochs\"");
    assert_int_equal(train(&newer, &jobs[0], "{\"label_smoothing\": 0.2}", NULL), ATTN_OK);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        replace(&jobs[1], "training.json", changes[i][0], changes[i][1]);
        assert_int_equal(train(&newer, &jobs[1], NULL, "the setting \""), ATTN_ERROR_FORMAT);
        replace(&jobs[1], "training.json", changes[i][1], changes[i][0]);
    }
    jobs[1].stop_at = 0;
    assert_int_equal(train(&newer, &jobs[1], NULL, NULL), ATTN_OK);
    check_same(&jobs[0], &jobs[1], "checkpoint.safetensors");
    close_all(jobs, 2);
}

/* Tests checkpoints of versions that did not store settings, and checkpoints with another checksum. */
static void a_checkpoint_without_settings(void **state)
{
    training jobs[2];
    open_all(jobs, 2);
    assert_int_equal(train(&newer, &jobs[0], "{}", NULL), ATTN_OK);
    assert_int_equal(train(&newer, &jobs[1], "{}", NULL), ATTN_ERROR_INTERRUPTED);
    replace(&jobs[1], "checkpoint.safetensors", "\"settings\"", "\"nothings\"");
    jobs[1].stop_at = 0;
    assert_int_equal(train(&newer, &jobs[1], NULL, NULL), ATTN_OK);
    check_same(&jobs[0], &jobs[1], "checkpoint.safetensors");
    replace(&jobs[1], "config.json", "2", "4");
    assert_int_equal(train(&newer, &jobs[1], NULL, "its checksum does not match"), ATTN_ERROR_FORMAT);
    close_all(jobs, 2);
}

/* Every file must be the same if the language of the host program has a decimal comma. */
static void a_decimal_comma(void **state)
{
    static const char *const files[] = {"history.tsv", "training.json", "config.json", "checkpoint.safetensors"};
    const char *comma = getenv("ATTN_COMMA");
    if (!comma)
        skip();
    training jobs[2];
    open_all(jobs, 2);
    assert_int_equal(train(&newer, &jobs[0], "{\"rate\": 0.025}", NULL), ATTN_OK);
    assert_non_null(setlocale(LC_NUMERIC, comma));
    assert_string_equal(localeconv()->decimal_point, ",");
    attn_status begun = train(&newer, &jobs[1], "{\"rate\": 0.025}", NULL);
    jobs[1].stop_at = 0;
    attn_status gone_on = train(&newer, &jobs[1], NULL, NULL);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(begun, ATTN_ERROR_INTERRUPTED);
    assert_int_equal(gone_on, ATTN_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_same(&jobs[0], &jobs[1], files[i]);
    close_all(jobs, 2);
}

/* Before an epoch has ended, there are no weights to average, so the model has the weights of the last step. */
static void stopped_in_the_first_epoch(void **state)
{
    training jobs[2];
    for (int i = 0; i < 2; i++) {
        jobs[i] = (training){.stop_at = STEPS - 1};
        scratch_open(jobs[i].directory);
    }
    assert_int_equal(train(&newer, &jobs[0], "{}", NULL), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(train(&newer, &jobs[1], "{\"average\": 2}", NULL), ATTN_ERROR_INTERRUPTED);
    check_same(&jobs[0], &jobs[1], "model.safetensors");
    close_all(jobs, 2);
}

enum { MOST_NUMBERS = 128 };

/* Trains until the run ends or is stopped. Stores every number of the model, and returns how many there are. */
static int64_t numbers_of(const char *settings, int64_t stop_at, double *numbers)
{
    training one = {.stop_at = stop_at};
    char path[200];
    int64_t n = 0;
    scratch_open(one.directory);
    assert_int_equal(train(&newer, &one, settings, NULL), stop_at ? ATTN_ERROR_INTERRUPTED : ATTN_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", one.directory);
    attn_context *context = test_context();
    attn_named_list list = {.context = context, .owns = true};
    assert_int_equal(attn_weights_read(&list, path, NULL, NULL, NULL), ATTN_OK);
    for (int64_t i = 0; i < list.n; i++)
        for (int64_t k = 0; k < attn_tensor_size(list.items[i].tensor); k++)
            numbers[n++] = test_at(list.items[i].tensor, k);
    assert_true(n > 0 && n <= MOST_NUMBERS);
    attn_named_clear(&list);
    end_context(context);
    scratch_close(one.directory);
    return n;
}

/* A run with fewer epochs than the setting averages all of them. */
static void the_average_is_that_of_the_last_epochs(void **state)
{
    enum { EPOCHS = 4 };
    static double end[EPOCHS + 1][MOST_NUMBERS], got[MOST_NUMBERS];
    char settings[100];
    for (int e = 1; e <= EPOCHS; e++) {
        snprintf(settings, sizeof settings, "{\"epochs\": %d}", e);
        numbers_of(settings, 0, end[e]);
    }
    for (int average = 2; average <= EPOCHS; average++) {
        for (int e = 1; e <= EPOCHS; e++) {
            snprintf(settings, sizeof settings, "{\"epochs\": %d, \"average\": %d}", e, average);
            int64_t n = numbers_of(settings, 0, got);
            int last = e < average ? e : average;
            for (int64_t i = 0; i < n; i++) {
                double mean = 0;
                for (int k = 0; k < last; k++)
                    mean += end[e - k][i] / last;
                assert_true(fabs(got[i] - mean) <= 1e-7);
            }
        }
    }
}

/* In the first steps, the moving average has a smaller decay: at most (1 + s) / (10 + s) after step s. */
static void the_moving_average_follows_every_step(void **state)
{
    static double at[MOST_NUMBERS], mean[MOST_NUMBERS], got[MOST_NUMBERS];
    int64_t n = numbers_of("{\"epochs\": 0}", 0, mean);
    for (int64_t step = 1; step <= 2 * STEPS; step++) {
        double rising = (1 + (double)step) / (10 + (double)step), keep = rising < 0.4 ? rising : 0.4;
        numbers_of("{\"epochs\": 2, \"keep\": \"last\"}", step, at);
        numbers_of("{\"epochs\": 2, \"keep\": \"last\", \"ema\": 0.4}", step, got);
        for (int64_t i = 0; i < n; i++) {
            mean[i] = keep * mean[i] + (1 - keep) * at[i];
            assert_true(fabs(got[i] - mean[i]) <= 1e-6);
        }
    }
}

static attn_status go_on(attn_context *context, void *user)
{
    return train_in(context, &newer, user, NULL);
}

static void memory_fails(void **state)
{
    training jobs[1];
    open_all(jobs, 1);
    assert_int_equal(train(&newer, &jobs[0], "{}", NULL), ATTN_OK);
    assert_true(faults_try_all(go_on, &jobs[0]) > 10);
    close_all(jobs, 1);
}

/* Tests the defaults that follow the book and the paper. */
static void settings_of_the_originals(void **state)
{
    static const struct {
        const char *kind, *given, *key;
        double value;
    } cases[] = {
        {"classify", "{\"compat\": \"d2l\"}", "epochs", 10},
        {"classify", "{\"compat\": \"d2l\"}", "rate", 0.1},
        {"classify", "{\"compat\": \"d2l\"}", "batch", 128},
        {"classify", "{\"compat\": \"d2l\", \"rate\": 0.2}", "rate", 0.2},
        {"translate", "{\"compat\": \"d2l\", \"model\": \"bahdanau\"}", "dropout", 0.4},
        {"translate", "{\"compat\": \"d2l\", \"model\": \"bahdanau\"}", "epochs", 15},
        {"translate", "{\"compat\": \"d2l\", \"model\": \"bahdanau\"}", "rate", 0.005},
        {"translate", "{\"compat\": \"d2l\", \"model\": \"bahdanau\"}", "batch", 128},
        {"translate", "{\"compat\": \"d2l\", \"model\": \"bahdanau\"}", "max_tokens", 9},
        {"translate", "{\"compat\": \"d2l\"}", "epochs", 30},
        {"translate", "{\"compat\": \"d2l\"}", "dropout", 0.2},
        {"translate", "{\"compat\": \"d2l\"}", "rate", 0.0015},
        {"translate", "{\"compat\": \"d2l\"}", "num_hiddens", 256},
        {"translate", "{\"compat\": \"d2l\"}", "ffn_num_hiddens", 64},
        {"translate", "{\"compat\": \"d2l\"}", "num_heads", 4},
        {"translate", "{\"compat\": \"d2l\"}", "num_blks", 2},
        {"translate", "{\"compat\": \"d2l\"}", "clip", 1},
        {"images", "{\"compat\": \"paper\"}", "exterior_blocks", 16},
        {"images", "{\"compat\": \"paper\"}", "outer_blocks", 8},
        {"images", "{\"compat\": \"paper\"}", "inner_blocks", 4},
    };
    attn_context *context = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_config *given, *settings;
        assert_int_equal(attn_config_parse(&given, context, cases[i].given, strlen(cases[i].given), "given"), ATTN_OK);
        assert_int_equal(attn_trainer_settings(&settings, context, cases[i].kind, given), ATTN_OK);
        if (!(fabs(attn_config_real(settings, cases[i].key, -1) - cases[i].value) < 1e-12))
            fail_msg("case %zu: %s is %g", i, cases[i].key, attn_config_real(settings, cases[i].key, -1));
        attn_config_destroy(settings);
        attn_config_destroy(given);
    }
}

/* A setting that another one makes meaningless is refused, unless it has its default or what it needs is not decided
 * yet. */
static void settings_without_effect_are_refused(void **state)
{
    static const attn__key_need optimizer[] = {{"momentum", "optimizer", {"sgd"}}};
    const attn__keys *translate = attn__translator_training_kind.keys;
    const attn__keys *classify = attn__classifier_training_kind.keys;
    const struct {
        const attn__keys *keys;
        const attn__key_need *needs; /* NULL: those of the table */
        const char *given, *says;    /* NULL: the settings are accepted */
    } cases[] = {
        {translate, NULL, "{\"embed_size\": 16}", "embed_size has an effect only if model is bahdanau"},
        {translate, NULL, "{\"embed_size\": 16, \"model\": \"bahdanau\"}", NULL},
        {translate, NULL, "{\"embed_size\": 256}", NULL},
        {translate, NULL, "{\"num_blks\": 2, \"model\": \"bahdanau\"}",
         "only if model is transformer, but model is bah"},
        {translate, NULL, "{\"vocabulary_size\": 300, \"vocabulary\": \"word\"}", "vocabulary is unigram or bpe, but"},
        {translate, NULL, "{\"vocabulary_size\": 300, \"compat\": \"d2l\"}", "but vocabulary is word: leave out"},
        {translate, NULL, "{\"vocabulary_size\": 300, \"vocabulary\": \"bpe\"}", NULL},
        {translate, NULL, "{\"vocabulary_size\": 300}", NULL},
        {translate, NULL, "{\"num_blks\": 2, \"compat\": \"d2l\"}", NULL},
        {classify, NULL, "{\"window\": 5}", "window has an effect only if model is sasa, but model is vit"},
        {classify, NULL, "{\"mlp\": 5, \"model\": \"nonlocal\"}", "model is vit or axial"},
        {classify, NULL, "{\"patch\": 2, \"model\": \"axial-image\"}", NULL},
        {classify, optimizer, "{\"momentum\": 0.5}", "optimizer is sgd, but optimizer is adamw"},
        {classify, optimizer, "{\"momentum\": 0.5, \"optimizer\": \"sgd\"}", NULL},
        {classify, optimizer, "{\"momentum\": 0.9}", NULL},
        /* the preset of d2l is momentum 0 */
        {classify, optimizer, "{\"momentum\": 0, \"optimizer\": \"adam\", \"compat\": \"d2l\"}", NULL},
        {classify, optimizer, "{\"momentum\": 0.9, \"optimizer\": \"adam\", \"compat\": \"d2l\"}", "momentum has"},
    };
    attn_context *context = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn__keys *keys = cases[i].keys;
        attn_config *given, *settings;
        assert_ok(context, attn_config_parse(&given, context, cases[i].given, strlen(cases[i].given), "given"));
        assert_ok(context, attn__keys_resolve(&settings, context, keys, given, NULL));
        attn_status status = attn__keys_check_needs(context, keys, cases[i].needs ? cases[i].needs : keys->needs,
                                                    cases[i].needs ? 1 : keys->nneeds, given, settings);
        if (cases[i].says)
            assert_refused(context, status, ATTN_ERROR_ARGUMENT, cases[i].says);
        else
            assert_ok(context, status);
        attn_config_destroy(settings);
        attn_config_destroy(given);
    }
    /* The tables name settings and choices that exist. */
    for (int k = 0; k < 2; k++) {
        const attn__keys *keys = k ? classify : translate;
        for (int i = 0; i < keys->nneeds; i++) {
            const attn_setting *other = attn__key_find(keys, keys->needs[i].other);
            assert_true(attn__key_find(keys, keys->needs[i].key) && other && keys->needs[i].values[0]);
            for (int v = 0; keys->needs[i].values[v]; v++) {
                int c = 0;
                while (other->choices[c] && strcmp(other->choices[c], keys->needs[i].values[v]) != 0)
                    c++;
                assert_non_null(other->choices[c]);
            }
        }
    }
}

/* The rate falls to a tenth in one step, or to a hundredth along a cosine. */
static void settings_become_options(void **state)
{
    static const char given[] = "{\"seed\": 5, \"epochs\": 8, \"patience\": 3, \"save_every\": 11, \"accumulate\": 4, "
                                "\"rate\": 0.25, \"warmup\": 6, \"optimizer\": \"%s\", \"momentum\": 0.5, "
                                "\"weight_decay\": 0.75, \"clip\": 2, \"schedule\": \"%s\", \"rate_drop\": %d}";
    static const struct {
        const char *optimizer, *schedule;
        int drop;
        attn_optimizer_kind optimizer_kind;
        attn_schedule_kind kind;
        int64_t total;
        double floor;
    } cases[] = {
        {"adam", "constant", 0, ATTN_OPTIMIZER_ADAM, ATTN_SCHEDULE_CONSTANT, 24, 0.01},
        {"adamw", "cosine", 2, ATTN_OPTIMIZER_ADAMW, ATTN_SCHEDULE_COSINE, 24, 0.01},
        {"sgd", "inverse-sqrt", 0, ATTN_OPTIMIZER_SGD, ATTN_SCHEDULE_INVERSE_SQUARE_ROOT, 24, 0.01},
        {"adam", "step", 0, ATTN_OPTIMIZER_ADAM, ATTN_SCHEDULE_STEP, 18, 0.1},
        {"adam", "step", 2, ATTN_OPTIMIZER_ADAM, ATTN_SCHEDULE_STEP, 6, 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        attn_config *settings;
        int n = snprintf(text, sizeof text, given, cases[i].optimizer, cases[i].schedule, cases[i].drop);
        assert_ok(*state, attn_config_parse(&settings, *state, text, (size_t)n, "given"));
        attn_training_options o = attn__run_options(settings, 10);
        assert_true(o.epochs == 8 && o.seed == 5 && o.patience == 3 && o.save_every == 11 && o.accumulate == 4);
        assert_true(o.optimizer.kind == cases[i].optimizer_kind && o.optimizer.momentum == 0.5 &&
                    o.optimizer.weight_decay == 0.75 && o.optimizer.clip_norm == 2);
        assert_true(o.schedule.kind == cases[i].kind && o.schedule.peak == 0.25 && o.schedule.warmup == 6);
        assert_int_equal(o.schedule.total, cases[i].total);
        assert_true(o.schedule.floor == cases[i].floor);
        attn_config_destroy(settings);
    }
}

/* A resumed training may have more epochs. Its rate falls when it fell before. */
static void more_epochs_keep_the_fall_of_the_rate(void **state)
{
    static const char given[] = "{\"schedule\": \"%s\", \"epochs\": 8, \"rate_drop\": %d}";
    static const struct {
        const char *schedule;
        int drop;
        int64_t total; /* in epochs, after the number of epochs is 30 */
    } cases[] = {{"step", 0, 6}, {"step", 7, 7}, {"cosine", 0, 30}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        attn_config *settings;
        int n = snprintf(text, sizeof text, given, cases[i].schedule, cases[i].drop);
        assert_ok(*state, attn_config_parse(&settings, *state, text, (size_t)n, "given"));
        assert_ok(*state, attn__run_fix_schedule(settings));
        assert_ok(*state, attn_config_set_int(settings, "epochs", 30));
        assert_int_equal(attn__run_options(settings, 10).schedule.total, 10 * cases[i].total);
        attn_config_destroy(settings);
    }
}

static void the_data_of_a_training_is_released(void **state)
{
    static const char text[] = "Go.\tVa !\nStop.\tStop !\nCome.\tViens !\nRun.\tCours !\nWait.\tAttends !\n",
                      given[] = "{\"vocabulary\": \"word\", \"min_frequency\": 1, \"num_hiddens\": 8, "
                                "\"ffn_num_hiddens\": 8, \"num_heads\": 2, \"num_blks\": 1, \"epochs\": 1, "
                                "\"valid\": 0.4, \"test\": 0.2}";
    attn_context *context = *state;
    attn_config *settings;
    char directory[64];
    size_t before, after;
    scratch_open(directory);
    attn_context_memory(context, &before, NULL, NULL);
    assert_int_equal(attn_config_parse(&settings, context, given, strlen(given), "given"), ATTN_OK);
    assert_ok(context, attn_train(context, &(attn_trainer_job){.kind = "translate",
                                                               .text = text,
                                                               .text_size = sizeof text - 1,
                                                               .directory = directory,
                                                               .settings = settings}));
    attn_config_destroy(settings);
    attn_context_memory(context, &after, NULL, NULL);
    assert_true(scratch_close(directory) > 3);
    assert_int_equal(after, before);
}

RUN_TESTS(TEST_WITH_CONTEXT(settings_of_the_originals), TEST_WITH_CONTEXT(settings_become_options),
          TEST_WITH_CONTEXT(settings_without_effect_are_refused),
          TEST_WITH_CONTEXT(more_epochs_keep_the_fall_of_the_rate), TEST(a_setting_that_was_added_since),
          TEST(a_setting_that_was_changed), TEST(a_checkpoint_without_settings), TEST(a_decimal_comma),
          TEST(stopped_in_the_first_epoch), TEST(memory_fails), TEST(the_average_is_that_of_the_last_epochs),
          TEST(the_moving_average_follows_every_step), TEST_WITH_CONTEXT(the_data_of_a_training_is_released))
