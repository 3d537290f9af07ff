/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Compares the tiled forward pass with the reference solver, on every instruction set of the machine. Heads are in both
 * layouts, sizes are around those of tiles, masks are of every kind, and masked values are not finite.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/rng.h"
#include "support/guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEMS = 120 };

typedef struct trial {
    attn_heads heads;
    attn_problem problem;
    attn_arrays arrays;
    size_t q, k, o, lse, bias, mask, lens;
    double spread; /* approximate range of the scores */
} trial;

static int64_t pick(attn__rng *rng, const int64_t *from, int n)
{
    return from[attn__rng_below(rng, (uint64_t)n)];
}

static size_t bytes_of(const trial *t, size_t count)
{
    return count * attn_dtype_size(t->problem.dtype);
}

/* Allocates an array of normal numbers, which ends at a guard page. */
static void *random_array(attn__rng *rng, const trial *t, size_t count, double scale)
{
    void *memory = guard_alloc(bytes_of(t, count));
    for (size_t i = 0; i < count; i++) {
        float x = (float)(attn__rng_normal(rng) * scale);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (t->problem.dtype == ATTN_BF16)
            ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)memory)[i] = x;
    }
    return memory;
}

static void put_element(const trial *t, void *memory, int64_t at, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (t->problem.dtype == ATTN_BF16)
        ((uint16_t *)memory)[at] = (uint16_t)(bits >> 16);
    else
        ((float *)memory)[at] = x;
}

static float element_of(const trial *t, const void *memory, size_t i)
{
    float x = ((const float *)memory)[t->problem.dtype == ATTN_BF16 ? 0 : i];
    if (t->problem.dtype == ATTN_BF16) {
        uint32_t bits = (uint32_t)((const uint16_t *)memory)[i] << 16;
        memcpy(&x, &bits, sizeof x);
    }
    return x;
}

/* Returns the first dim of a role. The dims are in the order batch, heads, [group], query, key, contract, value. */
static attn_dim *dim_of(trial *t, attn_role role)
{
    int i = 0;
    while (t->problem.dims[i].role != role)
        i++;
    return &t->problem.dims[i];
}

static void choose_shape(trial *t, attn__rng *rng)
{
    static const int64_t lengths[] = {0, 1, 2, 5, 15, 16, 17, 33, 47, 49, 64, 97, 127, 129, 131, 150, 260, 300};
    static const int64_t dims[] = {1, 3, 8, 16, 31, 40, 64, 65, 128};
    attn_heads *h = &t->heads;
    h->batch = 1 + (int64_t)attn__rng_below(rng, 2);
    h->kv_heads = 1 + (int64_t)attn__rng_below(rng, 2);
    h->heads = h->kv_heads * (1 + (int64_t)attn__rng_below(rng, 2));
    h->queries = pick(rng, lengths + 1, 17);
    h->keys = pick(rng, lengths, 18);
    h->dim = pick(rng, dims, 9);
    h->dim_value = pick(rng, dims, 9);
    h->layout = attn__rng_below(rng, 2) ? ATTN_LAYOUT_BHTD : ATTN_LAYOUT_BTHD;
    h->causal = (attn_causal)(attn__rng_below(rng, 5) % 3);
    h->lens_per = (int)(attn__rng_below(rng, 5) % 3);
    h->key_padding = attn__rng_below(rng, 4) == 0;
    t->q = (size_t)(h->batch * h->heads * h->queries * h->dim);
    t->k = (size_t)(h->batch * h->kv_heads * h->keys);
    t->o = (size_t)(h->batch * h->heads * h->queries * h->dim_value);
    t->lse = (size_t)(h->batch * h->heads * h->queries);
    t->mask = (size_t)(h->batch * h->keys);
    t->lens = (size_t)(h->batch * (h->lens_per == 2 ? h->queries : 1));
}

/* Sets the strides of a bias over queries and keys, over keys only, or over queries only. Over both, either dim may
 * be contiguous. */
