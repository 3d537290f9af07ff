/* SPDX-License-Identifier: MIT
 *
 * attn bench attend: measures the speed of attention problems, also as a fraction of the machine's peak.
 */
#include "bench.h"
#include "feature_costs.h"
#include "problems.h"

#include <string.h>

static const char *const directions[] = {"forward", "backward", "both", NULL};

static const cli_option options[] = {
    CLI_TEXT("threads", 0, "LIST", "", "thread counts, as 1,2; default: 1 and all"),
    CLI_CHOICE("direction", directions, "both", "the pass to run"),
    CLI_TEXT("solver", 0, "NAME", "",
             "use this solver only; problems that it does not support are skipped, and the reason is printed"),
    CLI_FLAG("verify", 0, "compare each result with the reference solver in float64 (slow on large problems)"),
    CLI_FLAG("explain", 0, "print each plan, and why the other solvers were not chosen"),
    CLI_FLAG("measure", 0, "let the planner time the solvers instead of choosing by rule"),
    CLI_FLAG(
        "features", 0,
        "measure instead what a softcap, sinks, biases, masks and other features cost: the time of each problem with "
        "the feature divided by its time without it, with the largest thread count of --threads"),
    CLI_FLAG("quick", 0, "a short list of small problems, measured briefly"),
    CLI_REAL("seconds", "0.3", 0, 3600, "measure each for at least this long"),
};

static const char *const usage[] = {"[PROBLEM...]", NULL};

#define WORD(NAME, name) " " #name
static const char description[] =
    "Prints for each problem, direction and number of threads: the median time, the multiplications and additions "
    "per second "
    "(2 for each channel of the score and of the value, over all pairs of a query and a key that the problem's "
    "structure permits; times 2.5 "
    "backward), and what fraction that is of the machine's peak: of f32 multiply-adds on registers, measured before "
    "and after each problem with as many threads, the best so far (bf16 is compared with the f32 peak too). Backward "
    "computes the gradients alone, without the forward pass. Run nothing else on the machine meanwhile.\n"
    "\n"
    "A problem is FORM[:FEATURE[,FEATURE]...], where N is a number and [] may be left out:\n"
    "  bNhNqNkNdN[gN][vN]    batch, heads, queries, keys, channels of a head, key\n"
    "                        and value heads, channels of a value\n"
    "  addbNhNqNkNdN         the same with additive scores\n"
    "  axisNxNcNhN           one axis of an array with c channels: row, col, axis=N;\n"
    "                        first: the channels are in front\n"
    "  tiedNxNhNdN[bN]       tied rows of an alignment, rows x columns\n"
    "  windowNxNwN[xN]hNdN[bN][sN][lN]\n"
    "                        an image, taps, step, dilation: zero, mask-border, shift\n"
    "Features of all forms:\n"
    "  bf16 f64 causal causal-br band=LO..HI lens lensq pad mask blocks=N bias\n"
    "  biask biasd buckets=N rel dropout=P fill=X scale=X softcap=X sinks lse\n"
    "  dlse over-n kernel-sum hardmax none sigmoid\n"
    "  sigmoid-bias=X topk=N; packed=N\n"
    "  (first form); bthd bhtd (layout of the first two forms); the score:\n"
    " " ATTN_SCORES(WORD) "\n"
                          "attn.h describes each.";
#undef WORD

static const char *const examples[] = {
    "attn bench attend",
    "attn bench attend --threads 2 b2h8q512k512d64:causal,bf16",
    "attn bench attend --verify --explain window32x32w7h2d8:zero,rel",
    "attn bench attend --quick --json",
    "attn bench attend --features --quick",
    NULL,
};

typedef struct row {
    const char *problem, *direction, *dtype, *solver;
    int threads;
    double ms, gflops, peak, error, bound;
    size_t workspace;
} row;

typedef struct bench {
    const cli_call *cli;
    attn_json json;
    double seconds;
    double *peak;
    bool verify, wrong;
    int rows;
} bench;

/* --------------------------------------------------------------------------------------------- printing */

static void print_head(const bench *b)
{
    printf("%-30s %-8s %-4s %3s %10s %9s %8s %6s %10s  %s%s\n", "problem", "pass", "type", "thr", "ms", "GFLOP/s",
           "peak", "part", "workspace", "solver", b->verify ? "            error" : "");
}

