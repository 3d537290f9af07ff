/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the exchange of gradients between two ranks without MPI, unfinished steps, and trainings that are aborted.
 */
#include "support/fixture.h"

#include "attn/train.h"
#include "support/faults.h"
#include "support/tensors.h"
#include "support/two_ranks.h"
#include "tensor/all_reduce.h"
#include "train/loop.h"

typedef struct model {
    attn_named_list list;
    attn_tensor *w[4]; /* w[2] is not used, and w[3] is not trained */
} model;

static attn_status make_model(model *m, attn_context *c)
{
    static const char *const names[] = {"a", "b", "unused", "still"};
    *m = (model){.list = {.context = c, .owns = true}};
    attn_status status = ATTN_OK;
    for (int i = 0; i < 4 && status == ATTN_OK; i++) {
        status = attn_tensor_create(&m->w[i], c, ATTN_F32, 1, (int64_t[]){5});
        if (status == ATTN_OK && (status = attn_named_add(&m->list, names[i], m->w[i])) != ATTN_OK)
            attn_tensor_destroy(m->w[i]);
        for (int k = 0; status == ATTN_OK && k < 5; k++)
            test_set(m->w[i], k, 0.3 * (k + 1) - i);
        if (status == ATTN_OK)
            attn_tensor_set_requires_grad(m->w[i], i < 3);
    }
    return status;
}

/* Computes mean(b a^2 + a) of the first two parameters a and b. */
static attn_tensor *loss_of(model *m, attn_tape *tape)
{
    attn_tensor *square = attn_mul(tape, m->w[0], m->w[0]);
    return attn_mean(tape, attn_add(tape, attn_mul(tape, square, m->w[1]), m->w[0]), 0);
}

static attn_status one_step(attn_context *c, void *user)
{
    model m;
    attn_tape *tape = NULL;
    attn__all_reduce *e = NULL;
    double totals[] = {3, 4};
    attn_status status = attn__ranks_join_with(c, &two_ranks);
    if (status != ATTN_OK)
        return status;
    attn_status (*check)(model *) = *(attn_status(**)(model *))user;
    status = make_model(&m, c);
    if (status == ATTN_OK)
        status = attn_tape_create(&tape, c);
    if (status == ATTN_OK)
        /* A bucket size of 8 bytes gives each parameter its own bucket. */
        status = attn__all_reduce_create(&e, c, &m.list, NULL, 8);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        attn_tape_reset(tape, &(attn_tape_options){.record = true});
        attn__all_reduce_begin(e, tape, false);
        attn_tensor *loss = loss_of(&m, tape);
        totals[0] = 3;
        status = loss ? attn__all_reduce_backward(e, tape, loss, 0.5, totals, 2) : attn_context_status(c);
        if (status == ATTN_OK && totals[0] == 6 && check)
            status = check(&m);
        for (int k = 0; k < 3; k++)
            attn_tensor_drop_grad(m.w[k]);
    }
    attn__all_reduce_destroy(e);
    attn_tape_destroy(tape);
    attn_named_clear(&m.list);
    return status;
}

/* Checks the gradients. Each rank has half of the loss. So d loss / da = (2 a b + 1) / 5 and d loss / db = a^2 / 5. */
static attn_status is_gradient(model *m)
{
    for (int k = 0; k < 5; k++) {
        double a = test_at(m->w[0], k), b = test_at(m->w[1], k);
        assert_float_equal((float)test_at(attn_tensor_grad(m->w[0]), k), (float)((2 * a * b + 1) / 5), 1e-6F);
        assert_float_equal((float)test_at(attn_tensor_grad(m->w[1]), k), (float)(a * a / 5), 1e-6F);
    }
    assert_null(attn_tensor_grad(m->w[2]));
    return ATTN_OK;
}

static void gradients_add_up(void **state)
{
    attn_context *c = test_context();
    attn_status (*check)(model *) = is_gradient;
    other = (struct two_ranks){0};
    assert_int_equal(one_step(c, (void *)&check), ATTN_OK);
    assert_true(other.begun >= 2 * 4);
    attn_context_destroy(c);
}

static void memory_fails(void **state)
{
    attn_status (*check)(model *) = NULL;
    other = (struct two_ranks){0};
    assert_true(faults_try_all(one_step, (void *)&check) > 10);
}

typedef struct step {
    attn_context *context;
    model m;
    attn_tape *tape;
    attn__all_reduce *all_reduce;
    double before;
} step;

static void begin_step(step *s)
{
    *s = (step){.context = two_ranks_joined()};
    assert_int_equal(make_model(&s->m, s->context), ATTN_OK);
    assert_int_equal(attn_tape_create(&s->tape, s->context), ATTN_OK);
    assert_int_equal(attn__all_reduce_create(&s->all_reduce, s->context, &s->m.list, NULL, 0), ATTN_OK);
    s->before = test_at(s->m.w[3], 2);
    assert_true(s->before != 0);
}

/* Runs the forward pass, and sets an element of the untrained parameter to 77, as running statistics would be
 * updated. */
static attn_tensor *go_forward(step *s)
{
    attn_tape_reset(s->tape, &(attn_tape_options){.record = true});
    attn__all_reduce_begin(s->all_reduce, s->tape, false);
    test_set(s->m.w[3], 2, 77);
    attn_tensor *loss = loss_of(&s->m, s->tape);
    assert_non_null(loss);
    return loss;
}

