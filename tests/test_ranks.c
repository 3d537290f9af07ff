/* SPDX-License-Identifier: MIT
 * Ranks without MPI: a process alone; and, over operations made up here, two processes of which the other always has
 * what this one has, so that sums are doubled, and answers only when it was asked some times. */
#include "support/cmocka.h"

#include "attn/train.h"
#include "base/ranks.h"
#include "support/faults.h"
#include "support/tensors.h"
#include "tensor/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ the other process */

enum { PATIENCE = 3 };

static struct other {
    int pending;       /* questions until the sums under way are done */
    int begun;         /* sums */
    int finished;      /* partings in peace */
    int told;          /* notices to it */
    int32_t told_first; /* the status of the first */
    int pieces;        /* of texts */
    int64_t largest;   /* of those */
    attn_status fails; /* what it says next; ATTN_OK: nothing */
    bool mute;         /* it is gone: nothing is ever done any more */
    bool differs;      /* the largest of two numbers is its own */
    uint64_t writes;   /* bytes of its text */
} other;

static int fake_start(int *rank, int *size)
{
    *rank = 0;
    *size = 2;
    return 0;
}

static void fake_finish(void)
{
    other.finished++;
}

static void fake_text(int error, char *out, size_t size)
{
    snprintf(out, size, "error %d", error);
}

static int fake_sum(void *data, int64_t n, attn__ranks_sum_kind kind, attn__ranks_request *request)
{
    (void)request;
    other.begun++;
    other.pending = PATIENCE;
    for (int64_t i = 0; i < n; i++) {
        if (kind == ATTN__SUM_F32)
            ((float *)data)[i] *= 2;
        if (kind == ATTN__SUM_F64)
            ((double *)data)[i] *= 2;
        if (kind == ATTN__MAX_U64 && n == 2 && i == 1) /* its slot */
            ((uint64_t *)data)[1] = ((uint64_t *)data)[0] + other.differs;
        if (kind == ATTN__MAX_U64 && n == 1 && other.writes > 0) /* the length of its text */
            ((uint64_t *)data)[0] = other.writes;
    }
    return 0;
}

static int fake_broadcast(void *data, int64_t bytes, int from, attn__ranks_request *request)
{
    (void)request;
    other.pieces++;
    other.largest = bytes > other.largest ? bytes : other.largest;
    if (from == 1 && bytes > 0)
        snprintf(data, (size_t)bytes, "its disk is full");
    return 0;
}

static int fake_test(attn__ranks_request *request, bool *done)
{
    (void)request;
    *done = !other.mute && --other.pending <= 0;
    return 0;
}

static int fake_tell(const void *notice)
{
    if (other.told++ == 0)
        memcpy(&other.told_first, notice, sizeof other.told_first);
    return 0;
}

static int fake_heard(void *notice, int *from, bool *any)
{
    *any = other.fails != ATTN_OK;
    if (*any) {
        int32_t head[2] = {(int32_t)other.fails, 0};
        memset(notice, 0, ATTN__RANKS_NOTICE);
        memcpy(notice, head, sizeof head);
        snprintf((char *)notice + sizeof head, 64, "memory ran out");
        *from = 1;
        other.fails = ATTN_OK;
    }
    return 0;
}

static const attn__ranks_ops fake = {ATTN__RANKS_VERSION, "two", fake_start, fake_finish, fake_text,
                                     fake_sum, fake_broadcast, fake_test, fake_tell, fake_heard};

static attn_context *joined(void)
{
    attn_context *c = test_context();
    other = (struct other){0};
    assert_int_equal(attn__ranks_join_with(c, &fake), ATTN_OK);
    return c;
}

/* ------------------------------------------------------------------------------------------------ tests */

