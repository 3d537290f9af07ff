/* SPDX-License-Identifier: MIT
 * A plan in words. */
#include "attend/plan/plan.h"
#include "attend/scores/score.h"

#include <stdio.h>
#include <string.h>

/* Text that keeps counting past the end of its buffer. */
typedef struct writer {
    char *text;
    size_t size, length;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    size_t room = w->length < w->size ? w->size - w->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(room ? w->text + w->length : NULL, room, format, arguments);
    va_end(arguments);
    w->length += n > 0 ? (size_t)n : 0;
}

static void put_group(writer *w, const char *name, const attn__group *group)
{
    put(w, " %s ", name);
    for (int i = 0; i < group->n; i++)
        put(w, "%s%lld", i ? "x" : "", (long long)group->axis[i].dim.n);
}

static void put_features(writer *w, const attn__canonical *canonical)
{
    static const char *const normalizations[] = {"", ", 1/N", ", kernel sum"};
    const attn_problem *p = &canonical->problem;
    bool plain = p->score == ATTN_SCORE_DOT; /* needs no word */
    put(w, "%s%s%s%s%s%s%s%s%s%s%s%s%s", plain ? "" : ", ", plain ? "" : attn__score_of(p)->name,
        normalizations[p->normalization], canonical->has_bias ? ", bias" : "",
        p->flags & ATTN_WITH_BIAS_INDEX ? " by an index" : "", canonical->has_mask ? ", mask" : "",
        canonical->has_lens ? ", lens" : "", canonical->has_blocks ? ", blocks" : "",
        canonical->has_dropout ? ", dropout" : "", canonical->extras & ATTN__PACKED ? ", packed" : "",
        canonical->extras & ATTN__SOFTCAP ? ", softcap" : "", p->flags & ATTN_WITH_SINKS ? ", sinks" : "",
        canonical->extras & ATTN__DLSE ? ", dlse" : "");
    const struct {
        const char *name;
        int n;
    } counted[] = {{"band", p->nbands}, {"window", p->nwindows}, {"table", p->nrelatives}, {"pick", p->npicks}};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (counted[i].n)
            put(w, ", %d %s%s", counted[i].n, counted[i].name, counted[i].n > 1 ? "s" : "");
}

size_t attn_plan_describe(const attn_plan *plan, bool verbose, char *text, size_t size)
{
    const attn__canonical *canonical = &plan->canonical;
    writer w = {text, size, 0};
    put(&w, "%s %s", canonical->backward ? "backward" : "forward", attn_dtype_name(canonical->problem.dtype));
    put_group(&w, "batch", &canonical->batch);
    put_group(&w, "query", &canonical->query);
    put_group(&w, "key", &canonical->key);
    put_group(&w, "contract", &canonical->contract);
    put_group(&w, "value", &canonical->value);
    put_features(&w, canonical);
    put(&w, ": %s (%s)%s%s, %d thread%s, %zu bytes of workspace", plan->solver->name, plan->how,
        plan->recipe.text[0] ? ", " : "", plan->recipe.text, canonical->threads, canonical->threads == 1 ? "" : "s",
        plan->workspace_size);
    for (int i = 0; verbose && i < attn__solver_count; i++) {
        if (attn__solvers[i] == plan->solver)
            continue;
        const char *refusal = attn__solver_refusal(attn__solvers[i], canonical);
        if (refusal)
            put(&w, "\n  not %s: %s", attn__solvers[i]->name, refusal);
        else
            put(&w, "\n  not %s: cost %.3g against %.3g", attn__solvers[i]->name,
                attn__solver_cost(attn__solvers[i], canonical), attn__solver_cost(plan->solver, canonical));
    }
    return w.length;
}
