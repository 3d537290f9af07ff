/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the messages that the command prints during long work. Its ticks take some milliseconds instead of seconds.
 */
#include "support/fixture.h"

#include "base/context.h"
#include "bench.h"
#include "race.h"
#include "command.h"
#include "embed_texts.h"
#include "progress.h"
#include "training.h"
#include "attn/train.h"
#include "attn/trainer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK = 5 };

/* Waits until standard error, which is redirected to a file, contains `text`. Returns false after ten seconds. */
static bool comes(FILE *said, const char *text)
{
    char all[8192];
    for (int i = 0; i < 1000; i++) {
        rewind(said);
        all[fread(all, 1, sizeof all - 1, said)] = 0;
        if (strstr(all, text))
            return true;
        usleep(10000);
    }
    fprintf(stdout, "\"%s\" does not come: %s\n", text, all);
    return false;
}

/* Redirects standard error to a temporary file, which is returned. *kept is a copy of the original standard error. */
static FILE *listen(int *kept)
{
    FILE *said = tmpfile();
    assert_non_null(said);
    /* Writes must append, because the test reads the file at the same time. */
    assert_int_equal(fcntl(fileno(said), F_SETFL, O_APPEND), 0);
    *kept = dup(STDERR_FILENO);
    assert_true(*kept >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    return said;
}

static void long_work_says_how_far_it_is(void **state)
{
    attn_context *c = *state;
    int kept;
    FILE *said = listen(&kept);
    cli_watch_begin(c, TICK);
    /* Messages are written to the initial standard error, even if standard error is redirected later. */
    dup2(kept, STDERR_FILENO);
    bool still = comes(said, "attn: still at work, 0:20 so far\n");
    cli_watch_work("files", 0, 8);
    bool first = comes(said, "attn: the first of 8 files, ");
    cli_watch_work("files", 2, 8);
    bool files = comes(said, "attn: 2 of 8 files, ") && comes(said, " left\n");
    attn__work(c, "layers", 5, 12);
    cli_watch_work("texts", 40, -1);
    bool unknown = comes(said, "attn: 40 texts so far, ") && comes(said, " texts/s\n");
    cli_watch_work(NULL, 0, 0);
    attn__work(c, "layers", 3, 12);
    bool layers = comes(said, "attn: 3 of 12 layers, ");
    attn__work_around(c, "parts", 2, 9);
    attn__work(c, "layers", 5, 12);
    bool parts = comes(said, "attn: 2 of 9 parts, ");
    attn__work_around(c, "parts", 9, 9);
    attn__work(c, "layers", 4, 12);
    layers = layers && comes(said, "attn: 4 of 12 layers, ");
    cli_watch_end();
    bool other = false;
    rewind(said);
    for (char line[200]; fgets(line, sizeof line, said);)
        other |= strstr(line, "5 of 12") != NULL;
    fclose(said);
    close(kept);
    assert_true(still && first && files && unknown && layers && parts && !other);
}

/* Counts the texts of a file with these bytes. */
static int64_t texts_in(const char *bytes, bool proteins)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, strlen(bytes), file), strlen(bytes));
    rewind(file);
    int64_t n = cli_count_texts(fileno(file), proteins);
    assert_int_equal(lseek(fileno(file), 0, SEEK_CUR), 0);
    fclose(file);
    return n;
}

static void texts_are_counted_before_they_are_computed(void **state)
{
    (void)state;
    assert_int_equal(texts_in("", false), 0);
    assert_int_equal(texts_in("a\n\nb", false), 3);
    assert_int_equal(texts_in("a\n\n", false), 2);
    assert_int_equal(texts_in("MK\n \r\nMT\n\n", true), 2);
    assert_int_equal(texts_in("MK\nMT", true), 2);
    assert_int_equal(texts_in(">a\nMK\nMT\n>b >c\nM\n", true), 2);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(cli_count_texts(ends[0], false), -1);
    close(ends[0]);
    close(ends[1]);
}

