/* SPDX-License-Identifier: MIT */
#include "attend/block/pair.h"

#include "attend/block/items.h"
#include "attend/block/scores.h"
#include "attend/scores/score.h"
#include "base/context.h"

#include <math.h>

enum { CONTRACT_ROWS = 8, VALUE_ROWS = 3 };

static size_t table_doubles(const attn__canonical *canonical)
{
    size_t n = 0;
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        n = attn__size_add(n, (size_t)attn__table_channels(canonical, i)->size);
    return n;
}

size_t attn__pair_size(const attn__canonical *canonical)
{
    size_t n = attn__size_mul(CONTRACT_ROWS, (size_t)canonical->contract.size);
    n = attn__size_add(n, attn__size_mul(VALUE_ROWS, (size_t)canonical->value.size));
    n = attn__size_mul(attn__size_add(n, table_doubles(canonical)), sizeof(double));
    return attn__size_add(n, attn__largest_bytes(canonical->problem.top_k));
}

static double *take(double **memory, int64_t n)
{
    double *row = *memory;
    *memory += n;
    return row;
}

static void lay_out(attn__pair *pair, double *memory)
{
    double **const contract[] = {&pair->qs,  &pair->ks,  &pair->ws,  &pair->w2s,
                                 &pair->dqs, &pair->dks, &pair->dws, &pair->dw2s};
    double **const value[] = {&pair->vs, &pair->sum, &pair->douts};
    for (int i = 0; i < CONTRACT_ROWS; i++)
        *contract[i] = take(&memory, pair->canonical->contract.size);
    for (int i = 0; i < VALUE_ROWS; i++)
        *value[i] = take(&memory, pair->canonical->value.size);
    for (int i = 0; i < pair->canonical->problem.nrelatives; i++)
        pair->table_row[i] = take(&memory, attn__table_channels(pair->canonical, i)->size);
    pair->largest = attn__largest_start(memory, pair->canonical->problem.top_k);
    pair->rows = (attn__score_rows){.n = pair->canonical->contract.size,
                                    .q = pair->qs,
                                    .k = pair->ks,
                                    .w = pair->ws,
                                    .w2 = pair->w2s,
                                    .width = pair->canonical->problem.width};
}

void attn__pair_start(attn__pair *pair, const attn__canonical *canonical, const attn__execution *arrays, void *memory)
{
    attn_dtype dtype = canonical->problem.dtype;
    pair->canonical = canonical;
    pair->arrays = arrays;
    pair->dtype = dtype;
    pair->keys = attn__operand_dtype(&canonical->problem, ATTN__OP_K);
    pair->side = dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    lay_out(pair, memory);
}

static bool reads_q_and_k(const attn__canonical *canonical)
{
    bool reads = !attn__score_of(&canonical->problem)->blind;
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        reads = reads || canonical->problem.relatives[i].kind != ATTN_RELATIVE_VALUE;
    return reads;
}

static double table_terms(attn__pair *pair, const attn__spot *spot)
{
    const attn_problem *p = &pair->canonical->problem;
    double sum = 0;
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            continue;
        attn__table_gather(pair->canonical, i, pair->arrays->at.table[i], spot->table[i], pair->table_row[i]);
        const double *with = p->relatives[i].kind == ATTN_RELATIVE_QUERY ? pair->qs : pair->ks;
        for (int64_t c = 0; c < pair->canonical->contract.size; c++)
            sum += with[c] * pair->table_row[i][c];
    }
    return sum;
}

static double capped(attn__pair *pair, double score)
{
    double cap = pair->canonical->problem.softcap;
    pair->slope = 1;
    if (cap == 0)
        return score;
    double t = tanh(score / cap);
    pair->slope = 1 - t * t;
    return cap * t;
}

/* Computes the score of a key without top_k, which masks a key only after all scores were compared. */
static double own_score(attn__pair *pair, const attn__spot *spot)
{
    const attn__canonical *canonical = pair->canonical;
    if (spot->outside)
        memset(pair->ks, 0, (size_t)canonical->contract.size * sizeof *pair->ks);
    else if (reads_q_and_k(canonical))
        attn__gather(&canonical->contract, ATTN__OP_K, pair->keys, pair->arrays->at.k, spot->offset[ATTN__OP_K],
                     pair->ks);
    double sum = attn__score_of(&canonical->problem)->value(&pair->rows) + table_terms(pair, spot);
    double score = capped(pair, canonical->problem.scale * sum);
    if (canonical->has_bias)
        score += attn__load(pair->side, pair->arrays->at.bias, spot->offset[ATTN__OP_BIAS]);
    return score;
}