static void alone(void **state)
{
    (void)state;
    attn_context *c = test_context();
    double x[] = {1, 2};
    int64_t first;
    assert_int_equal(attn_ranks_join(c), ATTN_OK);
    assert_int_equal(attn_ranks_size(c), 1);
    assert_int_equal(attn_ranks_rank(c), 0);
    assert_true(attn__ranks_first(c));
    assert_int_equal(attn__ranks_sum(c, x, 2, ATTN__SUM_F64), ATTN_OK);
    assert_true(x[0] == 1 && x[1] == 2);
    assert_int_equal(attn__ranks_share(c, 7, &first), 7);
    assert_int_equal(first, 0);
    assert_int_equal(attn_ranks_agree(c, ATTN_OK, NULL), ATTN_OK);
    assert_int_equal(attn_ranks_agree(c, ATTN_IO, "no"), ATTN_IO);
    assert_int_equal(attn__ranks_same(c, 5, "differs"), ATTN_OK);
    assert_int_equal(attn__ranks_poll(c), ATTN_OK);
    attn_ranks_leave(c);
    attn_context_destroy(c);
}

static void sums_and_words(void **state)
{
    (void)state;
    attn_context *c = joined();
    float x[] = {1, 2, 3};
    int64_t first;
    assert_int_equal(attn_ranks_size(c), 2);
    assert_int_equal(attn__ranks_sum(c, x, 3, ATTN__SUM_F32), ATTN_OK);
    assert_true(x[0] == 2 && x[1] == 4 && x[2] == 6);
    assert_int_equal(attn__ranks_share(c, 7, &first), 3);
    assert_int_equal(first, 0);
    assert_int_equal(attn__ranks_share(c, 1, &first), 0);
    assert_int_equal(attn__ranks_same(c, 17, "differs"), ATTN_OK);
    other.differs = true;
    assert_int_equal(attn__ranks_same(c, 17, "reads other data"), ATTN_ARGUMENT);
    assert_string_equal(attn_context_error(c), "rank 1 reads other data");
    attn_context_destroy(c);
    assert_int_equal(other.finished, 1); /* both know: they part in peace */
    c = joined();
    other.differs = true; /* ATTN_OK + 1 */
    assert_int_equal(attn_ranks_agree(c, ATTN_OK, NULL), (attn_status)(ATTN_OK + 1));
    assert_string_equal(attn_context_error(c), "rank 1: its disk is full");
    attn_context_destroy(c);
    assert_int_equal(other.finished, 1);
}

static bool stop(void *user)
{
    return ++*(int *)user > 5;
}

static void waiting_ends(void **state)
{
    (void)state;
    attn_context *c = joined();
    double x = 1;
    int asked = 0;
    other.mute = true; /* killed, say; and then the signal */
    attn_ranks_watch(c, stop, &asked);
    assert_int_equal(attn__ranks_sum(c, &x, 1, ATTN__SUM_F64), ATTN_INTERRUPTED);
    assert_int_equal(asked, 6);
    assert_int_equal(attn__ranks_sum(c, &x, 1, ATTN__SUM_F64), ATTN_INTERRUPTED); /* at once, from now on */
    assert_int_equal(other.begun, 1);
    attn_context_destroy(c);
    assert_int_equal(other.finished, 0); /* MPI could not: a sum is unfinished */
    assert_int_equal(other.told, 2);
    c = joined();
    other.mute = true;
    other.fails = ATTN_MEMORY;
    assert_int_equal(attn__ranks_sum(c, &x, 1, ATTN__SUM_F64), ATTN_MEMORY);
    assert_string_equal(attn_context_error(c), "rank 1: memory ran out");
    attn_context_destroy(c);
    c = joined();
    attn__ranks_give_up(c, attn__fail(c, ATTN_IO, "no disk"));
    attn__ranks_give_up(c, ATTN_IO);
    assert_int_equal(other.told, 1);
    attn_context_destroy(c);
}

