/* SPDX-License-Identifier: MIT
 *
 * beam.h - beam search over several sentences at once. It does not depend on the model: it takes logits, and returns
 * the next tokens.
 */
#ifndef ATTN_MODELS_BEAM_H
#define ATTN_MODELS_BEAM_H

#include "models/shortlist.h"

/* The logits of the next token of one hypothesis. Search options may change the logits. */
typedef struct attn__beam_row {
    char *data;
    int64_t n;
    bool is_double;
    /* token of logit i: tokens[columns[i]]; if `tokens` is NULL, columns[i]; if both are NULL, i */
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
    int64_t batch, width, max_len;
    int64_t wanted;         /* number of hypotheses to return for each sentence */
    bool patient;           /* true: the option `patience` decides when a search ends */
    int64_t enough;         /* number of finished hypotheses with which the search of a sentence ends */
    bool unscored;          /* true: the caller does not need scores, so log_prob may be any finite value */
    int64_t step;           /* number of tokens of each live hypothesis so far */
    double *log_prob;       /* [batch,width]: log-probabilities of the live hypotheses; -inf: there is no hypothesis */
    int32_t *ids, *old_ids; /* [batch,width,max_len] tokens */
    /* live[i] is the sentence at index i of the model's batch. nlive is the number of unfinished sentences. */
    int64_t *live, nlive;
    int64_t *rows;    /* [nlive,width]: row of the model's batch that each hypothesis continues */
    int32_t *tokens;  /* [nlive,width] newest token of each hypothesis */
    void *candidates; /* scratch buffer for [batch,2*width] candidates */
    /* The list of finished hypotheses of each sentence, best first, with at most `width` hypotheses. */
    double *best_score, *best_log_prob; /* [batch,width] */
    int64_t *best_n;                    /* [batch,width] */
    int32_t *best_ids;                  /* [batch,width,max_len] */
    /* kept: [batch] number of finished hypotheses in the list; finished: [batch] number of all hypotheses that
     * finished */
    int64_t *kept, *finished;
    int64_t *cut; /* [batch]: number of hypotheses at the end of the list that were cut at the maximum length */
    bool *done;
    const attn__shortlist *shortlist; /* list of tokens to which the logits belong; NULL: all tokens */
    /* scratch buffer for the logits of a sentence that may use only some tokens of the list */
    double *picked;
} attn__beam;

/* Creates the state of a search over `batch` sentences. `options->sentences` must outlive the beam. ATTN_ERROR_MEMORY:
 * there is no memory. ATTN_ERROR_ARGUMENT: an option is invalid. A beam whose creation failed may be destroyed, and so
 * may a beam whose bytes are all zero. */
attn_status attn__beam_create(attn__beam *beam, attn_context *context, int64_t batch, int64_t vocabulary,
                              const attn_beam_search_options *options);
void attn__beam_destroy(attn__beam *beam);
/* Restricts the search to a list of tokens. The logits of later calls belong to the tokens of this list.
 * ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__beam_limit(attn__beam *beam, const attn__shortlist *shortlist);
/* Advances the search by one token. Reads the logits [nlive*width,V] of the next tokens, which it may change. Sets
 * `rows` and `tokens`. Returns false if all sentences are finished. */
bool attn__beam_advance(attn__beam *beam, attn_tensor *logits);
/* Removes finished sentences from the model's batch if they are a large enough part of it. places[0] to places[*n -
 * 1] get the indices of the sentences that stay in the batch. `live` and `tokens` then hold only these sentences.
 * Returns false if nothing changed. */
bool attn__beam_leave(attn__beam *beam, int64_t *places, int64_t *n);
/* Returns the index of a token's logit in a row, or -1 if the row does not have the token. */
int64_t attn__beam_place(const attn__beam_row *x, int32_t token);
/* Changes the logits `x` of hypothesis `row` by the options that depend on the hypothesis's earlier tokens. `lse` is
 * the log-sum-exp of the logits, so a logit minus `lse` is a log-probability. */
void attn__beam_rules(const attn__beam *beam, int64_t row, const attn__beam_row *x, double lse);
/* Sets the logits of the banned tokens to -inf, so that these tokens are not part of the softmax. */
void attn__beam_forbid_banned(const attn__beam *beam, const attn__beam_row *x);
/* Writes the best hypotheses of each sentence to `results` [batch,nbest]. Finished hypotheses come first, followed
 * by those that were cut at max_len. If there are fewer than nbest hypotheses, the remaining results are zero. */
attn_status attn__beam_results(const attn__beam *beam, attn_hypothesis *results);

#endif
