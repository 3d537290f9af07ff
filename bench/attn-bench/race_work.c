/* SPDX-License-Identifier: MIT
 *
 * Races attention, training steps and Vision Transformers.
 */
#include "problems.h"
#include "race.h"
#include "step.h"
#include "vit.h"

static const char *const as_they_are[] = {"usual"};

/* --------------------------------------------------------------------------------------------- attention */

typedef struct attention {
    const char *problem;
    attn_direction direction;
    /* changes the inputs for the second kind of numbers, so that attention weights are tiny or 0 */
    void (*make_small)(cli_arrays *arrays, const attn_problem *problem);
} attention;

typedef struct attention_state {
    attn_plan *plan;
    cli_arrays arrays;
} attention_state;

static attn_status open_attention(void *user, attn_context *context, const void *of, int kind)
{
    attention_state *st = user;
    const attention *a = of;
    attn_problem problem;
    attn_plan_options options = {.threads = attn_context_threads(context)};
    attn_status status = attn_problem_parse(&problem, context, a->problem, a->direction);
    if (status == ATTN_OK)
        status = attn_plan_create(&st->plan, context, &problem, &options);
    if (status == ATTN_OK && !cli_arrays_create(&st->arrays, st->plan, &problem, problem.dtype))
        status = ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && kind > 0)
        a->make_small(&st->arrays, &problem);
    return status == ATTN_OK ? cli_arrays_run_before(context, &problem, NULL, &st->arrays) : status;
}

static attn_status run_attention(void *user)
{
    attention_state *st = user;
    return attn_plan_execute(st->plan, &st->arrays.arrays, NULL);
}

static void close_attention(void *user)
{
    attention_state *st = user;
    attn_plan_destroy(st->plan);
    cli_arrays_destroy(&st->arrays);
}

static double flops_of_attention(const void *user)
{
    return attn_plan_flops(((const attention_state *)user)->plan);
}

static const bench_work attention_work = {sizeof(attention_state), open_attention,     run_attention,
                                          close_attention,         flops_of_attention, NULL};

static int race_attention(bench_race *race, bench_row row, attention a)
{
    static const char *const passes[] = {"forward", "backward"};
    char name[96];
    attn_problem problem;
    int code = CLI_OK;
    row.name = name;
    row.work = &attention_work;
    row.subject = &a;
    for (int d = ATTN_DIRECTION_FORWARD; code == CLI_OK && d <= ATTN_DIRECTION_BACKWARD; d++) {
        a.direction = (attn_direction)d;
        if (attn_problem_parse(&problem, race->cli->context, a.problem, a.direction) != ATTN_OK)
            return cli_failed(race->cli, NULL);
        snprintf(name, sizeof name, "%s %s", a.problem, passes[d]);
        row.type = attn_dtype_name(problem.dtype);
        code = bench_race_row(race, &row);
    }
    return code;
}

int bench_race_attention(bench_race *race)
{
    const char *const *problems = race->quick ? bench_problems_quick : bench_problems_all;
    const bench_row row = {.part = "attention", .kinds = as_they_are, .nkinds = 1};
    int code = CLI_OK;
    for (int i = 0; code == CLI_OK && problems[i]; i++)
        code = race_attention(race, row, (attention){.problem = problems[i]});
    return code;
}

/* ------------------------------------------------------------------------------------- subnormal weights */

/* Fills the bias with the mask of Swin's shifted windows. Two tokens in different parts of a window get a bias of
 * -100. Their weight is then near 2^-144, which is subnormal. */
static void mask_parts(cli_arrays *arrays, const attn_problem *problem)
{
    enum { TOKENS = 49, PART = 28 };
    const attn_span *span = &arrays->spans[ATTN_ARRAY_BIAS];
    float *bias = arrays->blocks[ATTN_ARRAY_BIAS];
    (void)problem;
    for (int64_t i = 0; i < span->high - span->low; i++)
        if ((i / TOKENS % TOKENS < PART) != (i % TOKENS < PART))
            bias[i] = -100;
}

/* Scales the operands so that scores have a standard deviation of 40 instead of 1/3. Weights then have all sizes
 * down to zero. */
