/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests the training loop. A run that is stopped at any step and resumed must have the same bits, and must report the
 * same numbers for each epoch, as an uninterrupted run. Steps, reported numbers and the end of training are compared
 * with values computed by hand.
 */
#include "support/fixture.h"

#include "attn/tensor.h"
#include "attn/train.h"
#include "train/loop.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 12, STEPS = 3, EPOCHS = 3 };

/* State that outlives a process. Here it is kept in memory instead of in files. */
typedef struct saved {
    float w[WIDTH], m[WIDTH], v[WIDTH];
    attn_config *counters;
} saved;

typedef struct run {
    attn_context *c;
    attn_tensor *w;
    attn_named_list parameters;
    attn_training *training;
    saved store;
    int64_t stop_at; /* number of steps over all epochs before the run is stopped; 0: no stop */
    bool wide;
    attn_progress ends[EPOCHS];
    int n_ends;
} run;

static int64_t steps(void *user)
{
    (void)user;
    return STEPS;
}

static attn_tensor *loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens)
{
    run *r = user;
    float x[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        x[i] = (float)((i + 2) * (step + 5) + epoch * 3) / 100;
    *tokens = 4;
    attn_tensor *y = attn_mul(tape, attn_tape_tensor(tape, ATTN_F32, 1, (int64_t[]){WIDTH}, x), r->w);
    y = attn_dropout(tape, y, 0.2);
    y = attn_mean(tape, attn_mul(tape, y, y), 0);
    return r->wide ? attn_cast(tape, y, ATTN_F64) : y;
}

static attn_status validate(void *user, attn_tape *tape, double *value)
{
    (void)tape;
    *value = (double)fabsf(((float *)attn_tensor_data(((run *)user)->w))[0]);
    return ATTN_OK;
}

static attn_status save(void *user, bool improved)
{
    run *r = user;
    (void)improved;
    const attn_named_list *state = attn_optimizer_state(attn_training_optimizer(r->training));
    memcpy(r->store.w, attn_tensor_data(r->w), sizeof r->store.w);
    memcpy(r->store.m, attn_tensor_data(attn_named_find(state, "m.w")), sizeof r->store.m);
    memcpy(r->store.v, attn_tensor_data(attn_named_find(state, "v.w")), sizeof r->store.v);
    return attn_training_store(r->training, r->store.counters);
}

static bool progress(void *user, const attn_progress *p)
{
    run *r = user;
    if (p->epoch_ends)
        r->ends[r->n_ends++] = *p;
    return p->epoch_ends || p->all_steps != r->stop_at;
}

static void begin(run *r, const saved *from)
{
    attn_training_options options = {.epochs = EPOCHS, .seed = 3, .schedule = {.peak = 0.01, .warmup = 4}};
    assert_int_equal(attn_context_create(&r->c, NULL), ATTN_OK);
    assert_int_equal(attn_tensor_create(&r->w, r->c, ATTN_F32, 1, (int64_t[]){WIDTH}), ATTN_OK);
    attn_tensor_set_requires_grad(r->w, true);
    r->parameters = (attn_named_list){.context = r->c};
    assert_int_equal(attn_named_add(&r->parameters, "w", r->w), ATTN_OK);
    assert_int_equal(attn_training_create(&r->training, r->c, &r->parameters, &options), ATTN_OK);
    assert_int_equal(attn_config_create(&r->store.counters, r->c), ATTN_OK);
    for (int i = 0; i < WIDTH; i++)
        ((float *)attn_tensor_data(r->w))[i] = (float)(i + 1) / WIDTH;
    if (!from)
        return;
    const attn_named_list *state = attn_optimizer_state(attn_training_optimizer(r->training));
    memcpy(attn_tensor_data(r->w), from->w, sizeof from->w);
    memcpy(attn_tensor_data(attn_named_find(state, "m.w")), from->m, sizeof from->m);
    memcpy(attn_tensor_data(attn_named_find(state, "v.w")), from->v, sizeof from->v);
    assert_int_equal(attn_training_restore(r->training, from->counters), ATTN_OK);
}

static attn_status go(run *r)
{
    attn_job job = {.user = r, .steps = steps, .loss = loss, .validate = validate, .save = save, .progress = progress};
    return attn_training_run(r->training, &job);
}

static void end(run *r)
{
    attn_config_destroy(r->store.counters);
    attn_training_destroy(r->training);
    attn_named_clear(&r->parameters);
    attn_tensor_destroy(r->w);
    end_context(r->c);
}

static void check_same_ends(const attn_progress *a, const attn_progress *b)
{
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->all_steps, b->all_steps);
    assert_true(a->rate == b->rate && a->loss == b->loss && a->valid_loss == b->valid_loss);
    assert_true(a->best_loss == b->best_loss && a->improved == b->improved);
}

