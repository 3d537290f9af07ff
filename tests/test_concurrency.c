/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests several threads of the caller: one plan in many threads, several contexts, one shared workspace, and errors at
 * the same time. It is most useful with the thread sanitizer.
 */
#include "support/fixture.h"

#include "attn/attn.h"
#include "attn/tensor.h"
#include "attn/train.h"
#include "base/context.h"
#include "support/faults.h"
#include "tensor/packed_weights.h"
#include "train/loop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, HEADS = 2, ROWS = 70, DIM = 16, SIZE = HEADS * ROWS * DIM };

static void run_all(int n, void *(*work)(void *), void *tasks, size_t size)
{
    pthread_t thread[MOST];
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, (char *)tasks + (size_t)i * size), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
}

static attn_problem small_problem(attn_direction direction)
{
    attn_problem p;
    attn_problem_heads(
        &p, &(attn_heads){
                .batch = 1, .heads = HEADS, .queries = ROWS, .keys = ROWS, .dim = DIM, .causal = ATTN_CAUSAL_TOP_LEFT});
    p.direction = direction;
    p.flags = direction == ATTN_DIRECTION_FORWARD ? ATTN_WANT_LSE : ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    p.dropout = 0.1;
    return p;
}

typedef struct pass {
    const attn_plan *forward, *backward;
    float q[SIZE], k[SIZE], v[SIZE], o[SIZE], dout[SIZE], dq[SIZE], dk[SIZE], dv[SIZE], lse[HEADS * ROWS];
    attn_status status;
} pass;

static void fill(pass *p)
{
    for (int i = 0; i < SIZE; i++) {
        p->q[i] = (float)(i * 37 % 101) / 50 - 1;
        p->k[i] = (float)(i * 53 % 103) / 51 - 1;
        p->v[i] = (float)(i * 71 % 107) / 53 - 1;
        p->dout[i] = (float)(i * 29 % 109) / 54 - 1;
    }
}

static void *run_passes(void *user)
{
    pass *p = user;
    attn_arrays a = {.q = p->q,
                     .k = p->k,
                     .v = p->v,
                     .o = p->o,
                     .lse = p->lse,
                     .dout = p->dout,
                     .dq = p->dq,
                     .dk = p->dk,
                     .dv = p->dv};
    size_t forward = attn_plan_workspace(p->forward), backward = attn_plan_workspace(p->backward);
    size_t size = ((forward > backward ? forward : backward) + 64) / 64 * 64;
    void *workspace = aligned_alloc(64, size);
    for (int i = 0; i < 5 && p->status == ATTN_OK; i++) {
        p->status = attn_plan_execute(p->forward, &a, workspace);
        if (p->status == ATTN_OK)
            p->status = attn_plan_execute(p->backward, &a, workspace);
    }
    free(workspace);
    return NULL;
}

static void one_plan_runs_in_eight_threads(void **state)
{
    enum { THREADS = MOST };
    attn_context *c = *state;
    attn_plan *forward, *backward;
    attn_problem f = small_problem(ATTN_DIRECTION_FORWARD), b = small_problem(ATTN_DIRECTION_BACKWARD);
    for (int s = 0; attn_solver_name(s); s++) {
        attn_plan_options options = {.solver = attn_solver_name(s)};
        if (attn_plan_create(&forward, c, &f, &options) != ATTN_OK)
            assert_int_equal(attn_plan_create(&forward, c, &f, NULL), ATTN_OK);
        if (attn_plan_create(&backward, c, &b, &options) != ATTN_OK)
            assert_int_equal(attn_plan_create(&backward, c, &b, NULL), ATTN_OK);
        pass *passes = calloc(THREADS + 1, sizeof *passes);
        for (int i = 0; i <= THREADS; i++) {
            fill(&passes[i]);
            passes[i].forward = forward;
            passes[i].backward = backward;
        }
        run_passes(&passes[THREADS]);
        run_all(THREADS, run_passes, passes, sizeof *passes);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(passes[i].status, ATTN_OK);
            assert_memory_equal(passes[i].o, passes[THREADS].o, sizeof passes->o);
            assert_memory_equal(passes[i].dq, passes[THREADS].dq, sizeof passes->dq);
            assert_memory_equal(passes[i].dk, passes[THREADS].dk, sizeof passes->dk);
            assert_memory_equal(passes[i].dv, passes[THREADS].dv, sizeof passes->dv);
        }
        free(passes);
        attn_plan_destroy(forward);
        attn_plan_destroy(backward);
    }
}

