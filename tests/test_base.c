/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests the basic parts: errors, memory, threads and random numbers.
 */
#include "support/fixture.h"

#include "base/context.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/system.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* This test must run first, because Linux refuses such a small signal stack once a process has requested AMX. */
static void named_instruction_set_does_not_request_amx(void **state)
{
    enum { SMALL = 8192 };
    static char stack[SMALL];
    stack_t small = {.ss_sp = stack, .ss_size = SMALL}, before;
    attn_context *c;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = "scalar"}), ATTN_OK);
    assert_int_equal(sigaltstack(&small, &before), 0);
    assert_int_equal(sigaltstack(&before, NULL), 0);
    attn_context_destroy(c);
}

/* Compares the instruction sets with those that gcc's run-time library detects. */
static void instruction_sets_are_those_of_the_processor(void **state)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(attn__isa_runs_here(ATTN_ISA_AVX2), avx2);
    assert_int_equal(attn__isa_runs_here(ATTN_ISA_AVX512), avx512);
    assert_int_equal(attn__isa_runs_here(ATTN_ISA_AVX512BF16), avx512 && __builtin_cpu_supports("avx512bf16"));
#endif
    assert_true(attn__isa_runs_here(ATTN_ISA_SCALAR));
}

static void errors_can_be_asked_for_without_a_context(void **state)
{
    attn_context *context;
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.isa = "avx3"}), ATTN_ERROR_NOT_FOUND);
    assert_refused(context, attn_context_status(context), ATTN_ERROR_ARGUMENT, "attn_context_create");
}

static attn_status fail_twice(attn_context *c, attn_status status, const char *text)
{
    ATTN__CALL(c);
    (void)attn__fail(c, status, "%s", text);
    return attn__fail(c, ATTN_ERROR_IO, "a later error");
}

static attn_status succeed(attn_context *c)
{
    ATTN__CALL(c);
    return ATTN_OK;
}

static attn_status fail_on_tape(attn_context *c, const char *text)
{
    ATTN__TAPE_CALL(c);
    return attn__fail(c, ATTN_ERROR_SHAPE, "%s", text);
}

/* A call that fails, and then calls a public function to clean up. */
static attn_status fail_and_clean_up(attn_context *c)
{
    ATTN__CALL(c);
    attn_status status = attn__fail(c, ATTN_ERROR_FORMAT, "before the cleaning up");
    assert_int_equal(succeed(c), ATTN_OK);
    assert_int_equal(attn__call_status(c), status);
    return status;
}

static attn_status recover(attn_context *c)
{
    ATTN__CALL(c);
    (void)fail_twice(c, ATTN_ERROR_FORMAT, "of no importance");
    attn__call_forget(c);
    return ATTN_OK;
}

static void a_call_begins_without_the_error_of_earlier_calls(void **state)
{
    attn_context *c = *state;
    fail_twice(c, ATTN_ERROR_SHAPE, "row 3");
    assert_string_equal(attn_context_error(c), "row 3");
    assert_int_equal(attn_context_status(c), ATTN_ERROR_SHAPE);
    fail_twice(c, ATTN_ERROR_FORMAT, "another call");
    assert_string_equal(attn_context_error(c), "another call");
    assert_int_equal(attn_context_status(c), ATTN_ERROR_FORMAT);
    succeed(c);
    assert_string_equal(attn_context_error(c), "");
    assert_int_equal(attn_context_status(c), ATTN_OK);
    fail_and_clean_up(c);
    assert_string_equal(attn_context_error(c), "before the cleaning up");
    recover(c);
    assert_int_equal(attn_context_status(c), ATTN_OK);
    assert_string_equal(attn_context_error(c), "");
}

static void the_first_error_on_a_tape_is_kept_until_the_reset(void **state)
{
    attn_context *c = *state;
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    fail_twice(c, ATTN_ERROR_FORMAT, "before the tape");
    fail_on_tape(c, "first");
    assert_string_equal(attn_context_error(c), "first");
    fail_on_tape(c, "second");
    succeed(c);
    assert_string_equal(attn_context_error(c), "first");
    fail_twice(c, ATTN_ERROR_FORMAT, "of a call without a tape");
    assert_string_equal(attn_context_error(c), "of a call without a tape");
    assert_int_equal(recover(c), ATTN_OK);
    assert_string_equal(attn_context_error(c), "first");
    assert_int_equal(attn_context_status(c), ATTN_ERROR_SHAPE);
    attn_tape_reset(tape, NULL);
    assert_int_equal(attn_context_status(c), ATTN_OK);
    fail_on_tape(c, "third");
    attn_tape_destroy(tape);
    assert_string_equal(attn_context_error(c), "third");
    attn_context_clear_error(c);
    assert_int_equal(attn_context_status(c), ATTN_OK);
}