/* Whether a module is opened is told by what becomes of one that is not there. */
static attn_status joins(const char *const *variables)
{
    static const char *const all[] = {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "FLUX_JOB_SIZE", "PMI_SIZE",
                                      "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"};
    attn_context *c = test_context();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unsetenv(all[i]);
    setenv("ATTN_MPI_MODULE", "/nonexistent/attn-mpi.so", 1);
    for (; variables[0]; variables += 2)
        setenv(variables[0], variables[1], 1);
    attn_status status = attn_ranks_join(c);
    assert_int_equal(attn_ranks_size(c), 1);
    attn_context_destroy(c);
    return status;
}

static void one_process_needs_no_module(void **state)
{
    (void)state;
    assert_int_equal(joins((const char *const[]){NULL}), ATTN_OK);
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", "SLURM_STEP_NUM_TASKS", "1", NULL}), ATTN_OK);
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1", NULL}), ATTN_OK);
    assert_int_equal(joins((const char *const[]){"SLURM_NTASKS", "8", NULL}), ATTN_OK); /* a batch job, not a step */
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_NTASKS", "1", NULL}),
                     ATTN_UNSUPPORTED);
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", NULL}), ATTN_UNSUPPORTED); /* nobody says how many */
    assert_int_equal(joins((const char *const[]){"PMI_SIZE", "3", NULL}), ATTN_UNSUPPORTED);
    joins((const char *const[]){NULL});
    unsetenv("ATTN_MPI_MODULE");
}

static void texts_go_in_pieces(void **state)
{
    (void)state;
    attn_context *c = joined();
    size_t size = 2 * (size_t)ATTN__RANKS_PIECE + 5, held, before;
    char *text = calloc(size, 1);
    assert_int_equal(attn_ranks_text(c, 0, &text, &size), ATTN_OK);
    assert_int_equal(other.pieces, 3);
    assert_true(other.largest == ATTN__RANKS_PIECE);
    free(text);
    other.writes = 40;
    assert_int_equal(attn_ranks_text(c, 1, &text, &size), ATTN_OK);
    assert_int_equal(size, 40);
    assert_string_equal(text, "its disk is full");
    attn_ranks_text_free(c, text);
    attn_context_memory(c, &before, NULL, NULL);
    other.writes = UINT64_MAX / 2; /* more than any memory has */
    assert_int_equal(attn_ranks_text(c, 1, &text, &size), ATTN_MEMORY);
    assert_null(text);
    assert_int_equal(other.told_first, ATTN_MEMORY);
    attn_context_memory(c, &held, NULL, NULL);
    assert_int_equal(held, before);
    attn_context_destroy(c);
}

/* ------------------------------------------------------------------------------------- the exchange */

typedef struct model {
    attn_named_list list;
    attn_tensor *w[4]; /* two that are used, one of them twice; one that is not; one that is not trained */
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
            attn_tensor_set_needs_grad(m->w[i], i < 3);
    }
    return status;
}

/* mean(b a^2 + a), with an operation more that changes nothing. */
static attn_tensor *loss_of(model *m, attn_tape *tape)
{
    attn_tensor *square = attn_mul(tape, m->w[0], m->w[0]);
    return attn_mean(tape, attn_add(tape, attn_mul(tape, square, m->w[1]), m->w[0]), 0);
}

static attn_status one_step(attn_context *c, void *user)
{
    model m;
    attn_tape *tape = NULL;
    attn__exchange *e = NULL;
    double totals[] = {3, 4};
    attn_status status = attn__ranks_join_with(c, &fake);
    if (status != ATTN_OK)
        return status;
    attn_status (*check)(model *) = *(attn_status(**)(model *))user;
    status = make_model(&m, c);
    if (status == ATTN_OK)
        status = attn_tape_create(&tape, c);
    if (status == ATTN_OK)
        status = attn__exchange_create(&e, c, &m.list, 8); /* a bucket each */
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        attn_tape_reset(tape, &(attn_tape_options){.record = true});
        attn__exchange_begin(e, tape);
        attn_tensor *loss = loss_of(&m, tape);
        totals[0] = 3;
        status = loss ? attn__exchange_backward(e, tape, loss, 0.5, totals, 2) : attn_context_status(c);
        if (status == ATTN_OK && totals[0] == 6 && check)
            status = check(&m);
        for (int k = 0; k < 3; k++)
            attn_tensor_drop_grad(m.w[k]);
    }
    attn__exchange_destroy(e);
    attn_tape_destroy(tape);
    attn_named_clear(&m.list);
    return status;
}

