/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares the training steps of two processes that share memory with those of one process. If one process leaves in
 * the middle of a step, the step is undone completely.
 */
#include "support/cmocka.h"

#include "attn/train.h"
#include "support/forked_ranks.h"
#include "support/tensors.h"
#include "support/two_ranks.h"
#include "tensor/all_reduce.h"
#include "train/optimizer.h"
#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WIDE = 5000, STEPS = 6 };

/* Five parameters: two are used, one is used in every other step, one is unused, and one is not trained. */
typedef struct model {
    attn_named_list list;
    attn_tensor *w[5];
} model;

static attn_status make_model(model *m, attn_context *c)
{
    static const char *const names[] = {"a", "b", "seldom", "unused", "still"};
    *m = (model){.list = {.context = c, .owns = true}};
    attn_status status = ATTN_OK;
    for (int i = 0; i < 5 && status == ATTN_OK; i++) {
        status = attn_tensor_create(&m->w[i], c, ATTN_F32, 1, (int64_t[]){WIDE});
        if (status == ATTN_OK && (status = attn_named_add(&m->list, names[i], m->w[i])) != ATTN_OK)
            attn_tensor_destroy(m->w[i]);
        for (int k = 0; status == ATTN_OK && k < WIDE; k++)
            test_set(m->w[i], k, 0.01 * ((k * 7 + i) % 100 + 1));
        if (status == ATTN_OK)
            attn_tensor_set_requires_grad(m->w[i], i < 4);
    }
    return status;
}

/* Computes mean(x (b a^2 + a)), where x is 1 on rank 0, 3 on rank 1, and 2 without ranks. The mean over both ranks
 * equals the loss without ranks. */
static attn_tensor *loss_of(const model *m, attn_tape *tape, int64_t step, double x)
{
    attn_tensor *square = attn_mul(tape, m->w[0], m->w[0]);
    attn_tensor *sum = attn_add(tape, attn_mul(tape, square, m->w[1]), m->w[0]);
    if (step % 2 == 1)
        sum = attn_mul(tape, sum, m->w[2]);
    return attn_mean(tape, attn_affine(tape, sum, x, 0), 0);
}

/* --------------------------------------------------------------------------------------- whole trainings */

typedef struct training {
    attn_context *context;
    model m;
    attn_optimizer_options options;
    bool many;
} training;

static int64_t steps_of(void *user)
{
    (void)user;
    return STEPS;
}

static attn_tensor *training_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    const training *t = user;
    (void)epoch;
    *counted = t->many ? 1 : 2;
    return loss_of(&t->m, tape, step, !t->many ? 2 : attn_ranks_rank(t->context) == 0 ? 1 : 3);
}

static int64_t two_labels(void *user)
{
    (void)user;
    return 2;
}

static attn_status save_nothing(void *user, bool improved)
{
    (void)user;
    (void)improved;
    return ATTN_OK;
}

static attn_status train(const attn_optimizer_options *how, bool many, float *out, int64_t *n)
{
    training t = {.context = test_context(), .options = *how, .many = many};
    attn_training_options options = {.epochs = 1, .schedule = {.peak = 0.01}, .optimizer = *how};
    attn_job job = {
        .user = &t, .steps = steps_of, .loss = training_loss, .save = save_nothing, .whole = many ? two_labels : NULL};
    attn_training *of = NULL;
    attn_status status = many ? attn__ranks_join_with(t.context, &forked_ranks) : ATTN_OK;
    if (status == ATTN_OK)
        status = make_model(&t.m, t.context);
    if (status == ATTN_OK)
        status = attn_training_create(&of, t.context, &t.m.list, &options);
    if (status == ATTN_OK)
        status = attn_training_run(of, &job);
    *n = 0;
    for (int list = 0; list < 2 && status == ATTN_OK; list++) {
        const attn_named_list *from = list ? attn_optimizer_state(attn_training_optimizer(of)) : &t.m.list;
        for (int64_t i = 0; i < from->n; i++, *n += WIDE)
            memcpy(out + *n, attn_tensor_data(from->items[i].tensor), WIDE * sizeof *out);
    }
    attn_training_destroy(of);
    attn_named_clear(&t.m.list);
    attn_ranks_leave(t.context);
    attn_context_destroy(t.context);
    return status;
}

