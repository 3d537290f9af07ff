/* SPDX-License-Identifier: MIT
 *
 * Implements beam search. A step finds the 2 * width likeliest continuations of a sentence's live hypotheses. If a
 * continuation with the end token is among the first `width` of these, it becomes a finished hypothesis. The first
 * `width` continuations without the end token stay live. There are at least `width` of them, because each hypothesis
 * has only one continuation with the end token. With width 1, beam search is greedy search.
 */
#include "models/beam.h"

#include "base/context.h"
#include "base/parallel.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

/* A continuation: the hypothesis in row `row`, followed by the token `token`. */
typedef struct candidate {
    double log_prob;
    int64_t row;
    int32_t token;
} candidate;

static void *zeros(attn_context *context, int64_t a, int64_t b, size_t size)
{
    return attn__alloc_zero(context, attn__size_mul(attn__size_mul((size_t)a, (size_t)b), size));
}

/* Returns the number that error messages use for a sentence. */
static long long number(const attn__beam *beam, int64_t sentence)
{
    const attn_beam_sentence *s = beam->options.sentences;
    return (long long)(s && s[sentence].number ? s[sentence].number : sentence + 1);
}

/* Returns the maximum length of a sentence's hypotheses, in tokens. */
static int64_t limit(const attn__beam *beam, int64_t sentence)
{
    int64_t own = beam->options.sentences ? beam->options.sentences[sentence].max_len : 0;
    return own > 0 && own < beam->max_len ? own : beam->max_len;
}

static attn_status check_prefixes(const attn__beam *beam, int64_t vocabulary)
{
    const attn_beam_search_options *o = &beam->options;
    for (int64_t i = 0; o->sentences && i < beam->batch; i++) {
        const attn_beam_sentence *s = &o->sentences[i];
        if (s->nprefix < 0 || (s->nprefix > 0 && s->nprefix >= limit(beam, i))) {
            return attn__fail(
                beam->context, ATTN_ERROR_ARGUMENT,
                "sentence %lld: its given beginning has %lld tokens; at most %lld fit before the end token",
                number(beam, i), (long long)s->nprefix, (long long)limit(beam, i) - 1);
        }
        for (int64_t j = 0; j < s->nprefix; j++) {
            int32_t token = s->prefix[j];
            if (token < 0 || token >= vocabulary) {
                return attn__fail(beam->context, ATTN_ERROR_ARGUMENT,
                                  "sentence %lld: its given beginning has the token %d, which is not one of the %lld "
                                  "target tokens",
                                  number(beam, i), (int)token, (long long)vocabulary);
            }
            if (token == o->eos) {
                return attn__fail(beam->context, ATTN_ERROR_ARGUMENT,
                                  "sentence %lld: its given beginning contains the end token, %d", number(beam, i),
                                  (int)token);
            }
        }
    }
    return ATTN_OK;
}

static attn_status check_sequences(const attn__beam *beam)
{
    const attn_beam_search_options *o = &beam->options;
    for (int64_t i = 0; i < o->nbanned_sequences; i++)
        if (o->banned_sequences[i].n < 1)
            return attn__fail(beam->context, ATTN_ERROR_ARGUMENT,
                              "banned sequence %lld has %lld tokens; expected 1 or more", (long long)i + 1,
                              (long long)o->banned_sequences[i].n);
    return ATTN_OK;
}

/* Sets the number of finished hypotheses with which a search ends. */
static attn_status set_patience(attn__beam *beam)
{
    double patience = beam->options.patience, most = (double)beam->width * patience;
    if (!(patience >= 0 && isfinite(patience)))
        return attn__fail(beam->context, ATTN_ERROR_ARGUMENT,
                          "the patience of the beam cannot be %g; it must be 0 (the default) or more", patience);
    beam->enough = beam->width;
    beam->patient = beam->width > 1 && patience > 0 && patience != 1;
    if (beam->patient) /* a number that no search reaches is enough */
        beam->enough = most < 1 ? 1 : most < 1e15 ? (int64_t)round(most) : (int64_t)1e15;
    if (beam->enough < beam->wanted)
        return attn__fail(beam->context, ATTN_ERROR_ARGUMENT,
                          "%lld hypotheses are requested, but with the patience %g a beam of %lld finishes only %lld",
                          (long long)beam->wanted, patience, (long long)beam->width, (long long)beam->enough);
    return ATTN_OK;
}

