/* SPDX-License-Identifier: MIT
 *
 * beam.h - beam search over several sentences at once, independent of the model: its input is logits, its output the
 * next tokens. */
#ifndef ATTN_MODELS_BEAM_H
#define ATTN_MODELS_BEAM_H

#include "models/shortlist.h"

/* The logits after one hypothesis; they may be changed. */
typedef struct attn__beam_row {
    char *data;
    int64_t n;
    bool is_double;
    /* logit i belongs to token tokens[columns[i]]; tokens NULL: to columns[i]; both NULL: to i */
    const int32_t *columns, *tokens;
} attn__beam_row;

static inline int32_t attn__beam_token(const attn__beam_row *x, int64_t i)
{
    int32_t column = x->columns ? x->columns[i] : (int32_t)i;
    return x->tokens ? x->tokens[column] : column;
}

static inline double attn__beam_logit(const attn__beam_row *x, int64_t i)
{
    return x->is_double ? ((const double *)(const void *)x->data)[i]
                        : (double)((const float *)(const void *)x->data)[i];
}

typedef struct attn__beam {
    attn_context *context;
    attn_beam_search_options options;
    const int64_t *numbers; /* numbers of the sentences in errors; NULL: from 1 */
    int64_t batch, width, max_len;
    int64_t wanted;         /* number of hypotheses of each sentence */
    bool unscored;          /* log_prob may be any finite number */
    int64_t step;           /* number of tokens so far */
    double *log_prob;       /* [batch,width] log-probabilities of live hypotheses; -inf: no hypothesis */
    int32_t *ids, *old_ids; /* [batch,width,max_len] tokens */
    /* The unfinished sentences, `nlive` of them: place i of the model's batch is sentence live[i]. */
    int64_t *live, nlive;
    int64_t *rows;    /* [nlive,width]: the row of the model that each hypothesis continues */
    int32_t *tokens;  /* [nlive,width]: the newest token of each hypothesis */
    void *candidates; /* scratch, [batch] heaps */
    /* The finished hypotheses of each sentence, best first, at most `width`. */
    double *best_score, *best_log_prob; /* [batch,width] */
    int64_t *best_n;                    /* [batch,width] */
    int32_t *best_ids;                  /* [batch,width,max_len] */
    /* [batch]: number of finished hypotheses in the list, and number that ever finished */
    int64_t *kept, *finished;
    int64_t *cut; /* [batch]: number of the last of these that reached the maximum length */
    bool *done;
    const attn__shortlist *shortlist; /* list of tokens that the logits belong to; NULL: all tokens */
    double *picked;                   /* scratch for the logits of each sentence that uses only part of the list */
} attn__beam;

/* `numbers` has one entry for each sentence and must outlive the beam. ATTN_ERROR_MEMORY. A zeroed beam, or one whose
 * creation failed, may be destroyed. */
attn_status attn__beam_create(attn__beam *beam, attn_context *context, int64_t batch, int64_t vocabulary,
                              const attn_beam_search_options *options, const int64_t *numbers);
void attn__beam_destroy(attn__beam *beam);
/* From now on logits belong to the tokens of the list. ATTN_ERROR_MEMORY. */
attn_status attn__beam_limit(attn__beam *beam, const attn__shortlist *shortlist);
/* Takes the logits [nlive*width,V] after the newest tokens, which it may change; sets rows and tokens. False: all
 * sentences are finished. */
bool attn__beam_advance(attn__beam *beam, attn_tensor *logits);
/* Removes finished sentences when they are a large enough part of the model's batch. places[*n] are the places that
 * stay, and live and tokens shrink to them. False: nothing changed. */
bool attn__beam_leave(attn__beam *beam, int64_t *places, int64_t *n);
/* The index of a token's logit; -1: the row has no logit of the token. */
int64_t attn__beam_place(const attn__beam_row *x, int32_t token);
/* Changes the logits of hypothesis `row` by the options that depend on its tokens so far. Logits minus `lse` are
 * log-probabilities. */
void attn__beam_rules(const attn__beam *beam, int64_t row, const attn__beam_row *x, double lse);
/* Removes the banned tokens from a softmax over these logits. */
void attn__beam_forbid_banned(const attn__beam *beam, const attn__beam_row *x);
/* The best hypotheses of each sentence, results[batch,nbest]: finished ones first, then those cut at max_len. Missing
 * ones are zero. */
attn_status attn__beam_results(const attn__beam *beam, attn_hypothesis *results);

#endif
