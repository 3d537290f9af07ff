/* SPDX-License-Identifier: MIT
 *
 * Measures the cost of each feature. The plain problem and the problems with a feature run in turns. The shortest time
 * of each problem counts.
 */
#include "feature_costs.h"
#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 96, LEAST_TURNS = 3 };

/* Limits for the cost of a feature. by_row is for features that work once for each query or key. by_pair is for
 * features that work once for each pair of a query and a key. */
static const double by_row = 1.3, by_pair = 1.6;

typedef enum passes { BOTH, FORWARD_ONLY, BACKWARD_ONLY } passes;

/* `text` is the feature in a problem's text. For "packed" and "blocks", a number that depends on the problem is
 * appended. */
static const struct feature {
    const char *name, *text;
    const double *limit;
    passes passes;
} features[] = {
    {"plain", "", &by_row, BOTH},
    {"softcap", "softcap=30", &by_pair, BOTH},
    {"sinks", "sinks", &by_row, BOTH},
    {"biasd", "biasd", &by_row, BOTH},
    {"buckets", "buckets=32", &by_row, BOTH},
    {"bias", "bias", &by_pair, BOTH},
    {"mask", "mask", &by_pair, BOTH},
    {"blocks", "blocks=", &by_row, BOTH},
    {"causal", "causal-br", &by_row, BOTH},
    {"lens", "lens", &by_row, BOTH},
    {"packed", "packed=", &by_row, BOTH},
    {"lse", "lse", &by_row, FORWARD_ONLY},
    {"dlse", "dlse", &by_row, BACKWARD_ONLY},
    {"dropout", "dropout=0.1", &by_pair, BOTH},
    {"bf16", "bf16", &by_row, BOTH},
};
enum { FEATURES = sizeof features / sizeof *features };

static const char *const problems_all[] = {
    "b1h32q1k4096d8",    "b1h32q1k4096d16",    "b1h32q1k4096d32",
    "b1h32q1k4096d64",   "b1h32q1k4096d128",   "b1h32q16k4096d8",
    "b1h32q16k4096d16",  "b1h32q16k4096d32",   "b1h32q16k4096d64",
    "b1h32q16k4096d128", "b16h8q64k64d8",      "b16h8q64k64d16",
    "b16h8q64k64d32",    "b16h8q64k64d64",     "b16h8q64k64d128",
    "b1h8q1024k1024d8",  "b1h8q1024k1024d16",  "b1h8q1024k1024d32",
    "b1h8q1024k1024d64", "b1h8q1024k1024d128", NULL,
};
static const char *const problems_quick[] = {"b1h8q1k1024d64", "b1h8q16k512d64",  "b8h4q64k64d16",
                                             "b8h4q64k64d64",  "b1h4q256k256d64", NULL};

/* One problem with one feature. `plan` is NULL if no solver runs it, or if the problem does not support the feature. */
typedef struct entrant {
    attn_plan *plan;
    cli_arrays arrays;
    double best;
} entrant;

typedef struct bench {
    const cli_call *cli;
    attn_json json;
    double seconds;
    int measured, passed;
} bench;

/* ----------------------------------------------------------------------------------------------- entrants */

static bool applies(const struct feature *feature, attn_direction direction)
{
    return feature->passes == BOTH || (feature->passes == FORWARD_ONLY) == (direction == ATTN_DIRECTION_FORWARD);
}

/* All packed sequences have the longest length. Blocks have at most 64 positions, and each dim has at least four
 * blocks. */
static void name_with(char name[NAME], const attn_problem *plain, const char *problem, const struct feature *feature)
{
    int64_t batch = plain->dims[0].n, queries = 1, keys = 1;
    for (int d = 0; d < plain->ndims; d++) {
        queries = plain->dims[d].role == ATTN_ROLE_QUERY ? plain->dims[d].n : queries;
        keys = plain->dims[d].role == ATTN_ROLE_KEY ? plain->dims[d].n : keys;
    }
    int64_t block = keys / 4 < 64 ? keys / 4 : 64, tokens = batch * queries;
    char number[24] = "";
    if (strcmp(feature->name, "packed") == 0)
        snprintf(number, sizeof number, "%lld", (long long)tokens);
    else if (strcmp(feature->name, "blocks") == 0)
        snprintf(number, sizeof number, "%lld", (long long)(block > 0 ? block : 1));
    snprintf(name, NAME, "%s%s%s%s", problem,
             !*feature->text        ? ""
             : strchr(problem, ':') ? ","
                                    : ":",
             feature->text, number);
}

/* Returns ATTN_OK even if the problem does not support the feature. */
static attn_status enter(const bench *b, entrant *e, const attn_problem *plain, const char *problem,
                         const struct feature *feature, int threads)
{
    attn_context *context = b->cli->context;
    attn_problem with;
    char name[NAME];
    name_with(name, plain, problem, feature);
    attn_status status = attn_problem_parse(&with, context, name, plain->direction);
    if (status == ATTN_OK)
        status = attn_plan_create(&e->plan, context, &with, &(attn_plan_options){.threads = threads});
    if (status == ATTN_ERROR_ARGUMENT || status == ATTN_ERROR_UNSUPPORTED) {
        attn_context_clear_error(context);
        return ATTN_OK;
    }
    if (status == ATTN_OK && !cli_arrays_create(&e->arrays, e->plan, &with, with.dtype))
        status = ATTN_ERROR_MEMORY;
    return status == ATTN_OK ? cli_arrays_run_before(context, &with, NULL, &e->arrays) : status;
}

/* Runs the problems in turns, until the time is over. In each turn, a problem runs at least twice, because its first
 * run loads data that other problems evicted from the caches. */
