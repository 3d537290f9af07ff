/* SPDX-License-Identifier: MIT
 * Splits sentence pairs into training, validation and test parts. */
#include "data/pairs.h"

#include "base/rng.h"

#include <inttypes.h>

enum { TRAIN, VALID, TEST, PARTS };

typedef struct rule {
    const attn_pairs_split_options *options;
    double valid, test;
    int64_t train_examples;
} rule;

static int part_of(const rule *by, const attn_pairs *all, int64_t i)
{
    if (by->options->compat == ATTN_COMPAT_D2L)
        return i < by->train_examples ? TRAIN : VALID;
    uint64_t hash = attn__mix64(all->hashes[i] ^ attn__mix64(by->options->seed));
    double u = (double)(hash >> 11) * 0x1p-53;
    return u < by->test ? TEST : u < by->test + by->valid ? VALID : TRAIN;
}

static double share(double given)
{
    return given < 0 ? 0 : given > 0 ? given : 0.05;
}

attn_status attn_pairs_split(attn_pairs **train, attn_pairs **valid, attn_pairs **test, const attn_pairs *all,
                             const attn_pairs_split_options *options)
{
    ATTN__CALL(all->context);
    static const attn_pairs_split_options defaults;
    const attn_pairs_split_options *o = options ? options : &defaults;
    rule by = {o, share(o->valid), share(o->test), o->train_examples ? o->train_examples : 512};
    attn_pairs **wanted[PARTS] = {train, valid, test};
    int64_t counts[PARTS] = {0};
    attn_status status = attn__check_choice(all->context, "compat", (int)o->compat, ATTN_COMPAT_D2L);
    for (int p = 0; p < PARTS; p++)
        if (wanted[p])
            *wanted[p] = NULL;
    if (status != ATTN_OK)
        return status;
    if (by.train_examples < 0)
        return attn__fail(all->context, ATTN_ERROR_ARGUMENT, "split: train_examples is %lld; it must not be negative",
                          (long long)by.train_examples);
    if (!(by.valid + by.test < 1))
        return attn__fail(all->context, ATTN_ERROR_ARGUMENT,
                          "split: the shares are %g for validation and %g for test; their sum must be below 1",
                          by.valid, by.test);
    for (int64_t i = 0; i < all->n; i++)
        counts[part_of(&by, all, i)]++;
    for (int p = 0; p < PARTS && status == ATTN_OK; p++)
        if (wanted[p])
            status = attn__pairs_create(wanted[p], all->context, counts[p]);
    for (int64_t i = 0; i < all->n && status == ATTN_OK; i++) {
        attn_pairs **part = wanted[part_of(&by, all, i)];
        if (part)
            attn__pairs_copy(*part, all, i);
    }
    for (int p = 0; p < PARTS && status != ATTN_OK; p++) {
        if (wanted[p]) {
            attn_pairs_destroy(*wanted[p]);
            *wanted[p] = NULL;
        }
    }
    return status;
}

attn_status attn_pairs_slice(attn_pairs **part, const attn_pairs *all, int64_t begin, int64_t end)
{
    ATTN__CALL(all->context);
    *part = NULL;
    if (begin < 0 || end < begin || end > all->n)
        return attn__fail(all->context, ATTN_ERROR_ARGUMENT,
                          "slice: [%" PRId64 ", %" PRId64 ") does not lie in the range of the %" PRId64 " pairs", begin,
                          end, all->n);
    attn_status status = attn__pairs_create(part, all->context, end - begin);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = begin; i < end; i++)
        attn__pairs_copy(*part, all, i);
    return ATTN_OK;
}
