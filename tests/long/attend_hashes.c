/* SPDX-License-Identifier: MIT
 *
 * attend_hashes.c - prints what a change of the engine that shall keep all bits must not change: the planner's choice
 * for 400 problems, and a hash of each output of every solver that accepts them. Two builds are compared with diff.
 *
 *     cmake --build build --target attend_hashes
 *     ATTN_ISA=avx2 build/tests/attend_hashes [PROBLEMS] > before
 *
 * -0 counts as 0, and all NaN are equal. A quarter of the problems is large (support/large_problem.h). The backward
 * pass reads o and lse of the float64 evaluation, so that its hashes do not depend on the forward pass.
 */
#include "support/large_problem.h"
#include "support/solver_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a over the elements as doubles. */
static uint64_t hash_of(const array *a)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = a->low; i < a->low + a->n; i++) {
        double x = array_get(a, i);
        unsigned char bytes[sizeof x];
        x = x == 0 ? 0 : isnan(x) ? (double)NAN : x;
        memcpy(bytes, &x, sizeof x);
        for (size_t b = 0; b < sizeof x; b++)
            hash = (hash ^ bytes[b]) * 0x100000001b3u;
    }
    return hash;
}

static const char *direction_name(attn_direction direction)
{
    return direction == ATTN_DIRECTION_FORWARD ? "forward" : "backward";
}

/* The outputs of the forward pass come before the gradients. */
static bool is_output(attn_direction direction, int id)
{
    return id >= ARRAY_O && (id < ARRAY_DQ) == (direction == ATTN_DIRECTION_FORWARD);
}

static void print_hashes(attn_context *context, const char *solver, random_problem *r, attn_direction direction)
{
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        for (int64_t i = 0; is_output(direction, id) && r->array[id].block && i < r->array[id].n; i++)
            array_set(&r->array[id], r->array[id].low + i, (double)(i % 7) - 3);
    if (!solver_run(context, solver, 0, direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward, &r->arrays))
        return;
    printf("%" PRIu64 " %s %s", r->number, direction_name(direction), solver);
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (is_output(direction, id) && r->array[id].block)
            printf(" %s %016" PRIx64, r->array[id].name, hash_of(&r->array[id]));
    putchar('\n');
}

static void print_plan(attn_context *context, const random_problem *r, attn_direction direction)
{
    attn_plan *plan;
    char text[1024];
    const attn_problem *p = direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
    if (attn_plan_create(&plan, context, p, NULL) != ATTN_OK)
        snprintf(text, sizeof text, "%s", attn_context_error(context));
    else
        attn_plan_describe(plan, false, text, sizeof text);
    attn_plan_destroy(plan);
    printf("%" PRIu64 " plan: %s\n", r->number, text);
}

static void set_results(random_problem *r, const truth *t)
{
    static const array_id results[] = {ARRAY_O, ARRAY_LSE};
    for (int n = 0; n < 2; n++) {
        const array *a = &r->array[results[n]];
        for (int64_t i = a->low; a->block && i < a->low + a->n; i++)
            array_set(a, i, t->value[results[n]][i]);
    }
}

int main(int argc, char **argv)
{
    uint64_t problems = argc > 1 ? strtoull(argv[1], NULL, 10) : 400;
    attn_context *context;
    if (attn_context_create(&context, &(attn_context_options){.threads = 2}) != ATTN_OK)
        return 1;
    printf("on %s\n", attn_context_isa(context));
    for (uint64_t number = 0; number < problems; number++) {
        static random_problem r;
        truth t;
        bool large = number % 4 == 3;
        (large ? large_problem_make : random_problem_make)(&r, number);
        truth_make(&t, &r);
        for (int direction = ATTN_DIRECTION_FORWARD; direction <= ATTN_DIRECTION_BACKWARD; direction++) {
            print_plan(context, &r, (attn_direction)direction);
            /* The last solver is the reference solver, which is slow and does not depend on sizes. */
            for (int s = 0; attn_solver_name(s + large); s++) {
                if (direction == ATTN_DIRECTION_BACKWARD)
                    set_results(&r, &t);
                print_hashes(context, attn_solver_name(s), &r, (attn_direction)direction);
            }
        }
        truth_free(&t, &r);
        random_problem_free(&r);
    }
    attn_context_destroy(context);
    return 0;
}