static void a_stopped_run_ends_in_the_same_bits(void **state)
{
    run whole = {0};
    begin(&whole, NULL);
    assert_int_equal(go(&whole), ATTN_OK);
    assert_int_equal(whole.n_ends, EPOCHS);
    for (int64_t at = 1; at < EPOCHS * STEPS; at++) {
        run first = {.stop_at = at}, second = {0};
        begin(&first, NULL);
        assert_int_equal(go(&first), ATTN_ERROR_INTERRUPTED);
        begin(&second, &first.store);
        assert_int_equal(go(&second), ATTN_OK);
        assert_memory_equal(second.store.w, whole.store.w, sizeof whole.store.w);
        assert_memory_equal(second.store.m, whole.store.m, sizeof whole.store.m);
        assert_memory_equal(second.store.v, whole.store.v, sizeof whole.store.v);
        assert_int_equal(first.n_ends + second.n_ends, EPOCHS);
        for (int i = 0; i < second.n_ends; i++)
            check_same_ends(&second.ends[i], &whole.ends[first.n_ends + i]);
        end(&first);
        end(&second);
    }
    end(&whole);
}

static void a_loss_may_be_of_either_type(void **state)
{
    run r[2] = {{.wide = false}, {.wide = true}};
    for (int i = 0; i < 2; i++) {
        begin(&r[i], NULL);
        assert_int_equal(go(&r[i]), ATTN_OK);
    }
    for (int i = 0; i < EPOCHS; i++)
        check_same_ends(&r[0].ends[i], &r[1].ends[i]);
    assert_memory_equal(r[0].store.w, r[1].store.w, sizeof r[0].store.w);
    end(&r[0]);
    end(&r[1]);
}

static void inconsistent_counters_are_refused(void **state)
{
    run r = {0};
    begin(&r, NULL);
    assert_int_equal(go(&r), ATTN_OK);
    assert_int_equal(attn_config_set_int(r.store.counters, "optimizer_steps", -1), ATTN_OK);
    assert_refused(r.c, attn_training_restore(r.training, r.store.counters), ATTN_ERROR_FORMAT, "optimizer_steps");
    end(&r);
}

static void counters_of_the_older_spelling_are_taken(void **state)
{
    run r = {0};
    begin(&r, NULL);
    assert_int_equal(go(&r), ATTN_OK);
    attn_config *older;
    assert_int_equal(attn_config_create(&older, r.c), ATTN_OK);
    for (int64_t i = 0; i < attn_config_size(r.store.counters); i++) {
        const char *key = attn_config_key(r.store.counters, i);
        const char *name = strcmp(key, "optimizer_steps") == 0 ? "optimiser_steps" : key;
        assert_int_equal(attn_config_set(older, name, attn_config_get(r.store.counters, key)), ATTN_OK);
    }
    int64_t steps_taken = attn_optimizer_steps(attn_training_optimizer(r.training));
    attn_optimizer_set_steps(attn_training_optimizer(r.training), 0);
    assert_int_equal(attn_training_restore(r.training, older), ATTN_OK);
    assert_int_equal(attn_optimizer_steps(attn_training_optimizer(r.training)), steps_taken);
    assert_true(steps_taken > 0);
    attn_config_destroy(older);
    end(&r);
}