/* Half of the loss here and half there: together d loss / da = (2 a b + 1) / 5, d loss / db = a^2 / 5. */
static attn_status is_gradient(model *m)
{
    for (int k = 0; k < 5; k++) {
        double a = test_at(m->w[0], k), b = test_at(m->w[1], k);
        assert_float_equal((float)test_at(attn_tensor_grad(m->w[0]), k), (float)((2 * a * b + 1) / 5), 1e-6F);
        assert_float_equal((float)test_at(attn_tensor_grad(m->w[1]), k), (float)(a * a / 5), 1e-6F);
    }
    assert_null(attn_tensor_grad(m->w[2])); /* nobody has one: the optimiser leaves it alone */
    return ATTN_OK;
}

static void gradients_add_up(void **state)
{
    (void)state;
    attn_context *c = test_context();
    attn_status (*check)(model *) = is_gradient;
    other = (struct other){0};
    assert_int_equal(one_step(c, (void *)&check), ATTN_OK);
    assert_true(other.begun >= 2 * 4); /* three buckets and the totals, twice */
    attn_context_destroy(c);
}

static void memory_fails(void **state)
{
    (void)state;
    attn_status (*check)(model *) = NULL;
    other = (struct other){0};
    assert_true(faults_try_all(one_step, (void *)&check) > 10);
}

/* A step among ranks, up to what it does. */
typedef struct step {
    attn_context *context;
    model m;
    attn_tape *tape;
    attn__exchange *exchange;
    double before; /* of what is not trained */
} step;

static void begin_step(step *s)
{
    *s = (step){.context = joined()};
    assert_int_equal(make_model(&s->m, s->context), ATTN_OK);
    assert_int_equal(attn_tape_create(&s->tape, s->context), ATTN_OK);
    assert_int_equal(attn__exchange_create(&s->exchange, s->context, &s->m.list, 0), ATTN_OK);
    s->before = test_at(s->m.w[3], 2);
    assert_true(s->before != 0);
}

/* The forward pass moves what is not trained, as it moves running statistics, to 77. */
static attn_tensor *go_forward(step *s)
{
    attn_tape_reset(s->tape, &(attn_tape_options){.record = true});
    attn__exchange_begin(s->exchange, s->tape);
    test_set(s->m.w[3], 2, 77);
    attn_tensor *loss = loss_of(&s->m, s->tape);
    assert_non_null(loss);
    return loss;
}

static void end_step(step *s)
{
    attn__exchange_destroy(s->exchange);
    attn_tape_destroy(s->tape);
    attn_named_clear(&s->m.list);
    attn_context_destroy(s->context);
}

static void a_step_is_taken_back(void **state)
{
    (void)state;
    step s;
    double totals[] = {0};
    int asked = 3;
    begin_step(&s);
    attn_tensor *loss = go_forward(&s);
    attn_ranks_watch(s.context, stop, &asked);
    other.mute = true;
    assert_int_equal(attn__exchange_backward(s.exchange, s.tape, loss, 1, totals, 1), ATTN_INTERRUPTED);
    attn__exchange_abandon(s.exchange, s.tape);
    assert_true(test_at(s.m.w[3], 2) == s.before);
    assert_null(attn_tensor_grad(s.m.w[0]));
    attn__exchange_begin(s.exchange, s.tape); /* no operation is recorded any more */
    attn_tape_reset(s.tape, &(attn_tape_options){.record = true});
    assert_null(loss_of(&s.m, s.tape));
    end_step(&s);
}

