/* SPDX-License-Identifier: MIT
 *
 * unfused.c - measures attention as three steps over a whole matrix of scores, with products of oneDNN. The engine must
 * not be slower.  The backward pass is measured twice. First, the weights of the forward pass are kept, as in automatic
 * differentiation. They have N x N numbers for each head. Second, only the log-sum-exp is kept, as in the engine.
 *
 *     cc -O3 -march=native -ffast-math -fopenmp bench/unfused.c -ldnnl -lm -o unfused
 *     ./unfused THREADS PROBLEM...      bNhNqNkNdN[gN][:causal], axisNxNcNhN:row or :col, tiedNxNhNdN
 *
 * Each line has the problem and three times in milliseconds: forward, backward with kept weights, and backward without
 * kept weights. Threads share the heads. The layouts are the same as in `attn bench attend`.
 */
#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* A problem. Its scores S are the sum of `tied` products. An item is one head of one batch. */
typedef struct problem {
    long batch, heads, groups, queries, keys, dim, tied;
    long ld, batch_step, tied_step; /* elements from one token, batch or tied row to the next */
    bool causal;
} problem;

typedef struct arrays {
    float *q, *k, *v, *o, *dout, *dq, *dk, *dv, *p, *dp, *lse;
} arrays;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool parse(problem *p, const char *text)
{
    long a, b, c, h;
    int end = 0;
    *p = (problem){.tied = 1, .causal = strstr(text, "causal") != NULL};
    if (sscanf(text, "axis%ldx%ldc%ldh%ld", &a, &b, &c, &h) == 4) {
        bool row = strstr(text, "row") != NULL;
        p->batch = row ? a : b;
        p->queries = p->keys = row ? b : a;
        p->heads = p->groups = h;
        p->dim = c / h;
        p->ld = row ? c : b * c;
        p->batch_step = row ? b * c : c;
        return true;
    }
    if (sscanf(text, "tied%ldx%ldh%ldd%ld", &a, &b, &h, &p->dim) == 4) {
        p->batch = 1;
        p->tied = a;
        p->queries = p->keys = b;
        p->heads = p->groups = h;
        p->ld = h * p->dim;
        p->tied_step = b * p->ld;
        return true;
    }
    if (sscanf(text, "b%ldh%ldq%ldk%ldd%ld%n", &p->batch, &p->heads, &p->queries, &p->keys, &p->dim, &end) != 5)
        return false;
    p->groups = p->heads;
    if (text[end] == 'g')
        p->groups = atol(text + end + 1);
    p->ld = p->heads * p->dim;
    p->batch_step = p->ld * (p->queries > p->keys ? p->queries : p->keys);
    return true;
}

/* Returns the offset of a head's rows in the array of queries or of keys. heads / groups heads of queries share one
 * head of keys. The stride between rows is the same in both arrays. */
static long start(const problem *p, long item, bool keys, long tied)
{
    long head = item % p->heads;
    return item / p->heads * p->batch_step + (keys ? head * p->groups / p->heads : head) * p->dim + tied * p->tied_step;
}

static void softmax(const problem *p, float *s, float *lse)
{
    for (long i = 0; i < p->queries; i++, s += p->keys) {
        long n = p->causal && i + 1 < p->keys ? i + 1 : p->keys;
        float top = -INFINITY, sum = 0;
        for (long j = 0; j < n; j++)
            top = s[j] > top ? s[j] : top;
        for (long j = 0; j < n; j++) {
            s[j] = expf(s[j] - top);
            sum += s[j];
        }
        float factor = 1 / sum;
        lse[i] = top + logf(sum);
        for (long j = 0; j < n; j++)
            s[j] *= factor;
        memset(s + n, 0, (size_t)(p->keys - n) * sizeof *s);
    }
}

static void scores(const problem *p, const arrays *a, long item, float *s)
{
    float scale = 1 / sqrtf((float)(p->dim * p->tied));
    for (long t = 0; t < p->tied; t++)
        dnnl_sgemm('N', 'T', p->queries, p->keys, p->dim, scale, a->q + start(p, item, false, t), p->ld,
                   a->k + start(p, item, true, t), p->ld, t > 0, s, p->keys);
}

static void weights(const problem *p, const arrays *a, long item, float *s)
{
    scores(p, a, item, s);
    for (long i = 0; i < p->queries; i++, s += p->keys) {
        long n = p->causal && i + 1 < p->keys ? i + 1 : p->keys;
        float lse = a->lse[item * p->queries + i];
        for (long j = 0; j < n; j++)
            s[j] = expf(s[j] - lse);
        memset(s + n, 0, (size_t)(p->keys - n) * sizeof *s);
    }
}

static void forward(const problem *p, const arrays *a, long item, float *s)
{
    scores(p, a, item, s);
    softmax(p, s, a->lse + item * p->queries);
    for (long t = 0; t < p->tied; t++)
        dnnl_sgemm('N', 'N', p->queries, p->dim, p->keys, 1, s, p->keys, a->v + start(p, item, true, t), p->ld, 0,
                   a->o + start(p, item, false, t), p->ld);
}