/* A gradient that is not finite makes a step change nothing, whether the norm is requested or not. */
static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    run r = {0};
    begin(&r, NULL);
    float before[WIDTH];
    attn_tape *tape;
    attn_optimizer *optimizer = attn_training_optimizer(r.training);
    memcpy(before, attn_tensor_data(r.w), sizeof before);
    assert_int_equal(attn_tape_create(&tape, r.c), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_tensor *y = attn_affine(tape, r.w, (double)INFINITY, 0);
    assert_int_equal(attn_backward(tape, attn_mean(tape, y, 0)), ATTN_OK);
    assert_int_equal(attn_optimizer_step(optimizer, 0.1, NULL), ATTN_OK);
    assert_memory_equal(before, attn_tensor_data(r.w), sizeof before);
    assert_int_equal(attn_optimizer_steps(optimizer), 0);
    attn_tape_destroy(tape);
    end(&r);
}

static void wrong_optimizers_are_refused(void **state)
{
    static const struct {
        attn_optimizer_options options;
        attn_dtype dtype;
        attn_status status;
        const char *text;
    } wrong[] = {
        {{.beta1 = 1}, ATTN_F32, ATTN_ERROR_ARGUMENT, "beta1 is 1; it must lie in [0, 1)"},
        {{.beta2 = -0.5}, ATTN_F32, ATTN_ERROR_ARGUMENT, "beta2 is -0.5; it must lie in [0, 1)"},
        {{.eps = -1}, ATTN_F32, ATTN_ERROR_ARGUMENT, "eps is -1; it must be positive"},
        {{.momentum = 1}, ATTN_F32, ATTN_ERROR_ARGUMENT, "momentum is 1; it must lie in [0, 1)"},
        {{.weight_decay = -2}, ATTN_F32, ATTN_ERROR_ARGUMENT, "weight_decay is -2; it must be at least 0"},
        {{.clip_norm = -3}, ATTN_F32, ATTN_ERROR_ARGUMENT, "clip_norm is -3; it must be at least 0"},
        {{.eps = 0}, ATTN_F64, ATTN_ERROR_UNSUPPORTED, "optimizer: parameter w is f64, not f32"},
    };
    attn_context *c = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_tensor *w;
        attn_optimizer *optimizer;
        attn_named_list parameters = {.context = c, .owns = true};
        assert_int_equal(attn_tensor_create(&w, c, wrong[i].dtype, 1, (int64_t[]){WIDTH}), ATTN_OK);
        attn_tensor_set_requires_grad(w, true);
        assert_int_equal(attn_named_add(&parameters, "w", w), ATTN_OK);
        assert_refused(c, attn_optimizer_create(&optimizer, c, &parameters, &wrong[i].options), wrong[i].status,
                       wrong[i].text);
        attn_named_clear(&parameters);
    }
}