static void choose_bias(trial *t, attn__rng *rng)
{
    attn_dim *query = dim_of(t, ATTN_ROLE_QUERY), *key = dim_of(t, ATTN_ROLE_KEY);
    switch (attn__rng_below(rng, 6)) {
    case 0:
        query->bias = key->n, key->bias = 1;
        break;
    case 1:
        query->bias = 1, key->bias = query->n;
        break;
    case 2:
        query->bias = 0, key->bias = 1;
        break;
    default:
        return;
    }
    t->problem.flags |= ATTN_WITH_BIAS;
    t->bias = (size_t)(query->n * key->n);
    float *bias = guard_alloc(t->bias * sizeof *bias);
    for (size_t i = 0; i < t->bias; i++)
        bias[i] = (float)attn__rng_normal(rng);
    t->arrays.bias = bias;
}

static void choose_mask(trial *t, attn__rng *rng)
{
    if (!(t->problem.flags & ATTN_WITH_MASK) && attn__rng_below(rng, 4) == 0) {
        t->problem.flags |= ATTN_WITH_MASK;
        dim_of(t, ATTN_ROLE_QUERY)->mask = dim_of(t, ATTN_ROLE_KEY)->n;
        dim_of(t, ATTN_ROLE_KEY)->mask = 1;
        t->mask = (size_t)(t->heads.queries * t->heads.keys);
    }
    if (t->problem.flags & ATTN_WITH_MASK) {
        uint8_t *mask = guard_alloc(t->mask);
        for (size_t i = 0; i < t->mask; i++)
            mask[i] = attn__rng_below(rng, 3) != 0;
        t->arrays.mask = mask;
    }
    if (t->problem.flags & ATTN_WITH_LENS) {
        int32_t *lens = guard_alloc(t->lens * sizeof *lens);
        for (size_t i = 0; i < t->lens; i++)
            lens[i] = (int32_t)attn__rng_below(rng, (uint64_t)t->heads.keys + 3) - 1;
        t->arrays.lens = lens;
    }
}

/* Sets numbers of a key and its value to NaN and infinity. A mask hides this key from all or some queries. */
static void poison(trial *t, attn__rng *rng)
{
    const attn_dim *key = dim_of(t, ATTN_ROLE_KEY);
    if (key->n == 0 || attn__rng_below(rng, 3) != 0)
        return;
    int64_t j = (int64_t)attn__rng_below(rng, (uint64_t)key->n);
    put_element(t, (void *)(uintptr_t)t->arrays.v, j * key->v, attn__rng_below(rng, 2) ? NAN : INFINITY);
    put_element(t, (void *)(uintptr_t)t->arrays.k, j * key->k, NAN);
}

static void make_trial(trial *t, uint64_t number)
{
    attn__rng rng = {.seed = 7, .stream = number};
    memset(t, 0, sizeof *t);
    choose_shape(t, &rng);
    assert_int_equal(attn_problem_heads(&t->problem, &t->heads), ATTN_OK);
    t->problem.dtype = attn__rng_below(&rng, 3) == 0 ? ATTN_BF16 : ATTN_F32;
    t->problem.flags |= ATTN_WANT_LSE;
    t->problem.dropout = attn__rng_below(&rng, 4) == 0 ? 0.25 : 0;
    t->problem.seed = number;
    t->problem.mask_fill = attn__rng_below(&rng, 5) == 0 ? -1e4 : 0;
    t->spread = attn__rng_below(&rng, 8) == 0 ? 30 : 1;
    choose_bias(t, &rng);
    choose_mask(t, &rng);
    t->arrays.q = random_array(&rng, t, t->q, t->spread);
    t->arrays.k = random_array(&rng, t, t->k * (size_t)t->heads.dim, t->spread);
    t->arrays.v = random_array(&rng, t, t->k * (size_t)t->heads.dim_value, 1);
    poison(t, &rng);
}