static void print_row(const bench *b, const row *r)
{
    printf("%-30s %-8s %-4s %3d %10.4f %9.2f %8.1f %6.3f %10zu  ", r->problem, r->direction, r->dtype, r->threads,
           r->ms, r->gflops, r->peak, r->gflops / r->peak, r->workspace);
    if (b->verify)
        printf("%-16s  %.1e%s", r->solver, r->error, r->error <= r->bound ? "" : " WRONG");
    else
        printf("%s", r->solver);
    putchar('\n');
    fflush(stdout);
}

static void put_row(bench *b, const row *r)
{
    attn_json *json = &b->json;
    attn_json_object(json, NULL);
    attn_json_text(json, "problem", r->problem);
    attn_json_text(json, "direction", r->direction);
    attn_json_text(json, "dtype", r->dtype);
    attn_json_int(json, "threads", r->threads);
    attn_json_real(json, "ms", r->ms);
    attn_json_real(json, "gflops", r->gflops);
    attn_json_real(json, "peak_gflops", r->peak);
    attn_json_real(json, "fraction", r->gflops / r->peak);
    attn_json_int(json, "workspace_bytes", (int64_t)r->workspace);
    attn_json_text(json, "solver", r->solver);
    if (b->verify)
        attn_json_real(json, "error", r->error);
    attn_json_end(json);
}

static void explain(const bench *b, const attn_plan *plan, const char *name)
{
    char text[4096];
    attn_plan_describe(plan, true, text, sizeof text);
    fprintf(b->cli->json ? stderr : stdout, "%s: %s\n", name, text);
}

/* -------------------------------------------------------------------------------------------- measuring */

/* Runs the plan for the requested time. *median is the median time of a run in seconds. */
static attn_status time_plan(const bench *b, const attn_plan *plan, const attn_arrays *arrays, double *median)
{
    enum { MOST = 20000, LEAST = 3 };
    static double times[MOST];
    double begin = cli_seconds(), warm = b->seconds / 10;
    attn_status status = ATTN_OK;
    do
        status = attn_plan_execute(plan, arrays, NULL);
    while (status == ATTN_OK && cli_seconds() - begin < warm);
    int n = 0;
    begin = cli_seconds();
    for (double at = begin, next; status == ATTN_OK && n < MOST && (n < LEAST || at - begin < b->seconds); at = next) {
        status = attn_plan_execute(plan, arrays, NULL);
        next = cli_seconds();
        times[n++] = next - at;
    }
    *median = bench_median(times, n);
    return status;
}

static attn_status measure_plan(bench *b, const attn_problem *problem, const attn_plan *plan, row *r)
{
    attn_context *context = b->cli->context;
    cli_arrays a;
    double seconds = 0;
    if (!cli_arrays_create(&a, plan, problem, problem->dtype))
        return ATTN_ERROR_MEMORY;
    attn_status status = cli_arrays_run_before(context, problem, NULL, &a);
    if (status == ATTN_OK)
        status = time_plan(b, plan, &a.arrays, &seconds);
    bench_raise_peak(b->peak, context, r->threads, b->seconds);
    r->peak = *b->peak;
    r->ms = 1e3 * seconds;
    r->gflops = seconds > 0 ? 1e-9 * attn_plan_flops(plan) / seconds : 0;
    if (status == ATTN_OK && b->verify)
        status = bench_verify(context, problem, &a, &r->error, &r->bound);
    cli_arrays_destroy(&a);
    return status;
}

static void report(bench *b, const row *r)
{
    if (b->cli->json)
        put_row(b, r);
    else
        print_row(b, r);
    b->rows++;
    if (b->verify && !(r->error <= r->bound)) {
        b->wrong = true;
        cli_fail(CLI_FAILED, "%s %s by %s: differs from the reference by %.1e, more than %.1e", r->problem,
                 r->direction, r->solver, r->error, r->bound);
    }
}

/* Returns the exit code after a plan was not created. It is not a failure if the solver that the user named does not
 * support the problem. */
static int refused(const bench *b, const row *r, attn_status status)
{
    if (status != ATTN_ERROR_UNSUPPORTED)
        return cli_failed(b->cli, r->problem);
    cli_note(b->cli, "%s %s: %s", r->problem, r->direction, attn_context_error(b->cli->context));
    attn_context_clear_error(b->cli->context);
    return CLI_OK;
}

