/* SPDX-License-Identifier: MIT
 *
 * Several threads execute one plan at the same time. Each thread has its own workspace in the caller's memory, whose
 * size the plan gives. So an execution allocates nothing.
 */
#include "example.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 3, H = 4, T = 96, D = 32, N = T * H * D };

typedef struct job {
    const attn_plan *plan;
    void *workspace;
    float q[N], k[N], v[N], o[N];
    attn_status status;
} job;

static void *work(void *argument)
{
    job *j = argument;
    j->status = attn_plan_execute(j->plan, &(attn_arrays){.q = j->q, .k = j->k, .v = j->v, .o = j->o}, j->workspace);
    return NULL;
}

int main(void)
{
    static job jobs[THREADS];
    static float expected[N];
    attn_context *context = begin();
    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = H, .queries = T, .keys = T, .dim = D};
    must(context, attn_problem_heads(&problem, &heads));

    attn_plan *plan; /* Each execution uses one thread, because the program has its own threads. */
    must(context, attn_plan_create(&plan, context, &problem, &(attn_plan_options){.threads = 1}));
    size_t size = (attn_plan_workspace(plan) + 63) / 64 * 64;
    printf("an execution by solver %s needs %zu bytes\n", attn_plan_solver(plan), size);

    uint64_t before, after;
    attn_context_memory(context, NULL, NULL, &before);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        job *j = &jobs[i];
        fill(j->q, N, (uint32_t)(3 * i)), fill(j->k, N, (uint32_t)(3 * i + 1)), fill(j->v, N, (uint32_t)(3 * i + 2));
        j->plan = plan;
        j->workspace = aligned_alloc(64, size ? size : 64);
        if (!j->workspace || pthread_create(&threads[i], NULL, work, j) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        must(context, jobs[i].status);
        free(jobs[i].workspace);
    }
    attn_context_memory(context, NULL, NULL, &after);
    printf("%d executions of one plan at once made %d allocations\n", THREADS, (int)(after - before));
    claim(after == before, "running allocates nothing");

    /* Without a workspace from the caller, the plan uses its own. So only one execution can run at a time. */
    for (int i = 0; i < THREADS; i++) {
        const job *j = &jobs[i];
        must(context, attn_plan_execute(plan, &(attn_arrays){.q = j->q, .k = j->k, .v = j->v, .o = expected}, NULL));
        claim(memcmp(j->o, expected, sizeof expected) == 0, "the same bits as one after the other");
    }
    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return 0;
}