attn_status attn__beam_create(attn__beam *beam, attn_context *context, int64_t batch, int64_t vocabulary,
                              const attn_beam_search_options *options)
{
    int64_t width = options->beam > 1 ? options->beam : 1, n = options->max_len > 0 ? options->max_len : 64;
    *beam = (attn__beam){.context = context,
                         .options = *options,
                         .batch = batch,
                         .width = width,
                         .max_len = n,
                         .unscored = options->unscored && width == 1};
    beam->wanted = options->nbest > 0 ? options->nbest : 1;
    if (beam->wanted > width) {
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%lld hypotheses are requested, but the beam holds only %lld",
                          (long long)beam->wanted, (long long)width);
    }
    attn_status status = attn__check_choice(context, "the rule of lengths", (int)options->rule, ATTN_LENGTH_POWER);
    if (status == ATTN_OK)
        status = attn__check_choice(context, "the rule of stopping", (int)options->stopping, ATTN_STOP_NEVER);
    if (status != ATTN_OK)
        return status;
    if (options->eos < 0 || options->eos >= vocabulary) {
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the end token %d is not one of the %lld target tokens",
                          (int)options->eos, (long long)vocabulary);
    }
    status = check_prefixes(beam, vocabulary);
    if (status == ATTN_OK)
        status = check_sequences(beam);
    if (status == ATTN_OK)
        status = set_patience(beam);
    if (status != ATTN_OK)
        return status;
    int64_t hypotheses = batch * width;
    beam->log_prob = zeros(context, batch, width, sizeof(double));
    beam->ids = zeros(context, hypotheses, n, sizeof(int32_t));
    beam->old_ids = zeros(context, hypotheses, n, sizeof(int32_t));
    beam->rows = zeros(context, batch, width, sizeof(int64_t));
    beam->tokens = zeros(context, batch, width, sizeof(int32_t));
    beam->live = zeros(context, batch, 1, sizeof(int64_t));
    beam->nlive = batch;
    beam->candidates = zeros(context, batch, 2 * width, sizeof(candidate));
    beam->best_score = zeros(context, batch, width, sizeof(double));
    beam->best_log_prob = zeros(context, batch, width, sizeof(double));
    beam->best_n = zeros(context, batch, width, sizeof(int64_t));
    beam->kept = zeros(context, batch, 1, sizeof(int64_t));
    beam->finished = zeros(context, batch, 1, sizeof(int64_t));
    beam->cut = zeros(context, batch, 1, sizeof(int64_t));
    beam->best_ids = zeros(context, hypotheses, n, sizeof(int32_t));
    beam->done = zeros(context, batch, 1, sizeof(bool));
    if (!beam->log_prob || !beam->ids || !beam->old_ids || !beam->rows || !beam->tokens || !beam->live ||
        !beam->candidates || !beam->best_score || !beam->best_log_prob || !beam->best_n || !beam->kept ||
        !beam->finished || !beam->cut || !beam->best_ids || !beam->done)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < hypotheses; i++) {
        beam->tokens[i] = options->bos;
        /* At the start all hypotheses of a sentence are equal, so only the first one is live. */
        beam->log_prob[i] = i % width == 0 ? 0 : -INFINITY;
        beam->live[i / width] = i / width;
    }
    return ATTN_OK;
}