/* Before the first step of a training, the remaining time is unknown, so the message has the number of steps. */
static void the_first_step_is_told(void **state)
{
    attn_context *c = *state;
    attn_config *settings = NULL;
    cli_training training = {0};
    int kept;
    assert_int_equal(attn_config_create(&settings, c), ATTN_OK);
    cli_call call = {.context = c, .quiet = true};
    FILE *said = listen(&kept);
    cli_watch_begin(c, TICK);
    cli_training_begin(&training, &call, "nothing", "tokens", NULL);
    cli_training_announce(
        &training, &(attn_trainer_plan){
                       .settings = settings, .parameters = 7, .steps_per_epoch = 10, .epochs = 4, .first_epoch = 2});
    bool first = comes(said, "attn: the first of 30 steps, ");
    cli_training_progress(&training,
                          &(attn_progress){.epoch = 2, .epochs = 4, .step = 1, .steps = 10, .all_steps = 11});
    bool later = comes(said, "attn: still at work, ");
    cli_watch_end();
    assert_int_equal(cli_training_end(&training, ATTN_OK, "nowhere"), CLI_OK);
    dup2(kept, STDERR_FILENO);
    fclose(said);
    close(kept);
    attn_config_destroy(settings);
    assert_true(first && later);
}

static void waiting_for_input_is_no_work(void **state)
{
    attn_context *c = *state;
    int kept;
    FILE *said = listen(&kept);
    cli_watch_begin(c, TICK);
    cli_watch_waits(true);
    usleep(60 * TICK * 1000);
    cli_watch_end();
    dup2(kept, STDERR_FILENO);
    long length = fseek(said, 0, SEEK_END) == 0 ? ftell(said) : -1;
    fclose(said);
    close(kept);
    assert_int_equal(length, 0);
}

/* ---------------------------------------------------------------------------------------------- tables */