/* A gradient must be clipped even if its squares overflow f32. */
static void a_large_gradient_is_clipped(void **state)
{
    attn_context *c = *state;
    attn_tensor *w;
    attn_tape *tape;
    attn_optimizer *optimizer;
    double norm;
    assert_int_equal(attn_tensor_create(&w, c, ATTN_F32, 1, (int64_t[]){WIDTH}), ATTN_OK);
    attn_tensor_set_requires_grad(w, true);
    attn_named_list parameters = {.context = c, .owns = true};
    assert_int_equal(attn_named_add(&parameters, "w", w), ATTN_OK);
    attn_optimizer_options options = {.kind = ATTN_OPTIMIZER_SGD, .clip_norm = 1};
    assert_int_equal(attn_optimizer_create(&optimizer, c, &parameters, &options), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    assert_int_equal(attn_backward(tape, attn_sum(tape, attn_affine(tape, w, 1e30, 0), 0)), ATTN_OK);
    assert_int_equal(attn_optimizer_step(optimizer, 1, &norm), ATTN_OK);
    assert_true(fabs(norm / (1e30 * sqrt(WIDTH)) - 1) < 1e-6);
    for (int i = 0; i < WIDTH; i++)
        assert_true(fabs((double)((float *)attn_tensor_data(w))[i] + 1 / sqrt(WIDTH)) < 1e-6);
    attn_tape_destroy(tape);
    attn_optimizer_destroy(optimizer);
    attn_named_clear(&parameters);
}

/* After a thousand steps without gradients, the moments must be 0, because 0.9^1000 is 2^-152. Rounding could stop
 * their decay: 0.9 times the smallest subnormal number is this number again. */
static void moments_decay_to_zero(void **state)
{
    attn_context *c = *state;
    for (int kind = ATTN_OPTIMIZER_ADAM; kind <= ATTN_OPTIMIZER_SGD; kind++) {
        attn_tensor *w;
        attn_tape *tape;
        attn_optimizer *optimizer;
        attn_context_clear_error(c);
        assert_int_equal(attn_tensor_create(&w, c, ATTN_F32, 1, (int64_t[]){WIDTH}), ATTN_OK);
        attn_tensor_set_requires_grad(w, true);
        attn_named_list parameters = {.context = c, .owns = true};
        assert_int_equal(attn_named_add(&parameters, "w", w), ATTN_OK);
        attn_optimizer_options options = {.kind = (attn_optimizer_kind)kind, .momentum = 0.9, .beta2 = 0.9};
        assert_int_equal(attn_optimizer_create(&optimizer, c, &parameters, &options), ATTN_OK);
        assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
        for (int step = 0; step < 1000; step++) {
            attn_tape_reset(tape, &(attn_tape_options){.record = true});
            assert_int_equal(attn_backward(tape, attn_sum(tape, attn_affine(tape, w, step == 0, 0), 0)), ATTN_OK);
            assert_int_equal(attn_optimizer_step(optimizer, 1e-3, NULL), ATTN_OK);
        }
        const attn_named_list *moments = attn_optimizer_state(optimizer);
        for (int64_t i = 0; i < moments->n; i++)
            for (int j = 0; j < WIDTH; j++)
                assert_true(((float *)attn_tensor_data(moments->items[i].tensor))[j] == 0);
        attn_tape_destroy(tape);
        attn_optimizer_destroy(optimizer);
        attn_named_clear(&parameters);
    }
}

/* Runs a backward pass of two parameters of BIG numbers each. Returns by how many bytes the context's memory has
 * grown. *left is this growth after the tape is destroyed. */
enum { BIG = 1 << 16 };
static size_t bytes_of_training(bool frozen, size_t *left)
{
    size_t before, with_gradients, after;
    attn_context *c;
    attn_tensor *pair[2];
    attn_tape *tape;
    attn_optimizer *optimizer;
    attn_named_list parameters;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 1}), ATTN_OK);
    parameters = (attn_named_list){.context = c};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attn_tensor_create(&pair[i], c, ATTN_F32, 1, (int64_t[]){BIG}), ATTN_OK);
        attn_tensor_set_requires_grad(pair[i], i == 0 || !frozen);
        for (int k = 0; k < BIG; k++)
            ((float *)attn_tensor_data(pair[i]))[k] = 1;
        assert_int_equal(attn_named_add(&parameters, i ? "b" : "a", pair[i]), ATTN_OK);
    }
    attn_context_memory(c, &before, NULL, NULL);
    assert_int_equal(attn_optimizer_create(&optimizer, c, &parameters, NULL), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    assert_int_equal(attn_backward(tape, attn_mean(tape, attn_mul(tape, pair[0], pair[1]), 0)), ATTN_OK);
    assert_true((attn_tensor_grad(pair[1]) == NULL) == frozen);
    attn_context_memory(c, &with_gradients, NULL, NULL);
    assert_int_equal(attn_optimizer_step(optimizer, 0.1, NULL), ATTN_OK);
    assert_true((((float *)attn_tensor_data(pair[1]))[7] == 1) == frozen);
    attn_tape_destroy(tape);
    attn_context_memory(c, &after, NULL, NULL);
    attn_optimizer_destroy(optimizer);
    attn_named_clear(&parameters);
    for (int i = 0; i < 2; i++)
        attn_tensor_destroy(pair[i]);
    end_context(c);
    *left = after - before;
    return with_gradients - before;
}