void attn__beam_destroy(attn__beam *beam)
{
    void *all[] = {beam->log_prob, beam->ids,        beam->old_ids,    beam->rows,
                   beam->tokens,   beam->candidates, beam->best_score, beam->best_log_prob,
                   beam->best_n,   beam->finished,   beam->best_ids,   beam->done,
                   beam->kept,     beam->live,       beam->picked,     beam->cut};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        attn__free(beam->context, all[i]);
}

attn_status attn__beam_limit(attn__beam *beam, const attn__shortlist *shortlist)
{
    beam->shortlist = shortlist;
    beam->picked = zeros(beam->context, shortlist->first[beam->batch], 1, sizeof(double));
    return beam->picked ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* Copies the logits of the tokens that this sentence may use to a scratch buffer, in which they are contiguous. */
static attn__beam_row pick(const attn__beam *beam, int64_t sentence, attn__beam_row x)
{
    int64_t first = beam->shortlist->first[sentence], n = beam->shortlist->first[sentence + 1] - first;
    const int32_t *columns = beam->shortlist->columns + first;
    x.tokens = beam->shortlist->tokens;
    if (n == x.n)
        return x;
    double *to = beam->picked + first;
    for (int64_t i = 0; i < n; i++)
        if (x.is_double)
            to[i] = ((const double *)(const void *)x.data)[columns[i]];
        else
            ((float *)to)[i] = ((const float *)(const void *)x.data)[columns[i]];
    return (attn__beam_row){(char *)to, n, x.is_double, columns, x.tokens};
}

static attn__beam_row row_of(const attn__beam *beam, int64_t sentence, attn_tensor *logits, int64_t row)
{
    int64_t n = attn_tensor_length(logits, 1);
    attn_dtype dtype = attn_tensor_dtype(logits);
    char *data = attn_tensor_data(logits);
    attn__beam_row x = {
        .data = data + row * n * (int64_t)attn_dtype_size(dtype), .n = n, .is_double = dtype == ATTN_F64};
    return beam->shortlist ? pick(beam, sentence, x) : x;
}

/* Runs a kernel on the n logits from index `at` on. The kernel computes two values, which are written to *first and
 * *second. */
static void run_on_row(const attn_context *context, const attn__beam_row *x, int64_t at, int64_t n,
                       attn__elementwise_kernel kernel, double *first, double *second)
{
    union {
        float single[2];
        double twice[2];
    } y = {{0}};
    size_t size = x->is_double ? sizeof(double) : sizeof(float);
    attn__elementwise_args args = {
        .x = x->data + (size_t)at * size, .y = &y, .y2 = (char *)&y + size, .n = n, .ids = &(int32_t){0}};
    attn__elementwise_for(x->is_double, context->isa)->run[kernel](&args, 0, 1);
    *first = x->is_double ? y.twice[0] : (double)y.single[0];
    *second = x->is_double ? y.twice[1] : (double)y.single[1];
}

static double log_sum_exp(const attn_context *context, const attn__beam_row *x)
{
    double loss, lse;
    run_on_row(context, x, 0, x->n, ATTN__ELEMENTWISE_CROSS_ENTROPY, &loss, &lse);
    return lse;
}

/* Inserts `c` into `list`, the sorted list of the n likeliest candidates. Equal candidates are kept in the order of
 * insertion. If the list would have more than `room` candidates, the last one is dropped. Returns the new length. */
static int64_t insert(candidate *list, int64_t n, int64_t room, candidate c)
{
    if (n == room && !(c.log_prob > list[n - 1].log_prob))
        return n;
    int64_t at = n < room ? n : n - 1;
    for (; at > 0 && c.log_prob > list[at - 1].log_prob; at--)
        list[at] = list[at - 1];
    list[at] = c;
    return n < room ? n + 1 : n;
}

static bool is_banned(const attn_beam_search_options *options, int32_t token)
{
    for (int64_t i = 0; i < options->nbanned; i++)
        if (options->banned[i] == token)
            return true;
    return false;
}

/* Adds the continuations of one hypothesis to the list of the likeliest candidates. Their log-probabilities are
 * their logits plus `base`. Most logits are too small for the list, so the maximum of each block of logits is
 * compared first. Adds the sum of the logits to *sum, which stays finite only if all logits are finite. */
static int64_t add_logits(const attn__beam *beam, const attn__beam_row *x, int64_t row, double base, candidate *list,
                          int64_t n, double *sum)
{
    enum { BLOCK = 256 };
    int64_t room = 2 * beam->width;
    for (int64_t at = 0; at < x->n; at += BLOCK) {
        int64_t end = at + BLOCK < x->n ? at + BLOCK : x->n;
        double most, part;
        run_on_row(beam->context, x, at, end - at, ATTN__ELEMENTWISE_LARGEST, &most, &part);
        *sum += part;
        if (n == room && !(base + most > list[n - 1].log_prob))
            continue;
        for (int64_t i = at; i < end; i++) {
            double its = attn__beam_logit(x, i), log_prob = base + its;
            if (its == -INFINITY || (n == room && !(log_prob > list[n - 1].log_prob)) ||
                is_banned(&beam->options, attn__beam_token(x, i)))
                continue;
            n = insert(list, n, room, (candidate){log_prob, row, attn__beam_token(x, i)});
        }
    }
    return n;
}

/* Adds the continuations of one hypothesis to the list. If scores are not needed, the logits are compared directly,
 * without computing log-probabilities. This requires that the logits of all steps are finite. */
static int64_t add_row(const attn__beam *beam, const attn__beam_row *x, int64_t row, candidate *list, int64_t n)
{
    double sum = 0;
    bool quick = beam->unscored && isfinite(beam->log_prob[row]);
    double lse = quick ? 0 : log_sum_exp(beam->context, x);
    attn__beam_rules(beam, row, x, beam->width > 1 ? lse : 0);
    if (quick) {
        int64_t found = add_logits(beam, x, row, 0, list, n, &sum);
        if (isfinite(sum))
            return found;
    }
    if (beam->options.renormalize)
        attn__beam_forbid_banned(beam, x);
    if (quick || beam->options.renormalize)
        lse = log_sum_exp(beam->context, x);
    return add_logits(beam, x, row, beam->log_prob[row] - lse, list, n, &sum);
}

static bool is_forced(const attn__beam *beam, int64_t sentence)
{
    return beam->options.sentences && beam->step < beam->options.sentences[sentence].nprefix;
}

/* Returns the value to add to a row's logits so that they become log-probabilities of continuations. Returns 0 if
 * add_row would not compute log-probabilities. */
static double base_of(const attn__beam *beam, const attn__beam_row *x, int64_t row)
{
    double most, sum = NAN;
    if (beam->unscored && isfinite(beam->log_prob[row]))
        run_on_row(beam->context, x, 0, x->n, ATTN__ELEMENTWISE_LARGEST, &most, &sum);
    if (beam->options.renormalize)
        attn__beam_forbid_banned(beam, x);
    return isfinite(sum) ? 0 : beam->log_prob[row] - log_sum_exp(beam->context, x);
}

/* Inside a sentence's forced prefix, only the first hypothesis is live, and it has only one continuation. Writes
 * this continuation to list[0], and returns 1. */
static int64_t follow_prefix(const attn__beam *beam, attn_tensor *logits, int64_t place, candidate *list)
{
    int64_t sentence = beam->live[place], row = sentence * beam->width;
    attn__beam_row x = row_of(beam, sentence, logits, place * beam->width);
    int32_t token = beam->options.sentences[sentence].prefix[beam->step];
    double its = attn__beam_logit(&x, attn__beam_place(&x, token));
    list[0] = (candidate){its + base_of(beam, &x, row), row, token};
    return 1;
}

/* Writes the likeliest continuations of a sentence's live hypotheses to `list`, best first. Returns the number of
 * continuations. `place` is the sentence's index in the model's batch. */
static int64_t find_candidates(const attn__beam *beam, attn_tensor *logits, int64_t place, candidate *list)
{
    int64_t sentence = beam->live[place], n = 0, room = 2 * beam->width;
    if (is_forced(beam, sentence))
        return follow_prefix(beam, logits, place, list);
    for (int64_t row = sentence * beam->width; row < (sentence + 1) * beam->width; row++) {
        if (beam->log_prob[row] == -INFINITY)
            continue;
        if (beam->options.force_end && beam->step + 1 >= limit(beam, sentence)) {
            /* A forced end token does not change the log-probability, as in Hugging Face transformers. */
            n = insert(list, n, room, (candidate){beam->log_prob[row], row, beam->options.eos});
            continue;
        }
        attn__beam_row x = row_of(beam, sentence, logits, row + (place - sentence) * beam->width);
        n = add_row(beam, &x, row, list, n);
    }
    return n;
}

/* Returns the log-probability divided by the length penalty. `length` includes the end token. */
static double penalized(const attn__beam *beam, double log_prob, int64_t length)
{
    if (beam->options.rule == ATTN_LENGTH_POWER)
        return log_prob / pow((double)length, beam->options.length_penalty);
    return log_prob / pow((5 + (double)length) / 6, beam->options.length_penalty);
}

static void move_finished(attn__beam *beam, int64_t to, int64_t from)
{
    beam->best_score[to] = beam->best_score[from];
    beam->best_log_prob[to] = beam->best_log_prob[from];
    beam->best_n[to] = beam->best_n[from];
    memcpy(beam->best_ids + to * beam->max_len, beam->best_ids + from * beam->max_len,
           (size_t)beam->best_n[to] * sizeof *beam->ids);
}

/* Adds a hypothesis to the sentence's finished hypotheses if it is good enough for this list. Equal hypotheses are
 * kept in the order of insertion. A hypothesis that was cut at the maximum length keeps its last token. */
static void finish(attn__beam *beam, int64_t sentence, const candidate *c)
{
    double score = penalized(beam, c->log_prob, beam->step + 1);
    int64_t first = sentence * beam->width, n = beam->kept[sentence];
    bool cut = c->token != beam->options.eos;
    beam->finished[sentence]++;
    if (n == beam->width && !(score > beam->best_score[first + n - 1]))
        return;
    int64_t at = n < beam->width ? n : n - 1;
    for (; at > 0 && score > beam->best_score[first + at - 1]; at--)
        move_finished(beam, first + at, first + at - 1);
    int32_t *ids = beam->best_ids + (first + at) * beam->max_len;
    beam->best_score[first + at] = score;
    beam->best_log_prob[first + at] = c->log_prob;
    beam->best_n[first + at] = beam->step + cut;
    memcpy(ids, beam->old_ids + c->row * beam->max_len, (size_t)beam->step * sizeof *ids);
    if (cut)
        ids[beam->step] = c->token;
    beam->kept[sentence] = n < beam->width ? n + 1 : n;
}

/* Replaces the live hypothesis in row `row` by candidate `c`. `shift` is the index of the sentence's first row in
 * the model's batch, minus the index of its first row in the beam. */
static void live_on(attn__beam *beam, int64_t row, int64_t shift, const candidate *c)
{
    int32_t *ids = beam->ids + row * beam->max_len;
    memcpy(ids, beam->old_ids + c->row * beam->max_len, (size_t)beam->step * sizeof *ids);
    ids[beam->step] = c->token;
    beam->log_prob[row] = c->log_prob;
    beam->rows[row + shift] = c->row + shift;
    beam->tokens[row + shift] = c->token;
}

/* Reports whether a sentence is done under ATTN_LENGTH_POWER. There are two cases: no hypothesis is live, or the
 * list of finished hypotheses is full and no live hypothesis can beat the worst of them. With ATTN_STOP_FULL, a full
 * list is enough. */
static bool power_is_done(const attn__beam *beam, int64_t sentence)
{
    if (beam->kept[sentence] < beam->width)
        return beam->log_prob[sentence * beam->width] == -INFINITY;
    bool longest = beam->options.stopping == ATTN_STOP_NEVER && beam->options.length_penalty > 0;
    double live = beam->log_prob[sentence * beam->width];
    double best = penalized(beam, live, longest ? limit(beam, sentence) : beam->step + 1);
    return beam->options.stopping == ATTN_STOP_FULL || !(best > beam->best_score[(sentence + 1) * beam->width - 1]);
}

/* Reports whether no live hypothesis can beat the finished hypotheses that the caller requested. A live hypothesis
 * is judged by its current log-probability, which can only decrease, and by the length at which the length penalty
 * helps most. */
static bool is_done(const attn__beam *beam, int64_t sentence)
{
    if (beam->options.rule == ATTN_LENGTH_POWER && beam->width > 1 && !beam->patient)
        return power_is_done(beam, sentence);
    double live = beam->log_prob[sentence * beam->width];
    if (live == -INFINITY || beam->finished[sentence] >= beam->enough)
        return true;
    int64_t length = beam->options.length_penalty > 0 ? limit(beam, sentence) : beam->step + 2;
    return beam->kept[sentence] >= beam->wanted &&
           penalized(beam, live, length) <= beam->best_score[sentence * beam->width + beam->wanted - 1];
}

typedef struct advance {
    attn__beam *beam;
    attn_tensor *logits;
} advance;

static void advance_sentence(void *user, int64_t place, int thread)
{
    attn__beam *beam = ((advance *)user)->beam;
    int64_t sentence = beam->live[place], width = beam->width, first = sentence * width, alive = 0;
    int64_t shift = (place - sentence) * width;
    candidate *list = (candidate *)beam->candidates + 2 * first;
    (void)thread;
    int64_t n = beam->done[sentence] ? 0 : find_candidates(beam, ((advance *)user)->logits, place, list);
    bool last = beam->options.rule == ATTN_LENGTH_POWER && beam->step + 1 >= limit(beam, sentence);
    for (int64_t i = 0; i < n; i++)
        if ((list[i].token == beam->options.eos || last) && i < width)
            finish(beam, sentence, &list[i]);
        else if (list[i].token != beam->options.eos && alive < width && !last)
            live_on(beam, first + alive++, shift, &list[i]);
    for (; alive < width && !beam->done[sentence]; alive++) {
        beam->log_prob[first + alive] = -INFINITY;
        beam->rows[first + alive + shift] = first + shift;
        beam->tokens[first + alive + shift] = beam->options.eos;
    }
    for (int64_t i = 0; i < width && beam->done[sentence]; i++) {
        /* The rows of a finished sentence keep their order. They are not used. */
        beam->rows[first + i + shift] = first + i + shift;
    }
}

/* Ends a sentence at its maximum length. Its live hypotheses are added to the list after the finished hypotheses. */
static void cut_off(attn__beam *beam, int64_t sentence)
{
    int64_t first = sentence * beam->width;
    for (int64_t i = 0; beam->kept[sentence] < beam->width && beam->log_prob[first + i] != -INFINITY; i++) {
        int64_t to = first + beam->kept[sentence]++;
        beam->cut[sentence]++;
        beam->best_score[to] = penalized(beam, beam->log_prob[first + i], beam->step);
        beam->best_log_prob[to] = beam->log_prob[first + i];
        beam->best_n[to] = beam->step;
        memcpy(beam->best_ids + to * beam->max_len, beam->ids + (first + i) * beam->max_len,
               (size_t)beam->step * sizeof *beam->ids);
    }
    beam->done[sentence] = true;
}

bool attn__beam_advance(attn__beam *beam, attn_tensor *logits)
{
    bool left = false;
    int32_t *ids = beam->ids;
    beam->ids = beam->old_ids;
    beam->old_ids = ids;
    attn__parallel_items(attn_context_threads(beam->context), beam->nlive, advance_sentence,
                         &(advance){.beam = beam, .logits = logits});
    for (int64_t i = 0; i < beam->batch; i++)
        beam->done[i] = beam->done[i] || is_done(beam, i);
    beam->step++;
    for (int64_t i = 0; i < beam->batch; i++) {
        if (!beam->done[i] && beam->step >= limit(beam, i))
            cut_off(beam, i);
        left = left || !beam->done[i];
    }
    return left;
}

bool attn__beam_leave(attn__beam *beam, int64_t *places, int64_t *n)
{
    *n = 0;
    for (int64_t i = 0; i < beam->nlive; i++)
        if (!beam->done[beam->live[i]])
            places[(*n)++] = i;
    /* Removing sentences copies the caches. It is done only if at least an eighth of the sentences are finished, so
     * that copying costs a small part of a step. */
    if (*n == 0 || beam->nlive - *n < (beam->nlive + 7) / 8)
        return false;
    for (int64_t i = 0; i < *n; i++) {
        beam->live[i] = beam->live[places[i]];
        memcpy(beam->tokens + i * beam->width, beam->tokens + places[i] * beam->width,
               (size_t)beam->width * sizeof *beam->tokens);
    }
    beam->nlive = *n;
    return true;
}

/* Copies a hypothesis to *result. `at` is its index in the list of finished hypotheses, which is followed by the
 * hypotheses cut at the maximum length. */
static attn_status take(const attn__beam *beam, bool finished, int64_t at, attn_hypothesis *result)
{
    *result = (attn_hypothesis){
        .n = beam->best_n[at],
        .log_prob = beam->best_log_prob[at],
        .score = beam->best_score[at],
        .finished = finished,
    };
    size_t size = (size_t)result->n * sizeof *result->ids;
    result->ids = attn__alloc(beam->context, size);
    if (!result->ids)
        return ATTN_ERROR_MEMORY;
    memcpy(result->ids, beam->best_ids + at * beam->max_len, size);
    return ATTN_OK;
}

static attn_status take_sentence(const attn__beam *beam, int64_t sentence, attn_hypothesis *results)
{
    int64_t kept = beam->kept[sentence];
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < beam->wanted && i < kept && status == ATTN_OK; i++)
        status = take(beam, i < kept - beam->cut[sentence], sentence * beam->width + i, &results[i]);
    if (kept == 0)
        results[0].log_prob = beam->log_prob[sentence * beam->width];
    if (beam->unscored && isfinite(results[0].log_prob))
        results[0].log_prob = results[0].score = 0;
    if (status == ATTN_OK && results[0].log_prob == -INFINITY) {
        return attn__fail(
            beam->context, ATTN_ERROR_ARGUMENT,
            "sentence %lld has no translation: all tokens that could follow are banned or have the probability 0",
            number(beam, sentence));
    }
    if (status == ATTN_OK && !isfinite(results[0].log_prob)) {
        return attn__fail(beam->context, ATTN_ERROR_UNSUPPORTED,
                          "the probabilities of sentence %lld are not finite: the weights hold NaN, infinity or "
                          "numbers that are too large",
                          number(beam, sentence));
    }
    return status;
}

attn_status attn__beam_results(const attn__beam *beam, attn_hypothesis *results)
{
    attn_status status = ATTN_OK;
    memset(results, 0, (size_t)(beam->batch * beam->wanted) * sizeof *results);
    for (int64_t i = 0; i < beam->batch && status == ATTN_OK; i++)
        status = take_sentence(beam, i, results + i * beam->wanted);
    if (status != ATTN_OK)
        attn_hypotheses_free(beam->context, results, beam->batch * beam->wanted);
    return status;
}
