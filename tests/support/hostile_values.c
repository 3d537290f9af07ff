/* SPDX-License-Identifier: MIT */
#include "support/hostile_values.h"

#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- random numbers */

static uint64_t hash(const hostile *h, uint64_t salt, int64_t x, int64_t y)
{
    return attn__mix64(attn__mix64(attn__mix64(h->seed ^ (salt << 48)) ^ (uint64_t)x) ^ (uint64_t)y << 1);
}

static double unit_of(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

static double uniform(const hostile *h, uint64_t salt, int64_t x, int64_t y)
{
    return unit_of(hash(h, salt, x, y));
}

/* Returns the sum of four uniform numbers. It is close to a normal random number of variance 1, and at most 3.5. */
static double normal_of(uint64_t bits)
{
    const double sum =
        (double)(bits & 0xffff) + (double)(bits >> 16 & 0xffff) + (double)(bits >> 32 & 0xffff) + (double)(bits >> 48);
    return (sum - 131070) * (1.7320508075688772 / 65536);
}

int64_t hostile_pick(uint64_t seed, uint64_t salt, int64_t n)
{
    return (int64_t)(attn__mix64(attn__mix64(seed) ^ salt) % (uint64_t)(n > 0 ? n : 1));
}

static int64_t pick(const hostile *h, uint64_t salt, int64_t n)
{
    return hostile_pick(h->seed, salt + 1000, n);
}

/* ------------------------------------------------------------------------------------------ structures */

typedef struct place {
    bool b;
    int64_t i, k, rows, depth;
    double z;
} place;

static double factor(const hostile *h)
{
    static const double factors[] = {1e-2, 1e-4, 1e-6, 1e-8};
    return factors[pick(h, 1, 4)];
}

static double value_normal(const hostile *h, const place *p)
{
    (void)h;
    return p->z;
}

static double value_positive(const hostile *h, const place *p)
{
    (void)h;
    return fabs(p->z);
}

static double small_weight(const place *p)
{
    return p->z / sqrt((double)p->depth);
}

static double value_gelu(const hostile *h, const place *p)
{
    (void)h;
    return p->b ? small_weight(p) : p->z * erfc(-p->z * 0.7071067811865476) / 2;
}

static double value_relu(const hostile *h, const place *p)
{
    (void)h;
    return p->b ? small_weight(p) : fmax(p->z, 0);
}

static double value_softmax(const hostile *h, const place *p)
{
    (void)h;
    return p->b ? p->z : exp(2 * p->z) / (7.4 * (double)p->depth);
}

static double value_blocks(const hostile *h, const place *p)
{
    const int64_t length = INT64_C(4) << pick(h, 2, 7), rows = INT64_C(1) << pick(h, 3, 7);
    static const double scales[] = {1e9, 1e-9, 1};
    return p->z * scales[hash(h, 4 + p->b, p->k / length, p->i / rows) % 3];
}

static double value_interleaved(const hostile *h, const place *p)
{
    return p->b && p->i % 4 == 0 && p->k < 1 + p->depth / 9 ? p->z * factor(h) : p->z;
}

static double value_groups(const hostile *h, const place *p)
{
    return p->b && p->i % 4 != p->k % 4 ? p->z * factor(h) : p->z;
}

static double value_even(const hostile *h, const place *p)
{
    return p->b && p->i % 64 < 16 && p->k % 2 == 0 ? p->z * factor(h) : p->z;
}

static double value_concatenation(const hostile *h, const place *p)
{
    const bool small = p->b && p->i < 1 + p->rows / 4 && p->k < p->depth / 2;
    return small ? p->z * (pick(h, 5, 4) ? factor(h) : 0) : p->z;
}

static double value_sampled(const hostile *h, const place *p)
{
    const int64_t steps[] = {2, 3, 4, 8, 16, 1 + p->rows / 64, 1 + p->rows / 16};
    const bool small = p->b && p->i % steps[pick(h, 6, 7)] == 0 && hash(h, 7, p->k, 0) % 2;
    return small ? p->z * factor(h) : p->z;
}

static double value_two_outliers(const hostile *h, const place *p)
{
    const bool hit = p->k == pick(h, 8, p->depth) || p->k == pick(h, 9, p->depth);
    if (!hit)
        return p->z;
    return !p->b ? p->z * 1e6 : p->i % 2 ? p->z : 0;
}

static double value_many_outliers(const hostile *h, const place *p)
{
    if (hash(h, 10, p->k, 0) % 12)
        return p->z;
    return !p->b ? p->z * 1e6 : p->i % 3 ? 0 : p->z;
}

static double value_dead_k(const hostile *h, const place *p)
{
    if (p->k != pick(h, 11, p->depth))
        return p->z;
    return p->b ? 0 : p->z * pow(10, (double)(3 + pick(h, 12, 28)));
}

static double value_span(const hostile *h, const place *p)
{
    const int e = hash(h, 13, p->k, 0) % 2 ? 40 : -40;
    return p->b ? ldexp(p->z, p->i % 2 ? -e : -e / 4) : ldexp(p->z, p->i % 3 ? e : e / 2);
}

static double value_tiny_huge(const hostile *h, const place *p)
{
    (void)h;
    return p->b ? p->z * 3e37 : p->z * 1e-37;
}

static double value_small_normal(const hostile *h, const place *p)
{
    const int e = 102 + (int)pick(h, 14, 18);
    return ldexp(p->z, p->b ? e : -e);
}

static double value_subnormal(const hostile *h, const place *p)
{
    return p->b ? p->z * 1e30 : p->z * pow(10, -(double)(38 + pick(h, 15, 4)));
}

static double bright(const hostile *h)
{
    return pow(10, (double)(3 + pick(h, 16, 7)));
}

static double value_bright_half(const hostile *h, const place *p)
{
    return !p->b && p->i < (p->rows + 1) / 2 ? p->z * bright(h) : p->z;
}

static double value_bright_row(const hostile *h, const place *p)
{
    return !p->b && p->i == pick(h, 17, p->rows) ? p->z * bright(h) : p->z;
}

static double value_bright_spot(const hostile *h, const place *p)
{
    return !p->b && hash(h, 18, p->i, p->k) % 1000 == 0 ? p->z * bright(h) : p->z;
}

static double value_zero_rows(const hostile *h, const place *p)
{
    return hash(h, 19 + p->b, p->i, 0) % 3 == 0 || hash(h, 21, p->k, 0) % 5 == 0 ? 0 : p->z;
}

static double value_sparse(const hostile *h, const place *p)
{
    const bool thin = !p->b || pick(h, 22, 2);
    return thin && hash(h, 23 + p->b, p->i, p->k) % 50 ? 0 : p->z;
}

static double value_lognormal(const hostile *h, const place *p)
{
    return p->z * exp(3 * normal_of(hash(h, 25 + p->b, p->i, 0)));
}

static double value_lognormal_k(const hostile *h, const place *p)
{
    return p->z * exp(2 * normal_of(hash(h, 27 + p->b, p->k, 0)));
}

static double value_lognormal_each(const hostile *h, const place *p)
{
    return copysign(exp(2 * p->z), uniform(h, 29 + p->b, p->i, p->k) - 0.5);
}

static double value_channels(const hostile *h, const place *p)
{
    return p->z * pow(10, 12 * uniform(h, 31 + p->b, p->k, 0) - 6);
}

static double value_channels_opposite(const hostile *h, const place *p)
{
    const double e = 12 * uniform(h, 33, p->k, 0) - 6;
    return p->z * pow(10, p->b ? -e : e);
}

static double value_exponents(const hostile *h, const place *p)
{
    const int e = (int)(hash(h, 34, p->k, p->i % 4) % 41) - 20;
    return ldexp(p->z, p->b ? -e : e);
}

static double value_complement(const hostile *h, const place *p)
{
    const bool mine = hash(h, 35, p->k, p->i % 5) % 2 == (uint64_t)p->b;
    return mine ? p->z * pow(10, 20 * uniform(h, 36, p->i, p->k) - 5) : 0;
}

static double shifted(const hostile *h, const place *p, int64_t period)
{
    static const int spans[] = {2, 4, 8, 12, 20, 30};
    const int64_t j = (p->k + p->i) % p->depth, at = j % period;
    const double span = (double)spans[pick(h, 37, 6)];
    const int e = (int)(span - 2 * span * (double)at / (double)(period > 1 ? period - 1 : 1));
    return ldexp(1 + uniform(h, 38, j, 0), p->b ? -e : e);
}

static double value_shifts(const hostile *h, const place *p)
{
    return shifted(h, p, p->depth);
}

static double value_shifts_repeated(const hostile *h, const place *p)
{
    return shifted(h, p, p->depth / 4 + 1);
}

static double value_graded(const hostile *h, const place *p)
{
    return ldexp(p->z, -(int)(p->i % 40) - (int)(pick(h, 39, 2) ? p->k % 40 : 0));
}

static double value_huge_entry(const hostile *h, const place *p)
{
    if (p->b)
        return p->z * 1e-3;
    return p->i == pick(h, 40, p->rows) && p->k == pick(h, 41, p->depth) ? p->z * 9e37 : p->z;
}

static double value_outlier_columns(const hostile *h, const place *p)
{
    return !p->b && p->k % 128 == pick(h, 42, p->depth < 128 ? p->depth : 128) ? p->z * 50 : p->z;
}

static double value_outlier_elements(const hostile *h, const place *p)
{
    return !p->b && hash(h, 43, p->i, p->k) % 100 == 0 ? p->z * pow(10, (double)(4 + pick(h, 44, 6))) : p->z;
}

static double value_digit_edge(const hostile *h, const place *p)
{
    static const double edges[] = {0x1.fffffep0, 0x1p0,      0x1.000002p0, 0x1.fefefep0, 0x1.010102p0, 0x1.fe0000p0,
                                   0x1.ff0000p0, 0x1.0101p0, 0x1.80807ep0, 0x1.7f7f80p0, 0x1.00fffep0, 0x1.fdfefep0};
    const uint64_t bits = hash(h, 45 + p->b, p->i, p->k);
    return copysign(ldexp(edges[bits % 12], -(int)(bits >> 8 & 1)), p->z);
}

static double value_cancellation(const hostile *h, const place *p)
{
    const double z = normal_of(hash(h, 47 + p->b, p->i, p->k / 2)) * (p->b ? 1 : 1e4);
    return p->k == p->depth - 1 ? p->z : p->k % 2 && !p->b ? -z : z;
}

/* Returns `what`, infinity or NaN, for about two elements of A and, in half of the cases, for about two elements of
 * B. Returns 0 for some other elements. */
static double rare(const hostile *h, const place *p, double what)
{
    const double share = 2 / ((double)p->rows * (double)p->depth);
    if ((!p->b || pick(h, 49, 2)) && uniform(h, 50 + p->b, p->i, p->k) < share)
        return copysign(what, p->z);
    return hash(h, 52, p->i, p->k) % 8 == 0 ? 0 : p->z;
}

static double value_infinite(const hostile *h, const place *p)
{
    return rare(h, p, INFINITY);
}

static double value_not_a_number(const hostile *h, const place *p)
{
    return rare(h, p, NAN);
}

typedef struct entry {
    const char *name;
    double (*value)(const hostile *h, const place *p);
} entry;
#define ENTRY(name) {#name, value_##name},
static const entry entries[HOSTILE_COUNT] = {HOSTILE_STRUCTURES(ENTRY)};
#undef ENTRY

const char *hostile_structure_name(hostile_structure structure)
{
    return entries[structure].name;
}

hostile_structure hostile_structure_find(const char *name)
{
    int i = 0;
    while (i < HOSTILE_COUNT && strcmp(entries[i].name, name) != 0)
        i++;
    return (hostile_structure)i;
}

float hostile_value(const hostile *h, hostile_operand operand, int64_t i, int64_t k, int64_t copy)
{
    const uint64_t bits = hash(h, 60 + (uint64_t)operand, i * 0x10001 + copy, k);
    const place p = {.b = (operand == HOSTILE_B) != h->swap,
                     .i = i,
                     .k = k,
                     .rows = h->rows[operand],
                     .depth = h->k,
                     .z = normal_of(bits)};
    const double x = entries[h->structure].value(h, &p);
    return isfinite(x) && fabs(x) > (double)FLT_MAX ? copysignf(FLT_MAX, (float)copysign(1, x)) : (float)x;
}