static void spread_scores(cli_arrays *arrays, const attn_problem *problem)
{
    const attn_span *span = &arrays->spans[ATTN_ARRAY_Q];
    float *q = arrays->blocks[ATTN_ARRAY_Q];
    (void)problem;
    for (int64_t i = 0; i < span->high - span->low; i++)
        q[i] *= 120;
}

int bench_race_subnormal(bench_race *race)
{
    static const char *const masked[] = {"usual", "mask of -100"}, *const spread[] = {"usual", "scores spread by 40"};
    bench_row row = {.part = "subnormal", .kinds = masked, .nkinds = 2};
    int code = race_attention(race, row, (attention){.problem = "b64h3q49k49d32:bias", .make_small = mask_parts});
    row.kinds = spread;
    return code == CLI_OK
               ? race_attention(race, row, (attention){.problem = "b1h8q512k512d64", .make_small = spread_scores})
               : code;
}

/* ---------------------------------------------------------------------------------------- training steps */

static attn_status open_step(void *user, attn_context *context, const void *of, int kind)
{
    (void)kind;
    return bench_trainer_open(user, context, of);
}

static attn_status run_step(void *user)
{
    double loss;
    return bench_trainer_step(user, &loss);
}

static void close_step(void *user)
{
    bench_trainer_close(user);
}

static double flops_of_step(const void *user)
{
    return bench_step_flops(((const bench_trainer *)user)->shape);
}

static const bench_work step_work = {sizeof(bench_trainer), open_step, run_step, close_step, flops_of_step, NULL};

static attn_status open_vit(void *user, attn_context *context, const void *of, int kind)
{
    (void)kind;
    return bench_vit_open(user, context, of);
}

static attn_status run_vit(void *user)
{
    return bench_vit_run(user);
}

static void close_vit(void *user)
{
    bench_vit_close(user);
}

static double flops_of_vit(const void *user)
{
    return bench_vit_flops(&((const bench_vit *)user)->shape);
}

static const bench_work vit_work = {sizeof(bench_vit), open_vit, run_vit, close_vit, flops_of_vit, NULL};

/* The Transformers have two blocks, although the large model has six, or one with --quick. */
int bench_race_training(bench_race *race)
{
    bench_row row = {
        .part = "training", .type = "f32", .precision = ATTN_PRECISION_F32, .kinds = as_they_are, .nkinds = 1};
    int code = CLI_OK;
    for (int i = 0; code == CLI_OK && bench_shapes[i].name; i++) {
        bench_shape shape = bench_shapes[i];
        shape.blocks = race->quick ? 1 : 2;
        shape.batch /= race->quick ? 16 : 1;
        row.name = i == 0 ? "d2l's Transformer, a step" : "Transformer of 512, a step";
        row.work = &step_work;
        row.subject = &shape;
        code = bench_race_row(race, &row);
    }
    bench_vit_shape vit = bench_vit_d2l;
    vit.batch = race->quick ? 8 : 128;
    row.name = "d2l's ViT, a step";
    row.work = &vit_work;
    row.subject = &vit;
    return code == CLI_OK ? bench_race_row(race, &row) : code;
}

int bench_race_vit(bench_race *race)
{
    static const attn_precision precisions[] = {ATTN_PRECISION_F32, ATTN_PRECISION_BF16};
    bench_vit_shape vit = bench_vit_base;
    int code = CLI_OK;
    vit.pass = BENCH_VIT_INFER;
    vit.batch = race->quick ? 2 : 8;
    vit.blocks = race->quick ? 2 : vit.blocks;
    for (int i = 0; code == CLI_OK && i < 2; i++) {
        bench_row row = {.part = "vit",
                         .name = race->quick ? "ViT-B/16, 2 pictures, 2 blocks" : "ViT-B/16, 8 pictures",
                         .type = attn_precision_name(precisions[i]),
                         .precision = precisions[i],
                         .work = &vit_work,
                         .subject = &vit,
                         .kinds = as_they_are,
                         .nkinds = 1};
        code = bench_race_row(race, &row);
    }
    return code;
}
