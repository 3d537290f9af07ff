/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests ranks without MPI: one process, which is rank 0 of 1, and two ranks. Also tests launchers, and results of a
 * whole batch that is shared among ranks.
 */
#include "support/fixture.h"

#include "support/tensors.h"
#include "support/two_ranks.h"
#include "tensor/tape.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void one_process_has_rank_0_of_1(void **state)
{
    attn_context *c = *state;
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
    assert_int_equal(attn_ranks_agree(c, ATTN_ERROR_IO, "no"), ATTN_ERROR_IO);
    assert_int_equal(attn__ranks_same(c, 5, "differs"), ATTN_OK);
    assert_int_equal(attn__ranks_poll(c), ATTN_OK);
    attn_ranks_leave(c);
}

static void sums_and_messages_reach_both_ranks(void **state)
{
    attn_context *c = two_ranks_joined();
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
    assert_int_equal(attn__ranks_same(c, 17, "reads other data"), ATTN_ERROR_ARGUMENT);
    assert_string_equal(attn_context_error(c), "rank 1 reads other data");
    attn_context_destroy(c);
    assert_int_equal(other.finished, 1);
    c = two_ranks_joined();
    other.differs = true;
    assert_int_equal(attn_ranks_agree(c, ATTN_OK, NULL), (attn_status)(ATTN_OK + 1));
    assert_string_equal(attn_context_error(c), "rank 1: its disk is full");
    attn_context_destroy(c);
    assert_int_equal(other.finished, 1);
}