static void a_missing_result_is_never_reported_as_success(void **state)
{
    attn_context *c = *state;
    assert_int_equal(attn__result_status(c, c), ATTN_OK);
    assert_int_equal(attn__result_status(c, NULL), ATTN_ERROR_INTERNAL);
    assert_refused(c, attn_context_status(c), ATTN_ERROR_INTERNAL, "the result is missing");
    fail_twice(c, ATTN_ERROR_SHAPE, "of an earlier call");
    ATTN__CALL(c);
    assert_int_equal(attn__result_status(c, NULL), ATTN_ERROR_INTERNAL);
}

static void *take(void *user, size_t size, size_t align)
{
    (void)user;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void bad_options_make_no_context(void **state)
{
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = "mmx"}), ATTN_ERROR_NOT_FOUND);
    assert_null(c);
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = -1}), ATTN_ERROR_ARGUMENT);
    attn_context_options half = {.allocator.alloc = take};
    assert_int_equal(attn_context_create(&c, &half), ATTN_ERROR_ARGUMENT);
    assert_null(c);
    setenv("ATTN_ISA", "sse9", 1);
    assert_int_equal(attn_context_create(&c, NULL), ATTN_ERROR_NOT_FOUND);
    unsetenv("ATTN_ISA");
    for (int i = 0; attn_isa_name(i); i++) {
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = attn_isa_name(i)}), ATTN_OK);
        assert_string_equal(attn_context_isa(c), attn_isa_name(i));
        attn_context_destroy(c);
    }
}

static void memory_is_aligned_counted_and_checked(void **state)
{
    attn_context *c = *state;
    size_t held, peak;
    char *p = attn__alloc(c, 100);
    assert_int_equal((uintptr_t)p % 64, 0);
    memset(p, 7, 100);
    p = attn__realloc(c, p, 1000);
    assert_int_equal(p[99], 7);
    attn_context_memory(c, &held, &peak, NULL);
    assert_int_equal(held, 1000);
    assert_int_equal(peak, 1100);
    attn__free(c, p);
    attn_context_memory(c, &held, NULL, NULL);
    assert_int_equal(held, 0);
    assert_null(attn__alloc(c, attn__size_mul(SIZE_MAX / 2, 3)));
    assert_int_equal(attn_context_status(c), ATTN_ERROR_MEMORY);
}

static void mark(void *user, int64_t item, int thread)
{
    (void)thread;
    ((int *)user)[item]++;
}

static void mark_range(void *user, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        ((int *)user)[i]++;
}

static void every_item_runs_once(void **state)
{
    for (int threads = 1; threads <= 7; threads += 3) {
        for (int64_t n = 0; n < 40; n += 13) {
            int seen[40] = {0}, seen_range[40] = {0};
            attn__parallel_items(threads, n, mark, seen);
            attn__parallel_range(threads, n, 4, mark_range, seen_range);
            for (int64_t i = 0; i < 40; i++) {
                assert_int_equal(seen[i], i < n);
                assert_int_equal(seen_range[i], i < n);
            }
        }
    }
}

/* The loop has more threads than shares of items. The number of threads does not divide the number of items. */
static void many_threads_do_each_item_once(void **state)
{
    enum { ITEMS = 203 };
    for (int threads = 63; threads < 72; threads++) {
        int seen[ITEMS] = {0};
        attn__parallel_items(threads, ITEMS, mark, seen);
        for (int64_t i = 0; i < ITEMS; i++)
            assert_int_equal(seen[i], 1);
    }
}

typedef struct held_up {
    atomic_int others;
    atomic_bool several;
    bool first_is_last;
} held_up;

enum { OTHERS = 39 };

/* Runs an item. Item 0 waits for the others, but not for ever, because there may be only one thread. */
static void wait_for_others(void *user, int64_t item, int thread)
{
    enum { ALONE = 2, HELPED = 60 }; /* longest waits in seconds: if the thread is alone, and if others help */
    held_up *h = user;
    if (item > 0) {
        atomic_fetch_add(&h->others, 1);
        return;
    }
    for (time_t begin = time(NULL); atomic_load(&h->others) < OTHERS;) {
        if (atomic_load(&h->others) > 0)
            atomic_store(&h->several, true);
        if (time(NULL) > begin + (atomic_load(&h->several) ? HELPED : ALONE))
            break;
    }
    h->first_is_last = atomic_load(&h->others) == OTHERS;
    (void)thread;
}

