/* SPDX-License-Identifier: MIT
 *
 * beam.h - beam search over several sentences at once, apart from any model: logits in, the next tokens out. */
#ifndef ATTN_MODELS_BEAM_H
#define ATTN_MODELS_BEAM_H

#include "models/shortlist.h"

/* The logits behind one hypothesis; they may be changed. */
typedef struct attn__beam_row {
    char *data;
    int64_t n;
    bool is_double;
    const int32_t *columns, *tokens; /* logit i is that of tokens[columns[i]]; NULL: of columns[i], and of i */
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
    const int64_t *numbers; /* what errors call the sentences; NULL: from 1 */
    int64_t batch, width, max_len;
    int64_t wanted;         /* hypotheses of each sentence */
    bool unscored;          /* log_prob need only be finite */
    int64_t step;           /* tokens so far */
    double *log_prob;       /* [batch,width] of live hypotheses; -inf where there is none */
    int32_t *ids, *old_ids; /* [batch,width,max_len] */
    /* The sentences that the model still works on, `nlive` of them: place i of its batch is sentence live[i]. */
    int64_t *live, nlive;
    int64_t *rows;    /* [nlive,width]: which of the model's rows each hypothesis goes on from */
    int32_t *tokens;  /* [nlive,width]: its newest token */
    void *candidates; /* scratch, [batch] heaps */
    /* The finished hypotheses of each sentence, best first, as many as the beam is wide. */
    double *best_score, *best_log_prob; /* [batch,width] */
    int64_t *best_n;                    /* [batch,width] */
    int32_t *best_ids;                  /* [batch,width,max_len] */
    int64_t *kept, *finished;           /* [batch]: how many there are, and how many ever ended */
    int64_t *cut;                       /* [batch]: how many of those, the last, had reached the greatest length */
    bool *done;
    const attn__shortlist *shortlist; /* whose tokens the logits are of; NULL: of all */
    double *picked;                   /* room for those of each sentence, where they are fewer than the list's */
} attn__beam;

/* `numbers` has one for each sentence and must outlive the beam.  ATTN_ERROR_MEMORY.  A zeroed beam, or one whose
 * creation failed, may be destroyed. */
attn_status attn__beam_create(attn__beam *beam, attn_context *context, int64_t batch, int64_t vocabulary,
                              const attn_beam_search_options *options, const int64_t *numbers);
void attn__beam_destroy(attn__beam *beam);
/* From now on logits are those of the list's tokens.  ATTN_ERROR_MEMORY. */
attn_status attn__beam_limit(attn__beam *beam, const attn__shortlist *shortlist);
/* Takes the logits [nlive*width,V] behind the newest tokens, which it may change; sets rows and tokens.  False: nothing
 * is left to do. */
bool attn__beam_advance(attn__beam *beam, attn_tensor *logits);
/* Removes finished sentences once they are a good part of the model's batch: places[*n] are those that stay, and live
 * and tokens shrink to them.  False: nothing changes. */
bool attn__beam_leave(attn__beam *beam, int64_t *places, int64_t *n);
/* The index of a token's logit; -1: none. */
int64_t attn__beam_place(const attn__beam_row *x, int32_t token);
/* Changes the logits of hypothesis `row` by the options that depend on its tokens so far.  `lse`: what is to be
 * subtracted from logits for log-probabilities. */
void attn__beam_rules(const attn__beam *beam, int64_t row, const attn__beam_row *x, double lse);
/* Takes the banned tokens out of a softmax over these logits. */
void attn__beam_forbid_banned(const attn__beam *beam, const attn__beam_row *x);
/* The best of each sentence: results[batch,nbest]; the finished ones before those cut at max_len.  Where there are
 * fewer, the last are zeros. */
attn_status attn__beam_results(const attn__beam *beam, attn_hypothesis *results);

#endif
