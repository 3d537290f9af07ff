/* SPDX-License-Identifier: MIT
 *
 * Compares the speeds of instruction sets, and the speeds on different kinds of input numbers.
 */
#include "race.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Each try has TURNS turns, and every competitor runs at least once in each turn. A suspected slowdown is measured
 * again with new memory, in up to TRIES tries, before it becomes an alarm. */
enum { TURNS = 4, TRIES = 5, MOST_TURNS = TURNS * TRIES };

/* The measured values of one row of the printed table, for one number of threads. */
typedef struct measured {
    const bench_row *row;
    int threads;
    int turns;
    double seconds[BENCH_MOST_KINDS][BENCH_MOST_SETS][MOST_TURNS]; /* shortest time in each turn */
    double best[BENCH_MOST_KINDS][BENCH_MOST_SETS];
    double error[BENCH_MOST_KINDS][BENCH_MOST_SETS]; /* largest error */
    /* peak: the machine's peak rate on each set; flops: number of operations in a run */
    double *peak, flops;
} measured;

typedef struct field {
    attn_context *contexts[BENCH_MOST_SETS];
    void *states[BENCH_MOST_KINDS][BENCH_MOST_SETS];
} field;

/* ------------------------------------------------------------------------------------------------ judging */

/* Returns the ratio of two times. Each time belongs to a kind of numbers k and an instruction set s. If the machine
 * was slow for some seconds, the shortest times may be unfair. The ratio within a turn is fair, because both
 * competitors run shortly after each other. So the ratio of the shortest times is limited to the median of the
 * turns' ratios. */
static double over(const measured *m, int k1, int s1, int k2, int s2)
{
    double turns[MOST_TURNS];
    for (int turn = 0; turn < m->turns; turn++)
        turns[turn] = m->seconds[k1][s1][turn] / m->seconds[k2][s2][turn];
    return fmin(m->best[k1][s1] / m->best[k2][s2], bench_median(turns, m->turns));
}

/* Returns the time of set s divided by the time of the next lower set, for the kind of numbers with the largest
 * ratio. Sets *kind to this kind. Returns 0 for the last set. */
static double over_below(const bench_race *race, const measured *m, int s, int *kind)
{
    double most = 0;
    *kind = 0;
    for (int k = 0; k < m->row->nkinds && s + 1 < race->nsets; k++) {
        double ratio = over(m, k, s, k, s + 1);
        if (ratio > most) {
            most = ratio;
            *kind = k;
        }
    }
    return most;
}

/* Returns the time of set s on its slowest kind of numbers divided by its time on its fastest kind. Sets *slow and
 * *fast to the two kinds. */
static double over_numbers(const measured *m, int s, int *slow, int *fast)
{
    double most = 0;
    *slow = *fast = 0;
    for (int a = 0; a < m->row->nkinds; a++)
        for (int b = 0; b < m->row->nkinds; b++) {
            double ratio = over(m, a, s, b, s);
            if (ratio > most) {
                most = ratio;
                *slow = a;
                *fast = b;
            }
        }
    return most;
}

static bool is_slow(const bench_race *race, const measured *m)
{
    int k, fast;
    for (int s = 0; s < race->nsets; s++)
        if (over_below(race, m, s, &k) > race->sets_limit || over_numbers(m, s, &k, &fast) > race->numbers_limit)
            return true;
    return false;
}

__attribute__((format(printf, 3, 4))) static void alarm_of(bench_race *race, const measured *m, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    race->alarms++;
    cli_fail(CLI_FAILED, "%s in %s, %d thread%s: %s", m->row->name, m->row->type, m->threads, m->threads > 1 ? "s" : "",
             text);
}

static void judge(bench_race *race, const measured *m)
{
    for (int s = 0; s < race->nsets; s++) {
        int slow, fast;
        double ratio = over_below(race, m, s, &slow);
        if (ratio > race->sets_limit)
            alarm_of(race, m, "%s takes %.2f times as long as %s (%s)", race->sets[s], ratio, race->sets[s + 1],
                     m->row->kinds[slow]);
        ratio = over_numbers(m, s, &slow, &fast);
        if (ratio > race->numbers_limit)
            alarm_of(race, m, "%s takes %.2f times as long where numbers are \"%s\" as where they are \"%s\"",
                     race->sets[s], ratio, m->row->kinds[slow], m->row->kinds[fast]);
        for (int k = 0; k < m->row->nkinds; k++)
            if (m->error[k][s] > 1)
                alarm_of(race, m, "%s is wrong where numbers are \"%s\": %.3g times the error allowed", race->sets[s],
                         m->row->kinds[k], m->error[k][s]);
    }
}