static void waiting_for_a_silent_rank_is_interrupted(void **state)
{
    attn_context *c = two_ranks_joined();
    double x = 1;
    int asked = 0;
    other.mute = true;
    attn_ranks_set_stop(c, two_ranks_stop, &asked);
    assert_int_equal(attn__ranks_sum(c, &x, 1, ATTN__SUM_F64), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(asked, 6);
    assert_int_equal(attn__ranks_sum(c, &x, 1, ATTN__SUM_F64), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(other.begun, 1);
    attn_context_destroy(c);
    assert_int_equal(other.finished, 0);
    assert_int_equal(other.told, 2);
    c = two_ranks_joined();
    other.mute = true;
    other.fails = ATTN_ERROR_MEMORY;
    assert_int_equal(attn__ranks_sum(c, &x, 1, ATTN__SUM_F64), ATTN_ERROR_MEMORY);
    assert_string_equal(attn_context_error(c), "rank 1: memory ran out");
    attn_context_destroy(c);
    c = two_ranks_joined();
    attn__ranks_give_up(c, attn__fail(c, ATTN_ERROR_IO, "no disk"));
    attn__ranks_give_up(c, ATTN_ERROR_IO);
    assert_int_equal(other.told, 1);
    attn_context_destroy(c);
}

/* Joins with a module that does not exist. The status shows whether the library tried to open it. */
static attn_status joins(const char *const *variables)
{
    static const char *const all[] = {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",       "FLUX_JOB_SIZE",
                                      "PMI_SIZE",  "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"};
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
    assert_int_equal(joins((const char *const[]){NULL}), ATTN_OK);
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", "SLURM_STEP_NUM_TASKS", "1", NULL}), ATTN_OK);
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1", NULL}), ATTN_OK);
    /* A batch job does not start several ranks unless it is a job step. */
    assert_int_equal(joins((const char *const[]){"SLURM_NTASKS", "8", NULL}), ATTN_OK);
    assert_int_equal(
        joins((const char *const[]){"PMIX_RANK", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_NTASKS", "1", NULL}),
        ATTN_ERROR_UNSUPPORTED);
    assert_int_equal(joins((const char *const[]){"PMIX_RANK", "0", NULL}), ATTN_ERROR_UNSUPPORTED);
    assert_int_equal(joins((const char *const[]){"PMI_SIZE", "3", NULL}), ATTN_ERROR_UNSUPPORTED);
    joins((const char *const[]){NULL});
    unsetenv("ATTN_MPI_MODULE");
}

static void long_texts_are_sent_in_pieces(void **state)
{
    attn_context *c = two_ranks_joined();
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
    other.writes = UINT64_MAX - 1;
    assert_int_equal(attn_ranks_text(c, 1, &text, &size), ATTN_ERROR_MEMORY);
    assert_null(text);
    assert_int_equal(other.told_first, ATTN_ERROR_MEMORY);
    attn_context_memory(c, &held, NULL, NULL);
    assert_int_equal(held, before);
    attn_context_destroy(c);
}

/* ---------------------------------------------------------------------------- batches that are divided */

enum { HALF = 3, CHANNELS = 2, PLANE = 4, SIZE = HALF * CHANNELS * PLANE };

/* Computes y and d loss / dx of a batch norm. The batch has x `times` times, with different weights of the loss.
 * These weights are 0 if x stands for a share without examples. */
static void normalized(attn_context *c, int times, attn_shard share, float y[SIZE], float dx[SIZE])
{
    attn_tape *tape;
    attn_tensor *x, *v[4];
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    assert_int_equal(attn_tensor_create(&x, c, ATTN_F32, 3, (int64_t[]){times * HALF, CHANNELS, PLANE}), ATTN_OK);
    attn_tensor_set_requires_grad(x, true);
    for (int64_t i = 0; i < times * SIZE; i++)
        test_set(x, i, (double)(i % SIZE * 7 % 11) / 3 + (double)(i % SIZE));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(attn_tensor_create(&v[i], c, ATTN_F32, 1, (int64_t[]){CHANNELS}), ATTN_OK);
        for (int k = 0; k < CHANNELS; k++)
            test_set(v[i], k, i % 3 == 0 ? 1 + 0.5 * k : 0);
    }
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true});
    attn_tape_shard(tape, share);
    attn_tensor *made = attn_batch_norm(tape, x, v[0], v[1], v[2], v[3], 0.1, 1e-5);
    attn_tensor *up = attn_tape_tensor(tape, ATTN_F32, 3, attn_tensor_shape(x), NULL);
    for (int64_t i = 0; i < times * SIZE; i++)
        test_set(up, i, share.whole > 0 && share.count == 0 ? 0 : (double)(i % SIZE % 5) - 1.5);
    assert_non_null(made);
    assert_int_equal(attn_backward_from(tape, made, up), ATTN_OK);
    memcpy(y, attn_tensor_data(made), SIZE * sizeof *y);
    memcpy(dx, attn_tensor_data(attn_tensor_grad(x)), SIZE * sizeof *dx);
    for (int i = 0; i < 4; i++)
        attn_tensor_destroy(v[i]);
    attn_tape_destroy(tape);
    attn_tensor_destroy(x);
}

static void batch_statistics_are_of_all_ranks(void **state)
{
    float whole[2][SIZE], half[2][SIZE];
    attn_context *c = test_context();
    normalized(c, 2, (attn_shard){0}, whole[0], whole[1]);
    attn_context_destroy(c);
    c = two_ranks_joined();
    normalized(c, 1, (attn_shard){0, HALF, 2 * HALF}, half[0], half[1]);
    attn_context_destroy(c);
    for (int i = 0; i < SIZE; i++) {
        assert_float_equal(half[0][i], whole[0][i], 2e-6F);
        assert_float_equal(half[1][i], whole[1][i], 2e-6F);
    }
    /* The three operations are the sums of the statistics, the sums of the gradients, and the question at the end. */
    assert_int_equal(other.begun, 3);
}

/* The gradients of a rank without examples are zero, whatever sums the other ranks have. */
static void rank_without_examples_has_zero_gradient(void **state)
{
    float y[SIZE], dx[SIZE];
    attn_context *c = two_ranks_joined();
    other.more = 1;
    normalized(c, 1, (attn_shard){0, 0, 1}, y, dx);
    attn_context_destroy(c);
    for (int i = 0; i < SIZE; i++)
        assert_true(isfinite(y[i]) && dx[i] == 0);
}

/* Dropout of examples [first, first + count) must drop the same numbers as dropout of the whole batch, along any
 * axis of examples. */
static void dropout_of_a_shard_matches_the_whole_batch(void **state)
{
    enum { OUTER = 3, WHOLE = 5, INNER = 2, LAST = 7 };
    attn_context *c = *state;
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
                attn_tape_shard(tape, (attn_shard){first, count, WHOLE});
            tape->examples = 1;
            attn_tensor *ones = attn_affine(tape, attn_tape_tensor(tape, ATTN_F32, 4, shape, NULL), 1, 1);
            const float *y = attn_tensor_data(attn_dropout(tape, ones, 0.4));
            if (!divided)
                memcpy(all, y, sizeof all);
            for (int o = 0; o < OUTER && divided; o++)
                assert_memory_equal(y + o * count * INNER * LAST, all[o][first], (size_t)(count * INNER * LAST) * 4);
        }
    }
    attn_tape_destroy(tape);
}

RUN_TESTS(TEST_WITH_CONTEXT(one_process_has_rank_0_of_1), TEST(sums_and_messages_reach_both_ranks),
          TEST(waiting_for_a_silent_rank_is_interrupted), TEST(one_process_needs_no_module),
          TEST(long_texts_are_sent_in_pieces), TEST(batch_statistics_are_of_all_ranks),
          TEST(rank_without_examples_has_zero_gradient), TEST_WITH_CONTEXT(dropout_of_a_shard_matches_the_whole_batch))