static void items_of_a_busy_thread_are_taken_by_others(void **state)
{
    held_up h = {0};
    attn__parallel_items(4, OTHERS + 1, wait_for_others, &h);
    assert_int_equal(atomic_load(&h.others), OTHERS);
    assert_true(h.first_is_last || !atomic_load(&h.several));
}

/* The expected numbers are the authors' test vectors for Philox4x32-10 with key 0 and counter 0. */
static void philox_gives_its_known_answer(void **state)
{
    attn__rng rng = {0};
    assert_int_equal(attn__rng_u32(&rng), 0x6627e8d5u);
    assert_int_equal(attn__rng_u32(&rng), 0xe169c58du);
    assert_int_equal(attn__rng_u32(&rng), 0xbc57ac4cu);
    assert_int_equal(attn__rng_u32(&rng), 0x9b00dbd8u);
}

static void numbers_have_their_moments(void **state)
{
    attn__rng rng = {.seed = 1};
    enum { N = 100000 };
    double sum = 0, square = 0, dropped = 0;
    for (int i = 0; i < N; i++) {
        double x = attn__rng_normal(&rng);
        sum += x, square += x * x;
        dropped += attn__dropout_bits(attn__dropout_key(1, 2, (uint64_t)(i / 100)), (uint32_t)(i % 100)) <
                   attn__dropout_threshold(0.3);
    }
    assert_true(fabs(sum / N) < 0.02);
    assert_true(fabs(square / N - 1) < 0.03);
    assert_true(fabs(dropped / N - 0.3) < 0.01);
    int64_t x[50], seen = 0;
    for (int i = 0; i < 50; i++)
        x[i] = i;
    attn__rng_shuffle(&rng, x, 50);
    for (int i = 0; i < 50; i++)
        seen |= (int64_t)1 << x[i];
    assert_int_equal(seen, ((int64_t)1 << 50) - 1);
}

/* A page is dropped only if it is completely in the range. A dropped page of a file has the file's contents when it
 * is read again. */
static void dropped_pages_take_nothing_else(void **state)
{
    enum { BYTES = 1 << 20 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t cuts[][2] = {{0, BYTES}, {1, BYTES}, {page / 2, page}, {page - 1, 3 * page + 2}, {5, 5}};
    FILE *file = tmpfile();
    unsigned char *own = attn__system_alloc(BYTES, page), *expected = malloc(BYTES);
    assert_true(file && own && expected);
    for (size_t i = 0; i < BYTES; i++)
        expected[i] = (unsigned char)(i % 251);
    assert_int_equal(fwrite(expected, 1, BYTES, file), BYTES);
    assert_int_equal(fflush(file), 0);
    unsigned char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    assert_true(mapped != MAP_FAILED);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        size_t first = cuts[i][0], end = cuts[i][1], whole = (first + page - 1) / page * page, rest = end / page * page;
        rest = rest < whole ? whole : rest;
        memcpy(own, expected, BYTES);
        attn__system_drop_pages(own + first, end - first);
        attn__system_drop_pages(mapped + first, end - first);
        assert_memory_equal(own, expected, whole);
        assert_memory_equal(own + rest, expected + rest, BYTES - rest);
        assert_memory_equal(mapped, expected, BYTES);
    }
    munmap(mapped, BYTES);
    attn__system_release(own);
    free(expected);
    fclose(file);
}

RUN_TESTS(TEST(named_instruction_set_does_not_request_amx), TEST(instruction_sets_are_those_of_the_processor),
          TEST(errors_can_be_asked_for_without_a_context),
          TEST_WITH_CONTEXT(a_call_begins_without_the_error_of_earlier_calls),
          TEST_WITH_CONTEXT(the_first_error_on_a_tape_is_kept_until_the_reset),
          TEST_WITH_CONTEXT(a_missing_result_is_never_reported_as_success), TEST(bad_options_make_no_context),
          TEST_WITH_CONTEXT(memory_is_aligned_counted_and_checked), TEST(every_item_runs_once),
          TEST(many_threads_do_each_item_once), TEST(items_of_a_busy_thread_are_taken_by_others),
          TEST(philox_gives_its_known_answer), TEST(numbers_have_their_moments), TEST(dropped_pages_take_nothing_else))