/* A trained parameter has a gradient and two moments. A frozen parameter has none of them. */
static void frozen_parameters_take_no_optimizer_memory(void **state)
{
    const size_t one = BIG * sizeof(float), little = 8192;
    size_t left, left_frozen;
    size_t whole = bytes_of_training(false, &left), half = bytes_of_training(true, &left_frozen);
    assert_in_range(left, 4 * one, 4 * one + little);
    assert_in_range(left_frozen, 2 * one, 2 * one + little);
    assert_true(whole - half >= 3 * one);
}

/* Trains the parameters a [1] and b [100] for two steps, from ones, and freezes parameter `freeze` after the first.
 * Returns the value of b's numbers, which are all equal. */
enum { MANY = 100 };
static float after_two_steps(int freeze, attn_optimizer_kind kind)
{
    attn_context *c;
    attn_tensor *x[2];
    attn_tape *tape;
    attn_optimizer *optimizer;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    attn_named_list parameters = {.context = c, .owns = true};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attn_tensor_create(&x[i], c, ATTN_F32, 1, (int64_t[]){i ? MANY : 1}), ATTN_OK);
        for (int k = 0; k < (i ? MANY : 1); k++)
            ((float *)attn_tensor_data(x[i]))[k] = 1;
        attn_tensor_set_requires_grad(x[i], true);
        assert_int_equal(attn_named_add(&parameters, i ? "b" : "a", x[i]), ATTN_OK);
    }
    assert_int_equal(
        attn_optimizer_create(&optimizer, c, &parameters, &(attn_optimizer_options){.kind = kind, .momentum = 0.5}),
        ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    for (int step = 0; step < 2; step++) {
        if (step == 1 && freeze >= 0)
            attn_tensor_set_requires_grad(x[freeze], false);
        attn_tape_reset(tape, &(attn_tape_options){.record = true});
        assert_int_equal(attn_backward(tape, attn_sum(tape, attn_mul(tape, x[0], x[1]), 0)), ATTN_OK);
        assert_int_equal(attn_optimizer_step(optimizer, 1e-3, NULL), ATTN_OK);
    }
    const float *b = attn_tensor_data(x[1]), first = b[0];
    for (int k = 0; k < MANY; k++)
        assert_true(b[k] == first);
    attn_tape_destroy(tape);
    attn_optimizer_destroy(optimizer);
    attn_named_clear(&parameters);
    end_context(c);
    return first;
}

/* If a parameter is frozen later, its moments do not affect other parameters, because each parameter has its own. */
static void a_parameter_may_be_frozen_later(void **state)
{
    for (attn_optimizer_kind kind = ATTN_OPTIMIZER_ADAM; kind <= ATTN_OPTIMIZER_SGD; kind++) {
        float both = after_two_steps(-1, kind);
        assert_true(both < 1 && after_two_steps(0, kind) == both);
        assert_true(after_two_steps(1, kind) > both);
    }
}

/* ------------------------------------------------------------------------------------------ by hand */

enum { MOST = 16 };

/* A training of one number w, which begins at 1. In the first epoch, loss i is w * slopes[i], the mean over i + 1
 * labels. In the second epoch, it is twice as large. The results of validations are also given. */
typedef struct given {
    const double *slopes, *valid, *judged;
    int64_t n;
    attn_tensor *w;
    attn_progress ends[MOST];
    int n_ends, n_steps;
    double norms[MOST]; /* norm of the gradient of each step */
    int64_t n_moments;
} given;

static int64_t given_steps(void *user)
{
    return ((given *)user)->n;
}

static attn_tensor *given_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens)
{
    given *g = user;
    *tokens = step + 1;
    return attn_affine(tape, g->w, g->slopes[step] * (double)(epoch + 1), 0);
}

static attn_status given_validate(void *user, attn_tape *tape, double *value)
{
    given *g = user;
    (void)tape;
    *value = g->valid[g->n_ends];
    return ATTN_OK;
}

static double given_judge(void *user)
{
    given *g = user;
    return g->judged[g->n_ends];
}