/* ---------------------------------------------------------------------------------- the plan's workspace */

typedef struct shared_run {
    const attn_plan *plan;
    pass *arrays;
    int ran, busy, other;
} shared_run;

static void *run_shared(void *user)
{
    shared_run *r = user;
    pass *p = r->arrays;
    attn_arrays a = {.q = p->q, .k = p->k, .v = p->v, .o = p->o, .lse = p->lse};
    for (int i = 0; i < 50; i++) {
        attn_status status = attn_plan_execute(r->plan, &a, NULL);
        r->ran += status == ATTN_OK;
        r->busy += status == ATTN_ERROR_BUSY;
        r->other += status != ATTN_OK && status != ATTN_ERROR_BUSY;
    }
    return NULL;
}

static void one_workspace_serves_one_thread_at_a_time(void **state)
{
    enum { THREADS = MOST };
    attn_context *c = *state;
    attn_plan *plan;
    attn_problem f = small_problem(ATTN_DIRECTION_FORWARD);
    assert_int_equal(attn_plan_create(&plan, c, &f, NULL), ATTN_OK);
    pass *passes = calloc(THREADS + 1, sizeof *passes);
    shared_run runs[THREADS + 1];
    int ran = 0;
    for (int i = 0; i <= THREADS; i++) {
        fill(&passes[i]);
        runs[i] = (shared_run){plan, &passes[i], 0, 0, 0};
    }
    run_shared(&runs[THREADS]);
    assert_int_equal(runs[THREADS].ran, 50);
    run_all(THREADS, run_shared, runs, sizeof *runs);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(runs[i].other, 0);
        if (runs[i].ran)
            assert_memory_equal(passes[i].o, passes[THREADS].o, sizeof passes->o);
        ran += runs[i].ran;
    }
    assert_true(ran > 0);
    assert_string_equal(attn_context_error(c), "");
    free(passes);
    attn_plan_destroy(plan);
}

static void a_held_workspace_is_busy_until_it_is_free(void **state)
{
    attn_context *c = *state;
    attn_plan *plan;
    attn_problem f = small_problem(ATTN_DIRECTION_FORWARD);
    pass *p = calloc(1, sizeof *p);
    attn_arrays lacking = {.q = p->q, .k = p->k, .v = p->v, .lse = p->lse};
    attn_arrays whole = lacking;
    whole.o = p->o;
    assert_int_equal(attn_plan_create(&plan, c, &f, NULL), ATTN_OK);
    assert_int_equal(attn_plan_execute(plan, &lacking, NULL), ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_plan_execute(plan, &whole, NULL), ATTN_OK);
    assert_int_equal(attn_plan_execute(plan, &whole, NULL), ATTN_OK);
    free(p);
    attn_plan_destroy(plan);
}

/* ----------------------------------------------------------------------------------------------- errors */

static void *run_without_output(void *user)
{
    const attn_plan *plan = ((pass *)user)->forward;
    pass *p = user;
    attn_arrays a = {.q = p->q, .k = p->k, .v = p->v, .lse = p->lse};
    char workspace[64];
    p->status = attn_plan_execute(plan, &a, workspace);
    return NULL;
}

static void many_threads_may_fail_at_once(void **state)
{
    attn_context *c = *state;
    attn_plan *plan;
    attn_problem f = small_problem(ATTN_DIRECTION_FORWARD);
    assert_int_equal(attn_plan_create(&plan, c, &f, NULL), ATTN_OK);
    pass *passes = calloc(MOST, sizeof *passes);
    for (int i = 0; i < MOST; i++)
        passes[i].forward = plan;
    run_all(MOST, run_without_output, passes, sizeof *passes);
    for (int i = 0; i < MOST; i++)
        assert_int_equal(passes[i].status, ATTN_ERROR_ARGUMENT);
    assert_refused(c, attn_context_status(c), ATTN_ERROR_ARGUMENT, "'o'");
    free(passes);
    attn_plan_destroy(plan);
}

/* -------------------------------------------------------------------------------------- contexts apart */

enum { WIDTH = 24, STEPS = 10 };

typedef struct learner {
    attn_status status;
    float weights[WIDTH * WIDTH];
} learner;

/* Computes the loss of a training: the mean square of self-attention over numbers that depend only on the step and
 * the epoch. */