/* ----------------------------------------------------------------------------------------------- printing */

static void print_head(const bench_race *race)
{
    printf("%-38s %-4s %3s", race->rates ? "product, GFLOP/s" : "work, ms", "type", "thr");
    for (int s = 0; s < race->nsets; s++)
        printf("  %10s %5s %5s", race->sets[s], "part", "below");
    printf("  %7s\n", "numbers");
}

static void print_row(const bench_race *race, const measured *m)
{
    int k, fast;
    double numbers = 0;
    printf("%-38s %-4s %3d", m->row->name, m->row->type, m->threads);
    for (int s = 0; s < race->nsets; s++) {
        double ms = 1e3 * m->best[0][s], rate = 1e-6 * m->flops / ms;
        numbers = fmax(numbers, over_numbers(m, s, &k, &fast));
        printf("  %10.*f %5.2f ", race->rates ? 1 : 3, race->rates ? rate : ms, rate / m->peak[s]);
        printf(s + 1 < race->nsets ? "%5.2f" : "    -", over_below(race, m, s, &k));
    }
    printf(m->row->nkinds > 1 ? "  %7.2f" : "        -", numbers);
    printf("%s\n", is_slow(race, m) ? " SLOW" : "");
    fflush(stdout);
}

static void put_row(bench_race *race, const measured *m)
{
    attn_json *json = &race->json;
    for (int k = 0; k < m->row->nkinds; k++)
        for (int s = 0; s < race->nsets; s++) {
            double ms = 1e3 * m->best[k][s], rate = 1e-6 * m->flops / ms;
            attn_json_object(json, NULL);
            attn_json_text(json, "part", m->row->part);
            attn_json_text(json, "name", m->row->name);
            attn_json_text(json, "type", m->row->type);
            attn_json_int(json, "threads", m->threads);
            attn_json_text(json, "numbers", m->row->kinds[k]);
            attn_json_text(json, "isa", race->sets[s]);
            attn_json_real(json, "ms", ms);
            attn_json_real(json, "gflops", rate);
            attn_json_real(json, "peak_gflops", m->peak[s]);
            attn_json_real(json, "fraction", rate / m->peak[s]);
            if (m->row->work->error)
                attn_json_real(json, "error", m->error[k][s]);
            attn_json_end(json);
        }
}

/* ---------------------------------------------------------------------------------------------- measuring */

static attn_status open_field(const bench_race *race, measured *m, field *f, int *s)
{
    const bench_work *work = m->row->work;
    for (*s = 0; *s < race->nsets; ++*s) {
        attn_context_options options = {.threads = m->threads, .isa = race->sets[*s], .precision = m->row->precision};
        attn_status status = attn_context_create(&f->contexts[*s], &options);
        for (int k = 0; status == ATTN_OK && k < m->row->nkinds; k++) {
            f->states[k][*s] = calloc(1, work->size);
            status = f->states[k][*s] ? work->open(f->states[k][*s], f->contexts[*s], m->row->subject, k)
                                      : ATTN_ERROR_MEMORY;
            if (status == ATTN_OK)
                status = work->run(f->states[k][*s]); /* a warm-up run */
            double error = status == ATTN_OK && work->error ? work->error(f->states[k][*s]) : 0;
            m->error[k][*s] = isnan(error) ? INFINITY : fmax(m->error[k][*s], error);
        }
        if (status != ATTN_OK)
            return status;
        m->flops = work->flops(f->states[0][*s]);
        bench_raise_peak(&m->peak[*s], f->contexts[*s], m->threads, race->seconds);
    }
    return ATTN_OK;
}

static void close_field(const bench_race *race, const measured *m, field *f)
{
    for (int s = 0; s < race->nsets; s++) {
        for (int k = 0; k < m->row->nkinds; k++) {
            if (f->states[k][s])
                m->row->work->close(f->states[k][s]);
            free(f->states[k][s]);
        }
        attn_context_destroy(f->contexts[s]);
    }
}

/* Repeats the work for `seconds`. *shortest is the shortest time of one run. */
static attn_status take_turn(const bench_work *work, void *state, double seconds, double *shortest)
{
    double begin = cli_seconds(), at = begin, next;
    attn_status status = ATTN_OK;
    *shortest = INFINITY;
    do {
        status = work->run(state);
        next = cli_seconds();
        *shortest = fmin(*shortest, next - at);
        at = next;
    } while (status == ATTN_OK && at - begin < seconds);
    return status;
}

/* Runs all competitors in turns. Every second turn has the reverse order, because the processor may be slower at
 * first after another set's registers were used. */
