/* SPDX-License-Identifier: MIT
 *
 * Fits the contact regression to structures. First computes features from the row attention maps, then fits a logistic
 * regression to the features.
 */
#include "apps/msa/contacts.h"

#include "attn/train.h"
#include "base/context.h"
#include "apps/msa/msa.h"
#include "train/logistic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fitting {
    attn_context *context;
    attn_msa *msa;
    attn_contacts_fit_options options;
    int64_t pairs, features, filled;
    float *x; /* [features,pairs]: inputs of the regression */
    uint8_t *labels;
    double *rows; /* sums of the rows of one map, which the average product correction needs */
} fitting;

static bool counts(const fitting *f, const attn_contact_example *e, int64_t i, int64_t j)
{
    int64_t apart = attn_alignment_number(e->alignment, j) - attn_alignment_number(e->alignment, i);
    return apart >= f->options.min_separation && !isnan(e->distances[i * attn_alignment_columns(e->alignment) + j]);
}

static int64_t count_pairs(const fitting *f, const attn_contact_example *e)
{
    int64_t columns = attn_alignment_columns(e->alignment), n = 0;
    for (int64_t i = 0; i < columns; i++)
        for (int64_t j = i + 1; j < columns; j++)
            n += counts(f, e, i, j);
    return n;
}

/* Computes the sums of the rows of M + M^T. M is an attention map without the row and column of <cls>. Returns the
 * sum of all elements. */
static double sum_map(const fitting *f, const float *map, int64_t columns)
{
    int64_t line = columns + 1;
    double all = 0;
    for (int64_t i = 0; i < columns; i++) {
        f->rows[i] = 0;
        for (int64_t j = 0; j < columns; j++)
            f->rows[i] += (double)map[(i + 1) * line + j + 1] + (double)map[(j + 1) * line + i + 1];
        all += f->rows[i];
    }
    return all;
}

/* Computes one feature for all pairs of residues: M + M^T for an attention map M, with the average product correction
 * (Dunn, Wahl and Gloor 2008, doi:10.1093/bioinformatics/btm604). */
static void fill_feature(const fitting *f, const attn_contact_example *e, const float *map, float *to)
{
    int64_t columns = attn_alignment_columns(e->alignment), line = columns + 1;
    double all = sum_map(f, map, columns);
    for (int64_t i = 0; i < columns; i++) {
        for (int64_t j = i + 1; j < columns; j++) {
            if (!counts(f, e, i, j))
                continue;
            double both = (double)map[(i + 1) * line + j + 1] + (double)map[(j + 1) * line + i + 1];
            *to++ = (float)(all > 0 ? both - f->rows[i] * f->rows[j] / all : 0);
        }
    }
}

static void fill_labels(fitting *f, const attn_contact_example *e)
{
    int64_t columns = attn_alignment_columns(e->alignment);
    uint8_t *to = f->labels + f->filled;
    for (int64_t i = 0; i < columns; i++) {
        for (int64_t j = i + 1; j < columns; j++)
            if (counts(f, e, i, j))
                *to++ = (double)e->distances[i * columns + j] < f->options.cutoff;
    }
}

static attn_status run_example(const fitting *f, const attn_contact_example *e, attn_msa_result *result)
{
    int64_t rows = attn_alignment_rows(e->alignment), columns = attn_alignment_columns(e->alignment) + 1;
    int32_t *tokens =
        attn__alloc(f->context, attn__size_mul(attn__size_mul((size_t)rows, (size_t)columns), sizeof *tokens));
    if (!tokens)
        return ATTN_ERROR_MEMORY;
    attn_alignment_tokens(e->alignment, tokens);
    attn_msa_options options = {.row_maps = true, .memory = f->options.memory};
    attn_status status = attn_msa_run(f->msa, tokens, 1, rows, columns, &options, result);
    attn__free(f->context, tokens);
    return status;
}

static attn_status add_example(fitting *f, const attn_contact_example *e)
{
    attn_msa_result result;
    int64_t columns = attn_alignment_columns(e->alignment), map = (columns + 1) * (columns + 1);
    attn_status status = run_example(f, e, &result);
    if (status != ATTN_OK)
        return status;
    f->rows = attn__alloc(f->context, attn__size_mul((size_t)columns, sizeof *f->rows));
    if (!f->rows)
        return ATTN_ERROR_MEMORY;
    const float *maps = attn_tensor_data(result.row_maps);
    for (int64_t k = 0; k < f->features; k++)
        fill_feature(f, e, maps + k * map, f->x + k * f->pairs + f->filled);
    fill_labels(f, e);
    f->filled += count_pairs(f, e);
    attn__free(f->context, f->rows);
    f->rows = NULL;
    return ATTN_OK;
}

typedef struct scored {
    double score;
    uint8_t label;
} scored;