static attn_tensor *learner_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens)
{
    attn_tensor *weights = user;
    float x[8 * WIDTH];
    for (int i = 0; i < 8 * WIDTH; i++)
        x[i] = (float)((i + 1) * (step + 3) * (epoch + 7) % 97) / 48 - 1;
    *tokens = 8;
    attn_tensor *input = attn_tape_tensor(tape, ATTN_F32, 2, (int64_t[]){8, WIDTH}, x);
    attn_tensor *y = attn_matmul(tape, input, weights, false, false);
    y = attn_dropout(tape, attn_softmax(tape, y, NULL, 0), 0.1);
    return attn_mean(tape, attn_mean(tape, attn_mul(tape, y, y), 1), 0);
}

static int64_t learner_steps(void *user)
{
    (void)user;
    return STEPS;
}

static attn_status learner_save(void *user, bool improved)
{
    (void)user;
    (void)improved;
    return ATTN_OK;
}

static attn_status learn(learner *l, attn_context *c, attn_named_list *parameters, attn_tensor *weights)
{
    attn_training *training;
    attn_training_options options = {.epochs = 2, .seed = 5, .schedule = {.peak = 0.01}, .optimizer.clip_norm = 1};
    float *w = attn_tensor_data(weights);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        w[i] = (float)(i * 31 % 61) / 60 - 0.5f;
    attn_tensor_set_requires_grad(weights, true);
    attn_status status = attn_training_create(&training, c, parameters, &options);
    if (status != ATTN_OK)
        return status;
    attn_job job = {.user = weights, .steps = learner_steps, .loss = learner_loss, .save = learner_save};
    status = attn_training_run(training, &job);
    memcpy(l->weights, w, sizeof l->weights);
    attn_training_destroy(training);
    return status;
}

static void *run_learner(void *user)
{
    learner *l = user;
    attn_context *c = NULL;
    attn_tensor *weights = NULL;
    l->status = attn_context_create(&c, &(attn_context_options){.threads = 2});
    if (l->status != ATTN_OK)
        return NULL;
    attn_named_list parameters = {.context = c};
    l->status = attn_tensor_create(&weights, c, ATTN_F32, 2, (int64_t[]){WIDTH, WIDTH});
    if (l->status == ATTN_OK)
        l->status = attn_named_add(&parameters, "w", weights);
    if (l->status == ATTN_OK)
        l->status = learn(l, c, &parameters, weights);
    attn_named_clear(&parameters);
    attn_tensor_destroy(weights);
    attn_context_destroy(c);
    return NULL;
}

static void contexts_train_side_by_side(void **state)
{
    learner *learners = calloc(MOST + 1, sizeof *learners);
    run_learner(&learners[MOST]);
    assert_int_equal(learners[MOST].status, ATTN_OK);
    run_all(MOST, run_learner, learners, sizeof *learners);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(learners[i].status, ATTN_OK);
        assert_memory_equal(learners[i].weights, learners[MOST].weights, sizeof learners->weights);
    }
    free(learners);
}

/* ------------------------------------------------------------------------------------ packed weights */

enum { LAYERS = 5, IN = 96, OUT = 70, BATCH = 3 };

/* A thread with a tape that shares the packed weights of another tape: the weights that it found, and its results. */
typedef struct sharer {
    attn_context *context;
    attn_tape *tape;
    attn_tensor *const *weights;
    const attn__packed *packed[LAYERS];
    float y[LAYERS][BATCH * OUT];
    bool failed;
} sharer;

static void *run_sharer(void *user)
{
    sharer *s = user;
    float x[BATCH * IN];
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = (float)(i * 41 % 83) / 41 - 1;
    for (int i = 0; i < LAYERS; i++) {
        attn_tensor *input = attn_tape_tensor(s->tape, ATTN_F32, 2, (int64_t[]){BATCH, IN}, x);
        const attn_tensor *y = attn_linear(s->tape, input, s->weights[i], NULL, ATTN_ACTIVATION_IDENTITY);
        s->failed |= !y || !attn__packed_weights_find(s->tape, s->weights[i], BATCH, &s->packed[i]);
        if (y)
            memcpy(s->y[i], attn_tensor_data((attn_tensor *)(uintptr_t)y), sizeof s->y[i]);
    }
    attn__packed_weights_end(s->tape);
    return NULL;
}

static void begin_sharers(sharer *all, int n, attn_precision precision, attn_tensor *const *weights)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(attn_context_create(&all[i].context, &(attn_context_options){.threads = 1}), ATTN_OK);
        assert_int_equal(attn_tape_create(&all[i].tape, all[i].context), ATTN_OK);
        all[i].tape->precision = precision;
        all[i].weights = weights;
    }
}