static attn_status take_turns(const bench *b, entrant *entrants)
{
    attn_status status = ATTN_OK;
    double begin = cli_seconds();
    for (int turn = 0; turn < LEAST_TURNS || cli_seconds() - begin < b->seconds * FEATURES; turn++)
        for (int i = 0; i < FEATURES; i++) {
            entrant *e = &entrants[i];
            double at = cli_seconds(), end = at + b->seconds / 10, next;
            for (int run = 0; e->plan && status == ATTN_OK && (run < 2 || at < end); run++, at = next) {
                status = attn_plan_execute(e->plan, &e->arrays.arrays, NULL);
                next = cli_seconds();
                e->best = e->best == 0 || next - at < e->best ? next - at : e->best;
            }
        }
    return status;
}

/* ------------------------------------------------------------------------------------------------ results */

static double ratio_of(const entrant *entrants, int i)
{
    return entrants[i].best / entrants[0].best;
}

static void put_row(bench *b, const char *problem, const char *pass, const entrant *entrants, int i)
{
    attn_json *json = &b->json;
    attn_json_object(json, NULL);
    attn_json_text(json, "problem", problem);
    attn_json_text(json, "direction", pass);
    attn_json_text(json, "feature", features[i].name);
    attn_json_real(json, "ms", 1e3 * entrants[i].best);
    attn_json_real(json, "ratio", ratio_of(entrants, i));
    attn_json_real(json, "limit", *features[i].limit);
    attn_json_text(json, "solver", attn_plan_solver(entrants[i].plan));
    attn_json_end(json);
}

static void print_head(void)
{
    printf("%-18s %-8s %8s", "problem", "pass", "ms");
    for (int i = 1; i < FEATURES; i++)
        printf(" %7s", features[i].name);
    printf("  solver\n");
}

static void print_row(const char *problem, const char *pass, const entrant *entrants)
{
    printf("%-18s %-8s %8.4f", problem, pass, 1e3 * entrants[0].best);
    for (int i = 1; i < FEATURES; i++)
        if (entrants[i].plan)
            printf(" %6.2f%s", ratio_of(entrants, i), ratio_of(entrants, i) > *features[i].limit ? "!" : " ");
        else
            printf(" %6s ", "-");
    printf("  %s\n", attn_plan_solver(entrants[0].plan));
    for (int i = 1; i < FEATURES; i++)
        if (entrants[i].plan && strcmp(attn_plan_solver(entrants[i].plan), attn_plan_solver(entrants[0].plan)) != 0)
            printf("    %s by %s\n", features[i].name, attn_plan_solver(entrants[i].plan));
    fflush(stdout);
}

static void report(bench *b, const char *problem, const char *pass, const entrant *entrants)
{
    for (int i = 1; i < FEATURES; i++) {
        b->measured += entrants[i].plan != NULL;
        b->passed += entrants[i].plan && ratio_of(entrants, i) <= *features[i].limit;
    }
    if (!b->cli->json)
        print_row(problem, pass, entrants);
    for (int i = 0; b->cli->json && i < FEATURES; i++)
        if (entrants[i].plan)
            put_row(b, problem, pass, entrants, i);
}

static int measure(bench *b, const char *problem, attn_direction direction, int threads)
{
    static const char *const names[] = {"forward", "backward"};
    entrant entrants[FEATURES] = {{0}};
    attn_problem plain;
    attn_status status = attn_problem_parse(&plain, b->cli->context, problem, direction);
    for (int i = 0; status == ATTN_OK && i < FEATURES; i++)
        if (applies(&features[i], direction))
            status = enter(b, &entrants[i], &plain, problem, &features[i], threads);
    if (status == ATTN_OK && !entrants[0].plan)
        status = ATTN_ERROR_UNSUPPORTED;
    if (status == ATTN_OK)
        status = take_turns(b, entrants);
    if (status == ATTN_OK)
        report(b, problem, names[direction], entrants);
    for (int i = 0; i < FEATURES; i++) {
        cli_arrays_destroy(&entrants[i].arrays);
        attn_plan_destroy(entrants[i].plan);
    }
    return status == ATTN_OK             ? CLI_OK
           : status == ATTN_ERROR_MEMORY ? cli_fail(CLI_FAILED, "%s: out of memory", problem)
                                         : cli_failed(b->cli, problem);
}

int bench_features(const cli_call *cli, double seconds)
{
    const char *which = cli_text(cli, "direction");
    const char *const *problems = cli->nwords ? cli->words : cli_flag(cli, "quick") ? problems_quick : problems_all;
    bench b = {.cli = cli, .seconds = seconds};
    int counts[BENCH_MOST_THREADS], n, code = bench_thread_counts(cli, counts, &n);
    int threads = code == CLI_OK ? counts[n - 1] : 1;
    if (cli->json) {
        attn_json_begin(&b.json, cli->context, true);
        attn_json_array(&b.json, NULL);
    } else if (code == CLI_OK)
        print_head();
    for (int i = 0; code == CLI_OK && problems[i]; i++) {
        if (strcmp(which, "backward") != 0)
            code = measure(&b, problems[i], ATTN_DIRECTION_FORWARD, threads);
        if (code == CLI_OK && strcmp(which, "forward") != 0)
            code = measure(&b, problems[i], ATTN_DIRECTION_BACKWARD, threads);
    }
    if (cli->json) {
        attn_json_end(&b.json);
        int printed = cli_print_json(cli, &b.json);
        return code == CLI_OK ? printed : code;
    }
    if (code == CLI_OK)
        printf("%d of %d within their limits: %.1f times the plain time for work by rows, %.1f for work by pairs "
               "(softcap, bias, mask, dropout); ! marks those above\n",
               b.passed, b.measured, by_row, by_pair);
    return code;
}