static int measure(bench *b, const char *name, attn_direction direction, int threads)
{
    attn_context *context = b->cli->context;
    const char *solver = cli_text(b->cli, "solver");
    row r = {.problem = name, .direction = directions[direction], .threads = threads};
    attn_problem problem;
    attn_plan *plan = NULL;
    if (attn_problem_parse(&problem, context, name, direction) != ATTN_OK)
        return cli_failed(b->cli, NULL);
    attn_plan_options plan_options = {.threads = threads,
                                      .effort = cli_flag(b->cli, "measure") ? ATTN_MEASURE : ATTN_ESTIMATE,
                                      .solver = *solver ? solver : NULL};
    attn_status status = attn_plan_create(&plan, context, &problem, &plan_options);
    if (status != ATTN_OK)
        return refused(b, &r, status);
    r.dtype = attn_dtype_name(problem.dtype);
    r.solver = attn_plan_solver(plan);
    r.workspace = attn_plan_workspace(plan);
    if (cli_flag(b->cli, "explain"))
        explain(b, plan, name);
    status = measure_plan(b, &problem, plan, &r);
    if (status == ATTN_OK)
        report(b, &r);
    attn_plan_destroy(plan);
    return status == ATTN_OK             ? CLI_OK
           : status == ATTN_ERROR_MEMORY ? cli_fail(CLI_FAILED, "%s: out of memory", name)
                                         : cli_failed(b->cli, name);
}

static int measure_directions(bench *b, const char *problem, int threads, double *best)
{
    const char *which = cli_text(b->cli, "direction");
    int code = CLI_OK;
    b->peak = best;
    bench_raise_peak(b->peak, b->cli->context, threads, b->seconds);
    for (int d = ATTN_DIRECTION_FORWARD; code == CLI_OK && d <= ATTN_DIRECTION_BACKWARD; d++)
        if (strcmp(which, "both") == 0 || strcmp(which, directions[d]) == 0)
            code = measure(b, problem, (attn_direction)d, threads);
    return code;
}

static int measure_all(bench *b, const char *const *problems)
{
    int counts[BENCH_MOST_THREADS], n, code = bench_thread_counts(b->cli, counts, &n);
    double best[BENCH_MOST_THREADS] = {0};
    for (int i = 0; code == CLI_OK && problems[i]; i++)
        for (int t = 0; code == CLI_OK && t < n; t++)
            code = measure_directions(b, problems[i], counts[t], &best[t]);
    b->peak = NULL;
    return code;
}

static int check_solver(const char *name)
{
    attn_nearest nearest = {.word = name};
    for (int i = 0; attn_solver_name(i); i++) {
        if (strcmp(attn_solver_name(i), name) == 0)
            return CLI_OK;
        attn_nearest_offer(&nearest, attn_solver_name(i));
    }
    if (attn_nearest_found(&nearest))
        return cli_fail(CLI_BAD, "--solver: there is no solver \"%.60s\"; did you mean \"%s\"?", name, nearest.best);
    return cli_fail(CLI_BAD, "--solver: there is no solver \"%.60s\"; --explain prints the names of all", name);
}

/* Parses all problems before anything is measured, so that an error in any problem is reported at once. */
static int check_all(const cli_call *cli)
{
    attn_problem problem;
    const char *solver = cli_text(cli, "solver");
    if (*solver && check_solver(solver) != CLI_OK)
        return CLI_BAD;
    for (int i = 0; i < cli->nwords; i++)
        if (attn_problem_parse(&problem, cli->context, cli->words[i], ATTN_DIRECTION_FORWARD) != ATTN_OK)
            return cli_failed(cli, NULL);
    return CLI_OK;
}

static int run(cli_call *cli)
{
    bool quick = cli_flag(cli, "quick");
    bench b = {.cli = cli, .verify = cli_flag(cli, "verify"), .seconds = cli_real(cli, "seconds")};
    int code = check_all(cli);
    if (code != CLI_OK)
        return code;
    if (quick && !cli_given(cli, "seconds"))
        b.seconds = 0.02;
    if (cli_flag(cli, "features"))
        return bench_features(cli, cli_given(cli, "seconds") ? b.seconds : b.seconds / 10);
    if (cli->json) {
        attn_json_begin(&b.json, cli->context, true);
        attn_json_array(&b.json, NULL);
    } else
        print_head(&b);
    code = measure_all(&b, cli->nwords ? cli->words : quick ? bench_problems_quick : bench_problems_all);
    if (cli->json) {
        attn_json_end(&b.json);
        int printed = cli_print_json(cli, &b.json);
        code = code == CLI_OK ? printed : code;
    }
    if (code == CLI_OK && b.rows == 0)
        code = cli_fail(CLI_BAD, "nothing was measured: no problem could be run by %s", cli_text(cli, "solver"));
    return code == CLI_OK && b.wrong ? CLI_FAILED : code;
}

const cli_command bench_attend = {
    "bench attend",
    "measure attention against the machine's peak",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    -1,
    run,
};
