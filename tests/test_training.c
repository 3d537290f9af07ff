/* SPDX-License-Identifier: MIT
 * The training loop's promise: a run that is stopped at any step and goes on later has the same bits, and says the
 * same of each epoch, as one that was not. */
#include "support/cmocka.h"

#include "attn/tensor.h"
#include "attn/train.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 12, STEPS = 3, EPOCHS = 3 };

/* All that outlives a process: in memory here, in files there. */
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
    int64_t stop_at; /* steps of all epochs; 0: never */
    bool wide;       /* the loss is f64 */
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
    attn_context_destroy(r->c);
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
    (void)state;
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
    (void)state;
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

static void counters_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    run r = {0};
    begin(&r, NULL);
    assert_int_equal(go(&r), ATTN_OK);
    assert_int_equal(attn_config_set_int(r.store.counters, "optimizer_steps", -1), ATTN_OK);
    assert_int_equal(attn_training_restore(r.training, r.store.counters), ATTN_ERROR_FORMAT);
    assert_non_null(strstr(attn_context_error(r.c), "optimizer_steps"));
    end(&r);
}

static void counters_of_the_older_spelling_are_taken(void **state)
{
    (void)state;
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

/* Whether anybody asks for the norm or not. */
static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
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

/* Though its squares are no floats. */
static void a_large_gradient_is_clipped(void **state)
{
    (void)state;
    attn_context *c;
    attn_tensor *w;
    attn_tape *tape;
    attn_optimizer *optimizer;
    double norm;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
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
    attn_context_destroy(c);
}

/* A thousand steps without gradients: 0.9^1000 is 2^-152, and multiplying by 0.9 leaves the least subnormal numbers. */
static void moments_decay_to_zero(void **state)
{
    (void)state;
    for (int kind = ATTN_OPTIMIZER_ADAM; kind <= ATTN_OPTIMIZER_SGD; kind++) {
        attn_context *c;
        attn_tensor *w;
        attn_tape *tape;
        attn_optimizer *optimizer;
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 1}), ATTN_OK);
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
        attn_context_destroy(c);
    }
}

/* Bytes that the context holds more after a backward pass of two parameters of BIG numbers each, and when the tape
 * is gone. */
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
    attn_context_destroy(c);
    *left = after - before;
    return with_gradients - before;
}

/* A gradient and two moments for what is trained, neither for what is not. */
static void what_is_frozen_takes_no_memory(void **state)
{
    (void)state;
    const size_t one = BIG * sizeof(float), little = 8192;
    size_t left, left_frozen;
    size_t whole = bytes_of_training(false, &left), half = bytes_of_training(true, &left_frozen);
    assert_in_range(left, 4 * one, 4 * one + little); /* the moments of both */
    assert_in_range(left_frozen, 2 * one, 2 * one + little);
    assert_true(whole - half >= 3 * one);
}

/* Parameters a [1], b [100] of ones; `freeze` one of them between two steps.  Returns b's numbers, which are equal. */
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
    attn_context_destroy(c);
    return first;
}

/* Its moments are nobody else's. */
static void a_parameter_may_be_frozen_later(void **state)
{
    (void)state;
    for (attn_optimizer_kind kind = ATTN_OPTIMIZER_ADAM; kind <= ATTN_OPTIMIZER_SGD; kind++) {
        float both = after_two_steps(-1, kind);
        assert_true(both < 1 && after_two_steps(0, kind) == both);
        assert_true(after_two_steps(1, kind) > both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_run_ends_in_the_same_bits),
        cmocka_unit_test(a_loss_may_be_of_either_type),
        cmocka_unit_test(counters_that_make_no_sense_are_refused),
        cmocka_unit_test(counters_of_the_older_spelling_are_taken),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
        cmocka_unit_test(a_large_gradient_is_clipped),
        cmocka_unit_test(moments_decay_to_zero),
        cmocka_unit_test(what_is_frozen_takes_no_memory),
        cmocka_unit_test(a_parameter_may_be_frozen_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