static attn_status save_nothing(void *user, bool better)
{
    (void)user, (void)better;
    return ATTN_OK;
}

static bool note_progress(void *user, const attn_progress *p)
{
    given *g = user;
    assert_true(g->n_ends < MOST && g->n_steps < MOST);
    if (p->epoch_ends)
        g->ends[g->n_ends++] = *p;
    else
        g->norms[g->n_steps++] = p->grad_norm;
    return true;
}

static double train(given *g, const attn_training_options *options)
{
    attn_context *c;
    attn_training *training;
    attn_job job = {.user = g,
                    .steps = given_steps,
                    .loss = given_loss,
                    .validate = g->valid ? given_validate : NULL,
                    .judge = g->judged ? given_judge : NULL,
                    .save = save_nothing,
                    .progress = note_progress};
    g->n_ends = g->n_steps = 0;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    assert_int_equal(attn_tensor_create(&g->w, c, ATTN_F32, 1, (int64_t[]){1}), ATTN_OK);
    attn_tensor_set_requires_grad(g->w, true);
    float *w = attn_tensor_data(g->w);
    *w = 1;
    attn_named_list parameters = {.context = c, .owns = true};
    assert_int_equal(attn_named_add(&parameters, "w", g->w), ATTN_OK);
    assert_int_equal(attn_training_create(&training, c, &parameters, options), ATTN_OK);
    assert_int_equal(attn_training_run(training, &job), ATTN_OK);
    g->n_moments = attn_optimizer_state(attn_training_optimizer(training))->n;
    double end = (double)*w;
    attn_training_destroy(training);
    attn_named_clear(&parameters);
    end_context(c);
    return end;
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-6)
#define LITTLE     1e-30 /* a learning rate so small that w does not change */