double attn__pair_score(attn__pair *pair, attn__spot *spot)
{
    double fill = pair->canonical->problem.mask_fill, score = fill;
    if (spot->kind != ATTN__SPOT_FILL)
        score = own_score(pair, spot);
    if (spot->kind == ATTN__SPOT_FILL || !(pair->canonical->extras & ATTN__TOP_K) || score == (double)-INFINITY ||
        attn__largest_takes(&pair->largest, score, spot->key))
        return score;
    spot->kind = fill != 0 ? ATTN__SPOT_FILL : ATTN__SPOT_OUT;
    return fill != 0 ? fill : (double)-INFINITY;
}

static void find_largest(attn__pair *pair, const attn__row *row)
{
    attn__spot spot;
    pair->largest = attn__largest_start(pair->largest.score, pair->largest.k);
    for (int64_t key = 0; key < pair->canonical->key.size; key++) {
        attn__spot_at(&spot, row, key);
        if (spot.kind == ATTN__SPOT_KEY)
            attn__largest_add(&pair->largest, own_score(pair, &spot), key);
    }
    attn__largest_end(&pair->largest);
}

void attn__pair_value(attn__pair *pair, const attn__spot *spot)
{
    const attn__canonical *canonical = pair->canonical;
    const attn_problem *p = &canonical->problem;
    if (spot->outside)
        memset(pair->vs, 0, (size_t)canonical->value.size * sizeof *pair->vs);
    else
        attn__gather(&canonical->value, ATTN__OP_V, pair->keys, pair->arrays->at.v, spot->offset[ATTN__OP_V], pair->vs);
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind != ATTN_RELATIVE_VALUE)
            continue;
        attn__table_gather(canonical, i, pair->arrays->at.table[i], spot->table[i], pair->table_row[i]);
        for (int64_t c = 0; c < canonical->value.size; c++)
            pair->vs[c] += pair->table_row[i][c];
    }
}

static attn__normalizer normalizer_from_scores(attn__pair *pair, const attn__row *row)
{
    double max = (double)-INFINITY, sum = 0;
    attn__spot spot;
    for (int64_t key = 0; key < pair->canonical->key.size; key++) {
        attn__spot_at(&spot, row, key);
        double score = spot.kind == ATTN__SPOT_OUT ? (double)-INFINITY : attn__pair_score(pair, &spot);
        if (score == (double)-INFINITY)
            continue;
        if (sum == 0 || !(score <= max)) {
            sum *= sum == 0 ? 0 : exp(max - score);
            max = score;
        }
        sum += exp(score - max);
    }
    return (attn__normalizer){max, sum == 0 ? 0 : log(sum), 0};
}

static int64_t keys_of(const attn__row *row)
{
    const attn__canonical *canonical = row->canonical;
    if (!attn__is_packed(canonical))
        return canonical->key.size;
    int64_t longest = canonical->key.axis[canonical->problem.packed.key_dim].dim.n;
    return longest > 0 ? canonical->key.size / longest * row->keys : 0;
}

void attn__pair_row(attn__pair *pair, const attn__row *row, attn__normalizer *normalizer)
{
    const attn__canonical *canonical = pair->canonical;
    const attn__group *contract = &canonical->contract;
    if (reads_q_and_k(canonical))
        attn__gather(contract, ATTN__OP_Q, pair->dtype, pair->arrays->at.q, row->offset[ATTN__OP_Q], pair->qs);
    if (attn__score_of(&canonical->problem)->vectors > 0)
        attn__gather(contract, ATTN__OP_W, pair->side, pair->arrays->at.w, row->offset[ATTN__OP_W], pair->ws);
    if (attn__score_of(&canonical->problem)->vectors > 1)
        attn__gather(contract, ATTN__OP_W, pair->side, pair->arrays->at.w2, row->offset[ATTN__OP_W], pair->w2s);
    if (canonical->extras & ATTN__TOP_K)
        find_largest(pair, row);
    if (normalizer && canonical->problem.normalization == ATTN_NORMALIZATION_SIGMOID)
        *normalizer = (attn__normalizer){.sigmoid_bias = attn__sigmoid_bias(&canonical->problem, keys_of(row))};
    else if (normalizer && canonical->problem.mask_fill != 0)
        *normalizer = normalizer_from_scores(pair, row);
    else if (normalizer)
        *normalizer = (attn__normalizer){attn__load(pair->side, pair->arrays->at.lse, row->offset[ATTN__OP_LSE]), 0, 0};
}

double attn__row_weight(const attn__row *row, const attn__normalizer *normalizer, double score)
{
    attn_normalization normalization = row->canonical->problem.normalization;
    if (normalization == ATTN_NORMALIZATION_HARDMAX)
        return normalizer->max != normalizer->max ? normalizer->max : 1;
    if (normalization == ATTN_NORMALIZATION_SIGMOID)
        return attn__sigmoid(score + normalizer->sigmoid_bias);
    if (normalization == ATTN_NORMALIZATION_SOFTMAX)
        return exp(attn__log_weight(score - normalizer->max - normalizer->log_sum));
    return score * exp(-normalizer->max - normalizer->log_sum);
}