/* A cell's width is in characters. Combining accents have no width, and a text that is too long ends in "…". */
static void cells_have_their_width(void **state)
{
    static const struct {
        const char *text;
        int width;
        const char *cell;
    } cells[] = {
        {"", 3, "   "},
        {"abc", 3, "abc"},
        {"abc", 5, "abc  "},
        {"abcd", 3, "ab…"},
        {"été", 4, "été "},
        {"étés", 3, "ét…"},
        {"ca\u0301b", 4, "ca\u0301b "},
        {"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
        {"a\tb", 4, "a b "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char text[64] = "";
        FILE *file = tmpfile();
        assert_non_null(file);
        cli_print_cell(file, cells[i].text, cells[i].width);
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        assert_string_equal(text, cells[i].cell);
    }
}

/* ---------------------------------------------------------------------------------------------- benches */

static attn_status open_nothing(void *state, attn_context *context, const void *subject, int kind)
{
    (void)context;
    *(double *)state = ((const double *)subject)[kind];
    return ATTN_OK;
}

static attn_status run_nothing(void *state)
{
    (void)state;
    return ATTN_OK;
}

static void close_nothing(void *state)
{
    (void)state;
}

static double itself(const void *state)
{
    return *(const double *)state;
}

/* An error above the allowed error gives an alarm, and so does NaN, in any order. */
static void wrong_results_of_a_race_alarm(void **state)
{
    static const double errors[] = {0.5, NAN, 1, 1.5};
    static const char *const kinds[] = {"right", "no number", "at the limit", "wrong"};
    const bench_work work = {sizeof(double), open_nothing, run_nothing, close_nothing, itself, itself};
    const bench_row row = {
        .part = "p", .name = "n", .type = "f32", .work = &work, .subject = errors, .kinds = kinds, .nkinds = 4};
    cli_call call = {.context = *state, .quiet = true};
    bench_race race = {.cli = &call,
                       .sets = {"scalar"},
                       .nsets = 1,
                       .threads = {1},
                       .nthreads = 1,
                       .sets_limit = INFINITY,
                       .numbers_limit = INFINITY};
    int kept;
    FILE *said = listen(&kept);
    int code = bench_race_row(&race, &row);
    bool nan = comes(said, "scalar is wrong where numbers are \"no number\": inf times the error allowed");
    bool large = comes(said, "scalar is wrong where numbers are \"wrong\": 1.5 times the error allowed");
    dup2(kept, STDERR_FILENO);
    fclose(said);
    close(kept);
    assert_true(code == CLI_OK && nan && large);
    assert_int_equal(race.alarms, 2);
}

/* ---------------------------------------------------------------------------------------------- epochs */

static void a_long_epoch_is_told_without_a_terminal(void **state)
{
    int kept;
    cli_progress progress;
    attn_progress at = {.epoch = 2,
                        .epochs = 4,
                        .step = 5,
                        .steps = 10,
                        .all_steps = 15,
                        .loss = 3,
                        .valid_loss = NAN,
                        .tokens_per_second = 100,
                        .seconds_left = 83,
                        .metric = NAN};
    FILE *said = listen(&kept);
    cli_progress_begin(&progress, false, "tokens", NULL);
    cli_progress_show(&progress, &at);
    progress.last -= 14;
    cli_progress_show(&progress, &at);
    long early = fseek(said, 0, SEEK_END) == 0 ? ftell(said) : -1;
    progress.last -= 2;
    cli_progress_show(&progress, &at);
    dup2(kept, STDERR_FILENO);
    bool told = comes(said, "epoch 2/4, 38 % of all: loss 3.000, 100 tokens/s, 1:23 left\n");
    fclose(said);
    close(kept);
    assert_int_equal(early, 0);
    assert_true(told);
}

/* On a terminal, the bar is drawn at the start, from time to time, and at the end of each epoch. */
static void every_end_of_an_epoch_is_drawn(void **state)
{
    static const struct {
        int64_t all_steps;
        bool ends;
        double waited;
        const char *drawn; /* NULL: nothing */
    } shows[] = {{1, false, 0, "epoch 1/4 [>                                    ]   2%  loss 3.000, 7 tokens/s"},
                 {2, false, -1000, NULL},
                 {10, true, 0, "epoch 1/4 [=========>                           ]  25%"},
                 {11, false, -1000, NULL},
                 {20, false, 2000, "epoch 1/4 [==================>                  ]  50%"},
                 {40, true, 0, "epoch 1/4 [=====================================] 100%  loss 3.000, 7 tokens/s\n"}};
    int kept;
    cli_progress progress;
    FILE *said = listen(&kept);
    cli_progress_begin(&progress, false, "tokens", NULL);
    progress.terminal = true;
    bool as_expected = true;
    for (size_t i = 0; i < sizeof shows / sizeof *shows; i++) {
        long before = fseek(said, 0, SEEK_END) == 0 ? ftell(said) : -1;
        progress.last -= progress.last < 0 ? 0 : shows[i].waited;
        cli_progress_show(&progress, &(attn_progress){.epoch = 1,
                                                      .epochs = 4,
                                                      .steps = 10,
                                                      .all_steps = shows[i].all_steps,
                                                      .epoch_ends = shows[i].ends,
                                                      .loss = 3,
                                                      .valid_loss = NAN,
                                                      .metric = NAN,
                                                      .seconds_left = NAN,
                                                      .tokens_per_second = 7});
        if (i == sizeof shows / sizeof *shows - 1)
            cli_progress_end(&progress);
        long after = fseek(said, 0, SEEK_END) == 0 ? ftell(said) : -1;
        as_expected &= shows[i].drawn ? comes(said, shows[i].drawn) : after == before;
    }
    dup2(kept, STDERR_FILENO);
    fclose(said);
    close(kept);
    assert_true(as_expected);
}

/* A benchmark's mask masks one key in eight. */
static void masks_of_benchmarks(void **state)
{
    attn_context *c = *state;
    attn_problem problem;
    attn_plan *plan;
    cli_arrays made;
    assert_ok(c, attn_problem_parse(&problem, c, "b1q256k256d4:mask", ATTN_DIRECTION_FORWARD));
    assert_ok(c, attn_plan_create(&plan, c, &problem, NULL));
    assert_true(cli_arrays_create(&made, plan, &problem, ATTN_F32));
    const uint8_t *visible = made.blocks[ATTN_ARRAY_MASK];
    int masked = 0;
    for (int i = 0; i < 256 * 256; i++)
        masked += !visible[i];
    assert_true(abs(masked - 256 * 256 / 8) < 256 * 256 / 80);
    cli_arrays_destroy(&made);
    attn_plan_destroy(plan);
}

RUN_TESTS(TEST_WITH_CONTEXT(masks_of_benchmarks), TEST_WITH_CONTEXT(long_work_says_how_far_it_is),
          TEST_WITH_CONTEXT(the_first_step_is_told), TEST_WITH_CONTEXT(waiting_for_input_is_no_work),
          TEST(cells_have_their_width), TEST(texts_are_counted_before_they_are_computed),
          TEST_WITH_CONTEXT(wrong_results_of_a_race_alarm), TEST(a_long_epoch_is_told_without_a_terminal),
          TEST(every_end_of_an_epoch_is_drawn))