static void free_trial(trial *t)
{
    guard_free((void *)(uintptr_t)t->arrays.q, bytes_of(t, t->q));
    guard_free((void *)(uintptr_t)t->arrays.k, bytes_of(t, t->k * (size_t)t->heads.dim));
    guard_free((void *)(uintptr_t)t->arrays.v, bytes_of(t, t->k * (size_t)t->heads.dim_value));
    if (t->arrays.bias)
        guard_free((void *)(uintptr_t)t->arrays.bias, t->bias * sizeof(float));
    if (t->arrays.mask)
        guard_free((void *)(uintptr_t)t->arrays.mask, t->mask);
    if (t->arrays.lens)
        guard_free((void *)(uintptr_t)t->arrays.lens, t->lens * sizeof(int32_t));
}

/* Returns true if a dim is empty. The planner then chooses the reference solver. */
static bool is_empty(const trial *t)
{
    return t->heads.batch == 0 || t->heads.heads == 0 || t->heads.queries == 0 || t->heads.keys == 0;
}

static void run(attn_context *c, trial *t, const char *solver, int threads, void *o, float *lse)
{
    attn_plan *plan = NULL;
    attn_plan_options options = {.solver = solver, .threads = threads};
    if (attn_plan_create(&plan, c, &t->problem, &options) != ATTN_OK)
        fail_msg("%s: %s", solver, attn_context_error(c));
    t->arrays.o = o;
    t->arrays.lse = lse;
    assert_int_equal(attn_plan_execute(plan, &t->arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
}

static bool near(double got, double want, double bound)
{
    return (isnan(want) && isnan(got)) || got == want || fabs(got - want) <= bound;
}

/* The bound comes from the rounding of the scores. It depends on their size and number of terms, and is a relative
 * error of the weights. */
static void compare(const trial *t, const char *isa, int number, const void *o, const void *want, const float *lse,
                    const float *want_lse)
{
    double score = t->spread * t->spread * 8, eps = 0x1p-23 * (8 + score * sqrt((double)t->heads.dim));
    for (size_t i = 0; i < t->lse; i++)
        if (!near(lse[i], want_lse[i], eps * 2 + 0x1p-22 * fabs((double)want_lse[i])))
            fail_msg("%s, problem %d: lse %zu is %g, not %g", isa, number, i, (double)lse[i], (double)want_lse[i]);
    for (size_t i = 0; i < t->o; i++) {
        double x = element_of(t, o, i), y = element_of(t, want, i);
        /* In bf16, weights are also rounded to 8 bits, which adds half a unit of a mean of values below 4. */
        double storage = t->problem.dtype == ATTN_BF16 ? 0x1p-7 * fabs(y) + 0x1p-9 * 4 : 0;
        if (!near(x, y, eps * 8 + storage))
            fail_msg("%s, problem %d: o %zu is %g, not %g", isa, number, i, x, y);
    }
}

static void check_isa(const char *isa)
{
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = isa, .threads = 2}), ATTN_OK);
    for (int number = 0; number < PROBLEMS; number++) {
        trial t;
        make_trial(&t, (uint64_t)number);
        if (is_empty(&t)) {
            free_trial(&t);
            continue;
        }
        void *want = guard_alloc(bytes_of(&t, t.o)), *one = guard_alloc(bytes_of(&t, t.o));
        void *three = guard_alloc(bytes_of(&t, t.o));
        float *want_lse = guard_alloc(t.lse * 4), *lse = guard_alloc(t.lse * 4);
        run(c, &t, "reference", 2, want, want_lse);
        run(c, &t, "flash", 3, three, lse);
        run(c, &t, "flash", 1, one, lse);
        compare(&t, isa, number, one, want, lse, want_lse);
        assert_memory_equal(one, three, bytes_of(&t, t.o));
        guard_free(want, bytes_of(&t, t.o));
        guard_free(one, bytes_of(&t, t.o));
        guard_free(three, bytes_of(&t, t.o));
        guard_free(want_lse, t.lse * 4);
        guard_free(lse, t.lse * 4);
        free_trial(&t);
    }
    attn_context_destroy(c);
}

static void agrees_with_the_reference(void **state)
{
    for (int i = 0; attn_isa_name(i); i++)
        check_isa(attn_isa_name(i));
}

RUN_TESTS(TEST(agrees_with_the_reference))