/* Computes dS = P (dP - sum of P dP). `ds` holds dP before the call and dS after it. */
static void softmax_backward(const problem *p, const float *s, float *ds, float scale)
{
    for (long i = 0; i < p->queries; i++, s += p->keys, ds += p->keys) {
        float delta = 0;
        for (long j = 0; j < p->keys; j++)
            delta += s[j] * ds[j];
        for (long j = 0; j < p->keys; j++)
            ds[j] = scale * s[j] * (ds[j] - delta);
    }
}

static void backward(const problem *p, const arrays *a, long item, const float *s, float *ds, bool add)
{
    float scale = 1 / sqrtf((float)(p->dim * p->tied));
    for (long t = 0; t < p->tied; t++) {
        long q = start(p, item, false, t), k = start(p, item, true, t);
        dnnl_sgemm('N', 'T', p->queries, p->keys, p->dim, 1, a->dout + q, p->ld, a->v + k, p->ld, t > 0, ds, p->keys);
        dnnl_sgemm('T', 'N', p->keys, p->dim, p->queries, 1, s, p->keys, a->dout + q, p->ld, add, a->dv + k, p->ld);
    }
    softmax_backward(p, s, ds, scale);
    for (long t = 0; t < p->tied; t++) {
        long q = start(p, item, false, t), k = start(p, item, true, t);
        dnnl_sgemm('N', 'N', p->queries, p->dim, p->keys, 1, ds, p->keys, a->k + k, p->ld, 0, a->dq + q, p->ld);
        dnnl_sgemm('T', 'N', p->keys, p->dim, p->queries, 1, ds, p->keys, a->q + q, p->ld, add, a->dk + k, p->ld);
    }
}

typedef enum unfused_pass { FORWARD, KEPT, ANEW } unfused_pass;

static void run(const problem *p, const arrays *a, unfused_pass pass)
{
    long size = p->queries * p->keys, shared = p->heads / p->groups;
#pragma omp parallel for schedule(dynamic)
    for (long group = 0; group < p->batch * p->groups; group++)
        for (long i = group * shared; i < (group + 1) * shared; i++) {
            long thread = omp_get_thread_num();
            float *s = pass == ANEW ? a->dp + (2 * thread + 1) * size : a->p + i * size;
            if (pass == ANEW)
                weights(p, a, i, s);
            if (pass == FORWARD)
                forward(p, a, i, s);
            else
                backward(p, a, i, s, a->dp + 2 * thread * size, i > group * shared);
        }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_ms(const problem *p, const arrays *a, unfused_pass pass)
{
    static double times[10000];
    int n = 0;
    run(p, a, pass);
    for (double begin = seconds(), at = begin, next; n < 3 || (at - begin < 0.2 && n < 10000); at = next) {
        run(p, a, pass);
        next = seconds();
        times[n++] = 1e3 * (next - at);
    }
    qsort(times, (size_t)n, sizeof *times, compare);
    return times[n / 2];
}

static float *fill(long count)
{
    const size_t page = (size_t)2 << 20; /* Arrays are on huge pages of 2 MiB, as in `attn bench`. */
    size_t bytes = ((size_t)count * sizeof(float) + page - 1) / page * page;
    float *x = aligned_alloc(page, bytes);
#ifdef MADV_HUGEPAGE
    if (x)
        (void)madvise(x, bytes, MADV_HUGEPAGE);
#endif
    for (long i = 0; x && i < count; i++)
        x[i] = (float)(i * 7919 % 1009) / 504.5f - 1;
    return x;
}

static bool measure(const char *text)
{
    problem p;
    if (!parse(&p, text)) {
        fprintf(stderr, "unfused: %s is not of a form known here\n", text);
        return false;
    }
    long tokens = p.queries > p.keys ? p.queries : p.keys, count = p.batch * tokens * p.tied * p.heads * p.dim;
    long scores = p.batch * p.heads * p.queries * p.keys;
    arrays a = {fill(count),
                fill(count),
                fill(count),
                fill(count),
                fill(count),
                fill(count),
                fill(count),
                fill(count),
                fill(scores),
                fill(2 * omp_get_max_threads() * p.queries * p.keys),
                fill(p.batch * p.heads * p.queries)};
    float *const all[] = {a.q, a.k, a.v, a.o, a.dout, a.dq, a.dk, a.dv, a.p, a.dp, a.lse};
    bool made = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        made = made && all[i];
    if (made) {
        double forward_ms = median_ms(&p, &a, FORWARD), kept_ms = median_ms(&p, &a, KEPT);
        printf("%-28s %10.4f %10.4f %10.4f\n", text, forward_ms, kept_ms, median_ms(&p, &a, ANEW));
        fflush(stdout);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return made;
}

int main(int argc, char **argv)
{
    bool good = argc > 2;
    if (good)
        omp_set_num_threads(atoi(argv[1]));
    for (int i = 2; i < argc; i++)
        good = measure(argv[i]) && good;
    return good ? 0 : 1;
}