/* A validation that is stopped has no step to take back, whether or not steps went before it here. */
static void a_whole_step_is_kept(void **state)
{
    (void)state;
    step s;
    double totals[] = {0};
    begin_step(&s);
    attn__exchange_abandon(s.exchange, s.tape);
    assert_true(test_at(s.m.w[3], 2) == s.before);
    attn_tensor *loss = go_forward(&s);
    assert_int_equal(attn__exchange_backward(s.exchange, s.tape, loss, 1, totals, 1), ATTN_OK);
    attn__exchange_abandon(s.exchange, s.tape);
    assert_true(test_at(s.m.w[3], 2) == 77);
    end_step(&s);
}

/* --------------------------------------------------------------------------------------- a training */

typedef struct training {
    attn_context *context;
    model m;
    attn_training *of;
    int saves;
    int saves_fail_from;  /* 0: none */
    int64_t stops_at;     /* steps; 0: never */
    attn_status fails;    /* what the loss of the third step fails with */
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
    return fails ? attn__fail(t->context, ATTN_IO, "no room") : ATTN_OK;
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

/* Two epochs of two steps among ranks. */
static attn_status train(training *t)
{
    attn_training_options options = {.epochs = 2, .schedule = {.peak = 0.01}};
    attn_job job = {.user = t, .steps = two_steps, .loss = loss_of_step, .save = save, .progress = goes_on,
                    .whole = two_labels};
    t->context = joined();
    assert_int_equal(make_model(&t->m, t->context), ATTN_OK);
    assert_int_equal(attn_training_create(&t->of, t->context, &t->m.list, &options), ATTN_OK);
    attn_status status = attn_training_run(t->of, &job);
    attn_training_destroy(t->of);
    attn_named_clear(&t->m.list);
    attn_context_destroy(t->context);
    return status;
}

/* Whatever ends it, the others hear of it once while they wait, and once more that rank 0 leaves. */
static void a_training_is_given_up_once(void **state)
{
    (void)state;
    training t = {0};
    assert_int_equal(train(&t), ATTN_OK);
    assert_int_equal(t.saves, 2);
    assert_int_equal(other.told, 0);
    t = (training){.saves_fail_from = 1};
    assert_int_equal(train(&t), ATTN_IO);
    assert_int_equal(t.saves, 1); /* a save that failed is not tried again */
    assert_int_equal(other.told, 2);
    assert_int_equal(other.told_first, ATTN_IO);
    t = (training){.stops_at = 1};
    assert_int_equal(train(&t), ATTN_INTERRUPTED);
    assert_int_equal(t.saves, 1);
    assert_int_equal(other.told, 2);
    assert_int_equal(other.told_first, ATTN_INTERRUPTED);
    t = (training){.fails = ATTN_MEMORY};
    assert_int_equal(train(&t), ATTN_MEMORY);
    assert_int_equal(t.saves, 1);
    assert_int_equal(other.told_first, ATTN_MEMORY);
    t = (training){.fails = ATTN_INTERRUPTED}; /* in the middle of a step: the last whole one is saved */
    assert_int_equal(train(&t), ATTN_INTERRUPTED);
    assert_int_equal(t.saves, 2);
    t = (training){.fails = ATTN_IO, .saves_fail_from = 2};
    assert_int_equal(train(&t), ATTN_IO);
    assert_int_equal(t.saves, 2);
    assert_int_equal(other.told, 2);
}

/* ---------------------------------------------------------------------------- batches that are divided */

enum { HALF = 3, CHANNELS = 2, PLANE = 4, SIZE = HALF * CHANNELS * PLANE };

/* d loss / dx and y of batch norm over x, which stands `times` times in the batch; weights of the loss differ. */
static void normalised(attn_context *c, int times, attn_share share, float y[SIZE], float dx[SIZE])
{
    attn_tape *tape;
    attn_tensor *x, *v[4];
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    assert_int_equal(attn_tensor_create(&x, c, ATTN_F32, 3, (int64_t[]){times * HALF, CHANNELS, PLANE}), ATTN_OK);
    attn_tensor_set_needs_grad(x, true);
    for (int64_t i = 0; i < times * SIZE; i++)
        test_set(x, i, (double)(i % SIZE * 7 % 11) / 3 + (double)(i % SIZE));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(attn_tensor_create(&v[i], c, ATTN_F32, 1, (int64_t[]){CHANNELS}), ATTN_OK);
        for (int k = 0; k < CHANNELS; k++)
            test_set(v[i], k, i % 3 == 0 ? 1 + 0.5 * k : 0);
    }
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true});
    attn_tape_divide(tape, share);
    attn_tensor *made = attn_batch_norm(tape, x, v[0], v[1], v[2], v[3], 0.1, 1e-5);
    attn_tensor *up = attn_tensor_make(tape, ATTN_F32, 3, attn_tensor_shape(x), NULL);
    for (int64_t i = 0; i < times * SIZE; i++)
        test_set(up, i, (double)(i % SIZE % 5) - 1.5);
    assert_non_null(made);
    assert_int_equal(attn_backward_from(tape, made, up), ATTN_OK);
    memcpy(y, attn_tensor_data(made), SIZE * sizeof *y);
    memcpy(dx, attn_tensor_data(attn_tensor_grad(x)), SIZE * sizeof *dx);
    for (int i = 0; i < 4; i++)
        attn_tensor_destroy(v[i]);
    attn_tape_destroy(tape);
    attn_tensor_destroy(x);
}