static void end_step(step *s)
{
    attn__all_reduce_destroy(s->all_reduce);
    attn_tape_destroy(s->tape);
    attn_named_clear(&s->m.list);
    attn_context_destroy(s->context);
}

static void interrupted_step_is_undone(void **state)
{
    step s;
    double totals[] = {0};
    int asked = 3;
    begin_step(&s);
    attn_tensor *loss = go_forward(&s);
    attn_ranks_set_stop(s.context, two_ranks_stop, &asked);
    other.mute = true;
    assert_int_equal(attn__all_reduce_backward(s.all_reduce, s.tape, loss, 1, totals, 1), ATTN_ERROR_INTERRUPTED);
    attn__all_reduce_abandon(s.all_reduce, s.tape);
    assert_true(test_at(s.m.w[3], 2) == s.before);
    assert_null(attn_tensor_grad(s.m.w[0]));
    attn__all_reduce_begin(s.all_reduce, s.tape, false);
    attn_tape_reset(s.tape, &(attn_tape_options){.record = true});
    assert_null(loss_of(&s.m, s.tape));
    end_step(&s);
}

/* A finished step is kept if a later validation is stopped. */
static void finished_step_is_kept(void **state)
{
    step s;
    double totals[] = {0};
    begin_step(&s);
    attn__all_reduce_abandon(s.all_reduce, s.tape);
    assert_true(test_at(s.m.w[3], 2) == s.before);
    attn_tensor *loss = go_forward(&s);
    assert_int_equal(attn__all_reduce_backward(s.all_reduce, s.tape, loss, 1, totals, 1), ATTN_OK);
    attn__all_reduce_abandon(s.all_reduce, s.tape);
    assert_true(test_at(s.m.w[3], 2) == 77);
    end_step(&s);
}

/* --------------------------------------------------------------------------------------- a training */

typedef struct training {
    attn_context *context;
    model m;
    attn_training *of;
    int saves;
    int saves_fail_from; /* number of the first save that fails; 0: no save fails */
    int64_t stops_at;    /* number of steps before the run is stopped; 0: no stop */
    attn_status fails;   /* status of the loss in the third step */
} training;

static int64_t two_steps(void *user)
{
    (void)user;
    return 2;
}

static attn_tensor *loss_of_step(void *user, attn_tape *tape, int64_t epoch, int64_t at, int64_t *counted)
{
    training *t = user;
    *counted = 1;
    if (t->fails != ATTN_OK && epoch == 1 && at == 0) {
        (void)attn__fail(t->context, t->fails, "the third step");
        return NULL;
    }
    return loss_of(&t->m, tape);
}

static attn_status save(void *user, bool improved)
{
    training *t = user;
    (void)improved;
    t->saves++;
    bool fails = t->saves_fail_from > 0 && t->saves >= t->saves_fail_from;
    return fails ? attn__fail(t->context, ATTN_ERROR_IO, "no room") : ATTN_OK;
}

static bool goes_on(void *user, const attn_progress *p)
{
    return p->epoch_ends || p->all_steps != ((const training *)user)->stops_at;
}

static int64_t two_labels(void *user)
{
    (void)user;
    return 2;
}

static attn_status train(training *t)
{
    attn_training_options options = {.epochs = 2, .schedule = {.peak = 0.01}};
    attn_job job = {
        .user = t, .steps = two_steps, .loss = loss_of_step, .save = save, .progress = goes_on, .whole = two_labels};
    t->context = two_ranks_joined();
    assert_int_equal(make_model(&t->m, t->context), ATTN_OK);
    assert_int_equal(attn_training_create(&t->of, t->context, &t->m.list, &options), ATTN_OK);
    attn_status status = attn_training_run(t->of, &job);
    attn_training_destroy(t->of);
    attn_named_clear(&t->m.list);
    attn_context_destroy(t->context);
    return status;
}

/* If a training ends early, the other rank gets two notices: one while it waits for rank 0, and one when rank 0
 * leaves. */
static void interrupted_training_notifies_once(void **state)
{
    training t = {0};
    assert_int_equal(train(&t), ATTN_OK);
    assert_int_equal(t.saves, 2);
    assert_int_equal(other.told, 0);
    t = (training){.saves_fail_from = 1};
    assert_int_equal(train(&t), ATTN_ERROR_IO);
    assert_int_equal(t.saves, 1);
    assert_int_equal(other.told, 2);
    assert_int_equal(other.told_first, ATTN_ERROR_IO);
    t = (training){.stops_at = 1};
    assert_int_equal(train(&t), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(t.saves, 1);
    assert_int_equal(other.told, 2);
    assert_int_equal(other.told_first, ATTN_ERROR_INTERRUPTED);
    t = (training){.fails = ATTN_ERROR_MEMORY};
    assert_int_equal(train(&t), ATTN_ERROR_MEMORY);
    assert_int_equal(t.saves, 1);
    assert_int_equal(other.told_first, ATTN_ERROR_MEMORY);
    t = (training){.fails = ATTN_ERROR_INTERRUPTED};
    assert_int_equal(train(&t), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(t.saves, 2);
    t = (training){.fails = ATTN_ERROR_IO, .saves_fail_from = 2};
    assert_int_equal(train(&t), ATTN_ERROR_IO);
    assert_int_equal(t.saves, 2);
    assert_int_equal(other.told, 2);
}

RUN_TESTS(TEST(gradients_add_up), TEST(memory_fails), TEST(interrupted_step_is_undone), TEST(finished_step_is_kept),
          TEST(interrupted_training_notifies_once))