typedef struct wanted {
    attn_optimizer_options options;
    float alone[13 * WIDE], ours[13 * WIDE];
    int64_t n;
} wanted;

static int compare(void *user)
{
    wanted *w = user;
    int64_t n;
    if (train(&w->options, true, w->ours, &n) != ATTN_OK || n != w->n)
        return 1;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(w->ours[i] - w->alone[i]) <= 2e-6F))
            return 2;
    return 0;
}

static void two_ranks_match_one_process(void **state)
{
    static const attn_optimizer_options kinds[] = {
        {.kind = ATTN_OPTIMIZER_ADAM, .clip_norm = 0.01},
        {.kind = ATTN_OPTIMIZER_ADAMW, .weight_decay = 0.1},
        {.kind = ATTN_OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.01},
        {.kind = ATTN_OPTIMIZER_SGD},
    };
    wanted *w = malloc(sizeof *w);
    assert_non_null(w);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        w->options = kinds[i];
        assert_int_equal(train(&kinds[i], false, w->alone, &w->n), ATTN_OK);
        int process = forked_ranks_begin(compare, w);
        assert_true(process > 0);
        int here = compare(w);
        assert_int_equal(forked_ranks_end(process), 0);
        assert_int_equal(here, 0);
    }
    free(w);
}

/* ------------------------------------------------------------------------------------ a step that is left */

typedef struct alone {
    attn_context *context;
    model m;
    attn_tape *tape;
    attn_optimizer *optimizer;
    attn__all_reduce *all_reduce;
} alone;

static attn_status add_large(model *m, attn_context *c)
{
    attn_tensor *w;
    attn_status status = attn_tensor_create(&w, c, ATTN_F32, 1, (int64_t[]){400 * WIDE});
    if (status == ATTN_OK && (status = attn_named_add(&m->list, "large", w)) != ATTN_OK)
        attn_tensor_destroy(w);
    if (status == ATTN_OK)
        attn_tensor_set_requires_grad(w, true);
    return status;
}

static attn_status make_alone(alone *a, bool large)
{
    *a = (alone){.context = test_context()};
    attn_status status = attn__ranks_join_with(a->context, &forked_ranks);
    if (status == ATTN_OK)
        status = make_model(&a->m, a->context);
    if (status == ATTN_OK && large)
        status = add_large(&a->m, a->context);
    if (status == ATTN_OK)
        status = attn_optimizer_create(&a->optimizer, a->context, &a->m.list, NULL);
    if (status == ATTN_OK)
        status = attn_tape_create(&a->tape, a->context);
    if (status == ATTN_OK)
        status =
            attn__all_reduce_create(&a->all_reduce, a->context, &a->m.list, attn_optimizer_state(a->optimizer), 4096);
    return status;
}

static void end_alone(alone *a)
{
    attn__all_reduce_destroy(a->all_reduce);
    attn_tape_destroy(a->tape);
    attn_optimizer_destroy(a->optimizer);
    attn_named_clear(&a->m.list);
    attn_ranks_leave(a->context);
    attn_context_destroy(a->context);
}

static attn_status go_backward(alone *a)
{
    double totals[] = {1};
    attn_tape_reset(a->tape, &(attn_tape_options){.record = true});
    attn__all_reduce_begin(a->all_reduce, a->tape, false);
    attn_tensor *loss = loss_of(&a->m, a->tape, 0, 1);
    if (!loss)
        return attn_context_status(a->context);
    test_set(a->m.w[4], 3, test_at(a->m.w[4], 3) + 1);
    attn_status status = attn__all_reduce_backward(a->all_reduce, a->tape, loss, 0.5, totals, 1);
    return status == ATTN_OK && totals[0] != 2 ? ATTN_ERROR_INTERNAL : status;
}

static attn_status take_step(alone *a)
{
    double norm;
    attn_status status = go_backward(a);
    if (status == ATTN_OK && !attn__all_reduce_is_shared(a->all_reduce))
        status = ATTN_ERROR_INTERNAL;
    return status == ATTN_OK ? attn__optimizer_step_shared(a->optimizer, a->all_reduce, 0.01, &norm) : status;
}