static void end_sharers(sharer *all, int n)
{
    for (int i = 0; i < n; i++) {
        attn_tape_destroy(all[i].tape);
        attn_context_destroy(all[i].context);
    }
}

/* A tape that owns packed weights may end before the tapes that share them. */
static void share_weights(attn_precision precision)
{
    attn_context *c;
    attn_tape *owner;
    attn_tensor *weights[LAYERS];
    sharer *all = calloc(MOST + 1, sizeof *all);
    size_t before, during, after;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 2}), ATTN_OK);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(attn_tensor_create(&weights[i], c, ATTN_F32, 2, (int64_t[]){OUT, IN}), ATTN_OK);
        float *w = attn_tensor_data(weights[i]);
        for (int j = 0; j < OUT * IN; j++)
            w[j] = (float)((i + 1) * j * 17 % 89) / 44 - 1;
    }
    begin_sharers(all, MOST + 1, precision, weights);
    assert_int_equal(attn__packed_weights_begin(all[MOST].tape), ATTN_OK);
    run_sharer(&all[MOST]);
    attn_context_memory(c, &before, NULL, NULL);
    assert_int_equal(attn_tape_create(&owner, c), ATTN_OK);
    assert_int_equal(attn__packed_weights_begin(owner), ATTN_OK);
    for (int i = 0; i < MOST; i++)
        attn__packed_weights_share(all[i].tape, owner);
    attn__packed_weights_share(all[MOST].tape, owner);
    attn__packed_weights_end(owner);
    attn_tape_destroy(owner);
    run_all(MOST, run_sharer, all, sizeof *all);
    for (int i = 0; i < MOST; i++) {
        assert_false(all[i].failed);
        for (int j = 0; j < LAYERS; j++) {
            assert_non_null(all[i].packed[j]);
            assert_ptr_equal(all[i].packed[j], all[0].packed[j]);
            assert_memory_equal(all[i].y[j], all[MOST].y[j], sizeof all[i].y[j]);
        }
    }
    attn_context_memory(c, &during, NULL, NULL);
    assert_true(during > before);
    attn__packed_weights_end(all[MOST].tape);
    attn_context_memory(c, &after, NULL, NULL);
    assert_int_equal(after, before);
    end_sharers(all, MOST + 1);
    for (int i = 0; i < LAYERS; i++)
        attn_tensor_destroy(weights[i]);
    attn_context_destroy(c);
    free(all);
}

static void threads_share_packed_weights(void **state)
{
    share_weights(ATTN_PRECISION_F32);
    share_weights(ATTN_PRECISION_BF16);
    share_weights(ATTN_PRECISION_INT8);
}

/* Shares packed weights. Their memory comes from the owner's context, but an error is set in the caller's context. */
static attn_status share_with(attn_context *owner, void *user)
{
    attn_tensor *w = user;
    sharer one = {0};
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, owner);
    if (status != ATTN_OK)
        return status;
    begin_sharers(&one, 1, ATTN_PRECISION_INT8, &w);
    status = attn__packed_weights_begin(tape);
    if (status == ATTN_OK) {
        const attn__packed *packed;
        attn__packed_weights_share(one.tape, tape);
        bool found = attn__packed_weights_find(one.tape, w, 1, &packed);
        status = found ? ATTN_OK : attn_context_status(one.context);
        assert_int_equal(found, packed != NULL);
        attn__packed_weights_end(one.tape);
        attn__packed_weights_end(tape);
    }
    end_sharers(&one, 1);
    attn_tape_destroy(tape);
    return status;
}

static void sharing_survives_failed_allocations(void **state)
{
    attn_context *c = *state;
    attn_tensor *w;
    assert_int_equal(attn_tensor_create(&w, c, ATTN_F32, 2, (int64_t[]){OUT, IN}), ATTN_OK);
    memset(attn_tensor_data(w), 0, OUT * IN * sizeof(float));
    assert_true(faults_try_all(share_with, w) > 4);
    attn_tensor_destroy(w);
}

RUN_TESTS(TEST_WITH_CONTEXT(one_plan_runs_in_eight_threads),
          TEST_WITH_CONTEXT(one_workspace_serves_one_thread_at_a_time),
          TEST_WITH_CONTEXT(a_held_workspace_is_busy_until_it_is_free),
          TEST_WITH_CONTEXT(many_threads_may_fail_at_once), TEST(contexts_train_side_by_side),
          TEST(threads_share_packed_weights), TEST_WITH_CONTEXT(sharing_survives_failed_allocations))
