/* SPDX-License-Identifier: MIT
 *
 * beam.h - beam search over several sentences at once. It is independent of the model: its input is logits, and its
 * output is the next tokens.
 */
#ifndef ATTN_MODELS_BEAM_H
#define ATTN_MODELS_BEAM_H

#include "models/shortlist.h"

/* The logits of one hypothesis's next token. Search options may change them. */
typedef struct attn__beam_row {
    char *data;
    int64_t n;
    bool is_double;
    /* logit i belongs to tokens[columns[i]]; tokens NULL: to columns[i]; both NULL: to token i */
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
    const int64_t *numbers; /* numbers of the sentences in error messages; NULL: counted from 1 */
    int64_t batch, width, max_len;
    int64_t wanted;         /* number of hypotheses to return for each sentence */
    bool unscored;          /* scores are not needed, so log_prob may be any finite number */
    int64_t step;           /* number of tokens of each live hypothesis so far */
    double *log_prob;       /* [batch,width] log-probabilities of live hypotheses; -inf: no hypothesis */
    int32_t *ids, *old_ids; /* [batch,width,max_len] tokens */
    /* The indices of the `nlive` unfinished sentences. Place i of the model's batch is sentence live[i]. */
    int64_t *live, nlive;
    int64_t *rows;    /* [nlive,width] row of the model that each hypothesis continues */
    int32_t *tokens;  /* [nlive,width] newest token of each hypothesis */
    void *candidates; /* scratch buffer for [batch,2*width] candidates */
    /* The finished hypotheses of each sentence, best first. There are at most `width`. */
    double *best_score, *best_log_prob; /* [batch,width] */
    int64_t *best_n;                    /* [batch,width] */
    int32_t *best_ids;                  /* [batch,width,max_len] */
    /* [batch] number of finished hypotheses in the list; number of hypotheses that ever finished */
    int64_t *kept, *finished;
    int64_t *cut; /* [batch] number of hypotheses at the end of the list that were cut at the maximum length */
    bool *done;
    const attn__shortlist *shortlist; /* list of tokens to which the logits belong; NULL: all tokens */
    /* scratch buffer for the logits of each sentence that uses only part of the list */
    double *picked;
} attn__beam;

/* Creates the state of a search over `batch` sentences. `numbers` has one entry for each sentence and must outlive
 * the beam. ATTN_ERROR_MEMORY: there is no memory. ATTN_ERROR_ARGUMENT: an option is invalid. A zeroed beam, or a
 * beam whose creation failed, may be destroyed. */
attn_status attn__beam_create(attn__beam *beam, attn_context *context, int64_t batch, int64_t vocabulary,
                              const attn_beam_search_options *options, const int64_t *numbers);
void attn__beam_destroy(attn__beam *beam);
/* Limits the search to a list of tokens: from now on, logits belong to the tokens of the list. ATTN_ERROR_MEMORY:
 * there is no memory. */
attn_status attn__beam_limit(attn__beam *beam, const attn__shortlist *shortlist);
/* Takes the logits [nlive*width,V] of the next tokens, which it may change, and sets rows and tokens. Returns false
 * when all sentences are finished. */
bool attn__beam_advance(attn__beam *beam, attn_tensor *logits);
/* Removes finished sentences when they are a large enough part of the model's batch. places[*n] gets the batch
 * places that stay, and live and tokens shrink to these places. Returns false if nothing changed. */
bool attn__beam_leave(attn__beam *beam, int64_t *places, int64_t *n);
/* Returns the index of a token's logit, or -1 if the row has no logit of the token. */
int64_t attn__beam_place(const attn__beam_row *x, int32_t token);
/* Changes the logits of hypothesis `row` by the options that depend on its tokens so far. A logit minus `lse` is a
 * log-probability. */
void attn__beam_rules(const attn__beam *beam, int64_t row, const attn__beam_row *x, double lse);
/* Removes the banned tokens from the softmax of these logits. */
void attn__beam_forbid_banned(const attn__beam *beam, const attn__beam_row *x);
/* Writes the best hypotheses of each sentence to results[batch,nbest]. Finished hypotheses come first, then those
 * cut at max_len. Missing hypotheses are zero. */
attn_status attn__beam_results(const attn__beam *beam, attn_hypothesis *results);

#endif