/* Compares pairs for sorting: by falling score, and contacts last among equal scores. A contact that is tied with
 * other pairs thus does not count as found. */
static int better(const void *left, const void *right)
{
    const scored *a = left, *b = right;
    return a->score != b->score ? (a->score < b->score) - (a->score > b->score) : a->label - b->label;
}

/* Counts how many of the n likeliest pairs are contacts, where n is the number of contacts. */
static attn_status count_found(const fitting *f, const double *w, attn_contacts_fit_result *fitted)
{
    scored *pairs = attn__alloc_zero(f->context, attn__size_mul((size_t)f->pairs, sizeof *pairs));
    if (!pairs)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < f->pairs; i++)
        pairs[i].label = f->labels[i];
    for (int64_t k = 0; k < f->features; k++)
        for (int64_t i = 0; w[k] != 0 && i < f->pairs; i++)
            pairs[i].score += w[k] * (double)f->x[k * f->pairs + i];
    qsort(pairs, (size_t)f->pairs, sizeof *pairs, better);
    for (int64_t i = 0; i < fitted->contacts; i++)
        fitted->found += pairs[i].label;
    attn__free(f->context, pairs);
    return ATTN_OK;
}

static attn_status solve(fitting *f, attn_contacts_fit_result *fitted)
{
    double *w = attn__alloc_zero(f->context, attn__size_mul((size_t)f->features, sizeof *w)), b = 0;
    float *weights = attn__alloc(f->context, attn__size_mul((size_t)f->features, sizeof *weights));
    attn_logistic problem = {
        .rows = f->pairs, .features = f->features, .x = f->x, .labels = f->labels, .c = f->options.c};
    attn_status status =
        w && weights ? attn_logistic_fit(f->context, &problem, w, &b, &fitted->sweeps) : ATTN_ERROR_MEMORY;
    for (int64_t k = 0; status == ATTN_OK && k < f->features; k++) {
        weights[k] = (float)w[k];
        fitted->used += w[k] != 0;
    }
    if (status == ATTN_OK)
        status = count_found(f, w, fitted);
    if (status == ATTN_OK)
        attn_msa_set_regression(f->msa, weights, (float)b);
    attn__free(f->context, weights);
    attn__free(f->context, w);
    return status;
}

static attn_status fit(fitting *f, const attn_contact_example *examples, int64_t n, attn_contacts_fit_result *fitted)
{
    f->x = attn__alloc(f->context, attn__size_mul(attn__size_mul((size_t)f->pairs, (size_t)f->features), sizeof *f->x));
    f->labels = attn__alloc(f->context, (size_t)f->pairs);
    attn_status status = f->x && f->labels ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        if (n > 1) /* a single alignment reports its progress by layers instead, in finer steps */
            status = attn__work_around(f->context, "alignments", i, n);
        if (status == ATTN_OK)
            status = add_example(f, &examples[i]);
    }
    bool all = n > 1 && status == ATTN_OK;
    attn_status told = attn__work_around(f->context, "alignments", n, all ? n : 0);
    status = status == ATTN_OK ? told : status;
    for (int64_t i = 0; i < f->filled; i++)
        fitted->contacts += f->labels[i];
    return status == ATTN_OK ? solve(f, fitted) : status;
}

attn_status attn_contacts_fit(attn_msa *msa, const attn_contact_example *examples, int64_t n,
                              const attn_contacts_fit_options *options, attn_contacts_fit_result *fitted)
{
    const attn_config *config = attn_model_config(attn_msa_model(msa));
    fitting f = {.context = attn_model_context(attn_msa_model(msa)), .msa = msa};
    ATTN__CALL(f.context);
    f.options = options ? *options : (attn_contacts_fit_options){0};
    f.options.min_separation = f.options.min_separation > 0 ? f.options.min_separation : 6;
    f.options.cutoff = f.options.cutoff > 0 ? f.options.cutoff : 8;
    f.options.c = f.options.c > 0 ? f.options.c : 0.15;
    f.features = attn_config_int(config, "layers", 0) * attn_config_int(config, "attention_heads", 0);
    for (int64_t i = 0; i < n; i++)
        f.pairs += count_pairs(&f, &examples[i]);
    *fitted = (attn_contacts_fit_result){.pairs = f.pairs, .features = f.features};
    if (f.pairs == 0)
        return attn__fail(
            f.context, ATTN_ERROR_ARGUMENT,
            "none of the %lld examples has two resolved residues at least %lld apart; the fit of contacts needs "
            "such pairs",
            (long long)n, (long long)f.options.min_separation);
    attn_status status = fit(&f, examples, n, fitted);
    attn__free(f.context, f.rows);
    attn__free(f.context, f.labels);
    attn__free(f.context, f.x);
    return status;
}