static attn_status run_field(const bench_race *race, measured *m, field *f, int *s)
{
    for (int turn = 0; turn < TURNS; turn++, m->turns++)
        for (int k = 0; k < m->row->nkinds; k++)
            for (int i = 0; i < race->nsets; i++) {
                *s = turn % 2 ? race->nsets - 1 - i : i;
                double *shortest = &m->seconds[k][*s][m->turns];
                attn_status status = take_turn(m->row->work, f->states[k][*s], race->seconds / TURNS, shortest);
                if (status != ATTN_OK)
                    return status;
                m->best[k][*s] = m->turns ? fmin(m->best[k][*s], *shortest) : *shortest;
            }
    return ATTN_OK;
}

static int measure(const bench_race *race, measured *m)
{
    field f = {0};
    int s = 0, code = CLI_OK;
    attn_status status = open_field(race, m, &f, &s);
    if (status == ATTN_OK)
        status = run_field(race, m, &f, &s);
    if (status != ATTN_OK) {
        const char *why = attn_context_status(f.contexts[s]) == status ? attn_context_error(f.contexts[s]) : "";
        code = cli_fail(cli_exit_code(status), "%s in %s on %s: %s", m->row->name, m->row->type, race->sets[s],
                        *why ? why : attn_status_text(status));
    }
    close_field(race, m, &f);
    return code;
}

static int race_threads(bench_race *race, const bench_row *row, int t)
{
    measured m = {.row = row, .threads = race->threads[t], .peak = race->peak[t]};
    int code = CLI_OK;
    for (int try = 0; code == CLI_OK && try < TRIES && (try == 0 || is_slow(race, &m)); try++)
        code = measure(race, &m);
    if (code != CLI_OK)
        return code;
    race->rows++;
    if (race->cli->json)
        put_row(race, &m);
    else
        print_row(race, &m);
    judge(race, &m);
    return CLI_OK;
}

int bench_race_row(bench_race *race, const bench_row *row)
{
    int code = CLI_OK;
    if (race->type ? strcmp(race->type, row->type) != 0 : row->precision == ATTN_PRECISION_FMA)
        return CLI_OK;
    for (int t = 0; code == CLI_OK && t < race->nthreads; t++)
        code = race_threads(race, row, t);
    return code;
}

/* --------------------------------------------------------------------------------------- begin and end */

/* Finds the instruction sets, from the context's set downwards. Plain C is included only if it is the only set. */
static void find_sets(bench_race *race)
{
    const char *first = attn_context_isa(race->cli->context);
    bool found = false;
    for (int i = 0; attn_isa_name(i) && race->nsets < BENCH_MOST_SETS; i++) {
        const char *set = attn_isa_name(i);
        found = found || strcmp(set, first) == 0;
        if (found && (race->nsets == 0 || strcmp(set, "scalar") != 0))
            race->sets[race->nsets++] = set;
    }
}

int bench_race_begin(bench_race *race, const cli_call *cli, bool rates)
{
    bool given = cli_given(cli, "tolerance");
    *race =
        (bench_race){.cli = cli, .quick = cli_flag(cli, "quick"), .rates = rates, .seconds = cli_real(cli, "seconds")};
    int code = bench_thread_counts(cli, race->threads, &race->nthreads);
    if (code != CLI_OK)
        return code;
    if (race->quick && !cli_given(cli, "threads")) {
        race->threads[0] = race->threads[race->nthreads - 1];
        race->nthreads = 1;
    }
    if (race->quick && !cli_given(cli, "seconds"))
        race->seconds = 0.02;
    race->sets_limit = race->numbers_limit = race->quick && !given ? 1.5 : cli_real(cli, "tolerance");
    if (!race->quick && !given)
        race->numbers_limit = 1.2;
    if (cli_given(cli, "precision") && strcmp(cli_text(cli, "precision"), "default") != 0)
        race->type = cli_text(cli, "precision");
    find_sets(race);
    if (cli->json) {
        attn_json_begin(&race->json, cli->context, true);
        attn_json_array(&race->json, NULL);
    } else
        print_head(race);
    return CLI_OK;
}

int bench_race_end(bench_race *race, int code)
{
    if (race->cli->json) {
        attn_json_end(&race->json);
        int printed = cli_print_json(race->cli, &race->json);
        code = code == CLI_OK ? printed : code;
    }
    if (code == CLI_OK && race->rows == 0)
        return cli_fail(CLI_BAD, "nothing was measured: none of the chosen problems supports %s", race->type);
    if (code == CLI_OK && race->alarms)
        return cli_fail(CLI_FAILED, "%d alarm%s in %d rows", race->alarms, race->alarms > 1 ? "s" : "", race->rows);
    return code;
}