static void batch_statistics_are_of_all(void **state)
{
    (void)state;
    float whole[2][SIZE], half[2][SIZE];
    attn_context *c = test_context();
    normalised(c, 2, (attn_share){0}, whole[0], whole[1]);
    attn_context_destroy(c);
    c = joined();
    normalised(c, 1, (attn_share){0, HALF, 2 * HALF}, half[0], half[1]);
    attn_context_destroy(c);
    for (int i = 0; i < SIZE; i++) {
        assert_float_equal(half[0][i], whole[0][i], 2e-6F);
        assert_float_equal(half[1][i], whole[1][i], 2e-6F);
    }
    assert_int_equal(other.begun, 3); /* statistics, sums of gradients, and the question at parting */
}

/* Dropout of a share [first, first + count) drops what the whole drops there, along any axis of examples. */
static void dropout_is_of_the_whole(void **state)
{
    (void)state;
    enum { OUTER = 3, WHOLE = 5, INNER = 2, LAST = 7 };
    attn_context *c = test_context();
    attn_tape *tape;
    float all[OUTER][WHOLE][INNER][LAST];
    const attn_tape_options train = {.train = true, .seed = 9};
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    for (int first = 0; first < WHOLE; first += 2) {
        int count = WHOLE - first < 2 ? WHOLE - first : 2;
        for (int divided = 0; divided < 2; divided++) {
            int64_t n = divided ? count : WHOLE, shape[] = {OUTER, n, INNER, LAST};
            attn_tape_reset(tape, &train);
            if (divided)
                attn_tape_divide(tape, (attn_share){first, count, WHOLE});
            tape->examples = 1;
            attn_tensor *ones = attn_affine(tape, attn_tensor_make(tape, ATTN_F32, 4, shape, NULL), 1, 1);
            const float *y = attn_tensor_data(attn_dropout(tape, ones, 0.4));
            if (!divided)
                memcpy(all, y, sizeof all);
            for (int o = 0; o < OUTER && divided; o++)
                assert_memory_equal(y + o * count * INNER * LAST, all[o][first], (size_t)(count * INNER * LAST) * 4);
        }
    }
    attn_tape_destroy(tape);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(sums_and_words),
        cmocka_unit_test(waiting_ends),
        cmocka_unit_test(one_process_needs_no_module),
        cmocka_unit_test(texts_go_in_pieces),
        cmocka_unit_test(a_training_is_given_up_once),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(a_step_is_taken_back),
        cmocka_unit_test(a_whole_step_is_kept),
        cmocka_unit_test(batch_statistics_are_of_all),
        cmocka_unit_test(dropout_is_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