/* Takes two steps, and computes the gradients of a third step without finishing it. */
static int die_in_a_step(void *user)
{
    alone a;
    (void)user;
    if (make_alone(&a, false) != ATTN_OK || take_step(&a) != ATTN_OK || take_step(&a) != ATTN_OK ||
        go_backward(&a) != ATTN_OK)
        return 1;
    return 0;
}

static void keep_all(const alone *a, float *out)
{
    const attn_named_list *lists[] = {&a->m.list, attn_optimizer_state(a->optimizer)};
    for (int l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l]->n; i++, out += WIDE)
            memcpy(out, attn_tensor_data(lists[l]->items[i].tensor), WIDE * sizeof *out);
}

static void step_is_undone_when_another_rank_dies(void **state)
{
    static float first[13 * WIDE], before[13 * WIDE], after[13 * WIDE];
    alone a;
    double norm;
    int asked = 0;
    int process = forked_ranks_begin(die_in_a_step, NULL);
    assert_true(process > 0);
    assert_int_equal(make_alone(&a, false), ATTN_OK);
    keep_all(&a, first);
    assert_int_equal(take_step(&a), ATTN_OK);
    assert_int_equal(take_step(&a), ATTN_OK);
    keep_all(&a, before);
    assert_memory_not_equal(first, before, WIDE * sizeof *first);
    assert_int_equal(go_backward(&a), ATTN_OK);
    attn_ranks_set_stop(a.context, two_ranks_stop, &asked);
    assert_int_equal(attn__optimizer_step_shared(a.optimizer, a.all_reduce, 0.01, &norm), ATTN_ERROR_INTERRUPTED);
    attn__all_reduce_abandon(a.all_reduce, a.tape);
    keep_all(&a, after);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(attn_optimizer_steps(a.optimizer), 2);
    attn__all_reduce_destroy(a.all_reduce);
    keep_all(&a, after); /* The parameters keep their addresses, but their memory now belongs to this process alone. */
    assert_memory_equal(before, after, sizeof before);
    attn_tape_destroy(a.tape);
    attn_optimizer_destroy(a.optimizer);
    attn_named_clear(&a.m.list);
    attn_context_destroy(a.context);
    assert_int_equal(forked_ranks_end(process), 0);
}

/* ------------------------------------------------------------------------------------- no common memory */

/* Returns 0 if a step is refused because the ranks have different parameters. Otherwise the rank with more
 * parameters would write beyond the end of the shared file. */
static int run_another(void *large)
{
    alone a;
    attn_status status = make_alone(&a, large != NULL);
    int bad = status != ATTN_OK || attn__all_reduce_is_shared(a.all_reduce) || go_backward(&a) != ATTN_ERROR_ARGUMENT;
    end_alone(&a);
    return bad;
}

static void different_models_of_ranks_are_refused(void **state)
{
    for (int parent = 0; parent < 2; parent++) {
        bool large = true;
        int process = forked_ranks_begin(run_another, parent ? NULL : &large);
        assert_true(process > 0);
        int here = run_another(parent ? &large : NULL);
        assert_int_equal(forked_ranks_end(process), 0);
        assert_int_equal(here, 0);
    }
}

static int make_apart(void *user)
{
    alone a;
    (void)user;
    int bad = make_alone(&a, false) != ATTN_OK || attn__all_reduce_is_shared(a.all_reduce);
    end_alone(&a);
    return bad;
}

/* Writing a file beyond the limit would end the process. So ranks do not share memory if the file would be too
 * large. */
static void file_size_limit_leaves_ranks_apart(void **state)
{
    struct rlimit usual, few;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    few = (struct rlimit){(rlim_t)1 << 20, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int process = forked_ranks_begin(make_apart, NULL), here = make_apart(NULL);
    int there = forked_ranks_end(process);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(there, 0);
    assert_int_equal(here, 0);
}

RUN_TESTS(TEST(two_ranks_match_one_process), TEST(step_is_undone_when_another_rank_dies),
          TEST(different_models_of_ranks_are_refused), TEST(file_size_limit_leaves_ranks_apart))