/* The last step of an epoch may have fewer losses. */
static void a_step_follows_the_mean_of_its_losses(void **state)
{
    static const struct {
        int64_t accumulate;
        int steps;
        double means[6];
    } cases[] = {{0, 6, {1, 2, 3, 4, 5, 6}}, {2, 3, {1.5, 3.5, 5.5}}, {3, 2, {2, 5}},
                 {4, 2, {2.5, 5.5}},         {5, 2, {3, 6}},          {7, 1, {3.5}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        given g = {.slopes = (const double[]){1, 2, 3, 4, 5, 6}, .n = 6};
        attn_training_options options = {.epochs = 1,
                                         .schedule.peak = 0.125,
                                         .optimizer.kind = ATTN_OPTIMIZER_SGD,
                                         .accumulate = cases[i].accumulate};
        double want = 1, w = train(&g, &options);
        assert_int_equal(g.n_steps, cases[i].steps);
        for (int k = 0; k < cases[i].steps; k++) {
            NEAR(g.norms[k], cases[i].means[k]);
            want -= 0.125 * cases[i].means[k];
        }
        NEAR(w, want);
    }
}

/* The loss of the epoch is (1 * 1 + 2 * 2 + ... + 6 * 6) / (1 + 2 + ... + 6), because loss i is the mean over i
 * labels. It does not depend on how many losses a step has. */
static void the_loss_of_an_epoch_is_that_of_a_label(void **state)
{
    for (int64_t accumulate = 1; accumulate <= 4; accumulate += 3) {
        given g = {.slopes = (const double[]){1, 2, 3, 4, 5, 6}, .n = 6};
        train(&g, &(attn_training_options){.epochs = 2, .schedule.peak = LITTLE, .accumulate = accumulate});
        assert_int_equal(g.n_ends, 2);
        NEAR(g.ends[0].loss, 91.0 / 21);
        NEAR(g.ends[1].loss, 2 * 91.0 / 21);
    }
}

/* Training ends if `patience` validations in a row are not better than the best one. With a judge, larger scores are
 * better. Without a judge, smaller losses are better. */
static void better_epoch_resets_patience(void **state)
{
    static const struct {
        int64_t patience;
        double valid[6], judged[6];
        int epochs;
        double best;
        const char *improved;
    } cases[] = {
        {2, {5, 6, 4, 6, 5, 3}, {0}, 5, 4, "+-+--"},
        {1, {5, 5, 4}, {0}, 2, 5, "+-"},
        {0, {1, 2, 3, 4, 5, 6}, {0}, 6, 1, "+-----"},
        {3, {5, 6, 6, 4, 6, 6}, {0}, 6, 4, "+--+--"},
        {2, {5, 4, 6, 2, 1, 0}, {7, 6, 8, 8, 6, 9}, 5, 6, "+-+--"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        given g = {.slopes = (const double[]){1}, .n = 1, .valid = cases[i].valid};
        g.judged = cases[i].judged[0] > 0 ? cases[i].judged : NULL;
        train(&g, &(attn_training_options){.epochs = 6, .schedule.peak = LITTLE, .patience = cases[i].patience});
        assert_int_equal(g.n_ends, cases[i].epochs);
        NEAR(g.ends[g.n_ends - 1].best_loss, cases[i].best);
        for (int e = 0; e < g.n_ends; e++) {
            NEAR(g.ends[e].valid_loss, cases[i].valid[e]);
            assert_int_equal(g.ends[e].improved, cases[i].improved[e] == '+');
        }
    }
}

/* Steps must follow the formulas of the three optimizers, with and without their options. */
static void steps_are_those_of_the_formulas(void **state)
{
    static const double slopes[] = {0.25, -2, 0.5, 1};
    enum { N = sizeof slopes / sizeof *slopes };
    for (int i = 0; i < 24; i++) {
        attn_optimizer_options o = {.kind = (attn_optimizer_kind)(i % 3),
                                    .beta1 = i % 2 ? 0.5 : 0,
                                    .beta2 = i % 2 ? 0.75 : 0,
                                    .momentum = i / 3 % 2 ? 0.5 : 0,
                                    .weight_decay = i / 6 % 2 ? 0.25 : 0,
                                    .clip_norm = i / 12 ? 1 : 0};
        given of = {.slopes = slopes, .n = N};
        double rate = 0.125, beta1 = i % 2 ? 0.5 : 0.9, beta2 = i % 2 ? 0.75 : 0.999, w = 1, m = 0, v = 0;
        for (int t = 1; t <= N; t++) {
            double g = slopes[t - 1];
            g = o.clip_norm > 0 ? fmax(-1, fmin(1, g)) : g;
            if (o.kind == ATTN_OPTIMIZER_ADAMW)
                w -= rate * o.weight_decay * w;
            else
                g += o.weight_decay * w;
            m = o.kind == ATTN_OPTIMIZER_SGD ? o.momentum * m + g : beta1 * m + (1 - beta1) * g;
            v = beta2 * v + (1 - beta2) * g * g;
            w -= o.kind == ATTN_OPTIMIZER_SGD ? rate * m
                                              : rate * m / (1 - pow(beta1, t)) / (sqrt(v / (1 - pow(beta2, t))) + 1e-8);
        }
        NEAR(train(&of, &(attn_training_options){.epochs = 1, .schedule.peak = rate, .optimizer = o}), w);
        assert_int_equal(of.n_moments, o.kind != ATTN_OPTIMIZER_SGD ? 2 : o.momentum > 0 ? 1 : 0);
    }
}

RUN_TESTS(TEST(a_stopped_run_ends_in_the_same_bits), TEST(a_loss_may_be_of_either_type),
          TEST(inconsistent_counters_are_refused), TEST(counters_of_the_older_spelling_are_taken),
          TEST(a_gradient_that_is_not_finite_changes_nothing), TEST_WITH_CONTEXT(a_large_gradient_is_clipped),
          TEST_WITH_CONTEXT(wrong_optimizers_are_refused), TEST_WITH_CONTEXT(moments_decay_to_zero),
          TEST(frozen_parameters_take_no_optimizer_memory), TEST(a_parameter_may_be_frozen_later),
          TEST(a_step_follows_the_mean_of_its_losses), TEST(the_loss_of_an_epoch_is_that_of_a_label),
          TEST(better_epoch_resets_patience), TEST(steps_are_those_of_the_formulas))
