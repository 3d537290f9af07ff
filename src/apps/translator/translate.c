/* SPDX-License-Identifier: MIT
 *
 * Translates lines on several threads. Lines of similar length are translated together in a batch. The results are in
 * the order of the lines.
 */
#include "apps/translator/lines.h"
#include "apps/translator/mbr.h"

#include "base/context.h"
#include "base/parallel.h"
#include "base/system.h"
#include "models/kind.h"
#include "tensor/packed_weights.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------- decoding */

attn_status attn__translation_make(const attn_translator *t, const attn_hypothesis *hypothesis,
                                   attn_translation *result)
{
    size_t size = attn_vocab_decode(t->target, hypothesis->ids, hypothesis->n, NULL, 0) + 1;
    result->tokens = attn__alloc(t->context, size);
    if (!result->tokens)
        return ATTN_ERROR_MEMORY;
    attn_vocab_decode(t->target, hypothesis->ids, hypothesis->n, result->tokens, size);
    result->score = hypothesis->score;
    /* without scores log_prob is 0 */
    result->doubtful = hypothesis->log_prob < t->low_score * (double)(hypothesis->n + hypothesis->finished);
    return attn__detokenized(t, result->tokens, &result->text);
}

static attn_status finish_empty(const attn_translator *t, bool aligned, attn_translation *result)
{
    result->tokens = attn__strdup(t->context, "");
    result->text = attn__strdup(t->context, "");
    result->alignment = aligned ? attn__strdup(t->context, "") : NULL;
    return result->tokens && result->text && (result->alignment || !aligned) ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* Returns the number of hypotheses per sentence that the search must find. */
static int64_t searched(const attn_translator_options *options)
{
    return options->mbr ? options->beam : options->nbest;
}

static attn_beam_search_options decoding_options(const attn_translator *t, const attn__resolved *how)
{
    const attn_translator_options *options = &how->options;
    return (attn_beam_search_options){
        .bos = attn_vocab_special(t->target, ATTN_SPECIAL_BOS),
        .eos = attn_vocab_special(t->target, ATTN_SPECIAL_EOS),
        .beam = options->beam,
        .nbest = searched(options),
        .length_penalty = options->length_penalty,
        .first_position = t->compat == ATTN_COMPAT_D2L,
        .rule = t->search.rule,
        .stopping = t->search.stopping,
        .force_end = t->search.force_end,
        .nbanned = options->nsuppressed,
        .banned = options->suppressed,
        .renormalize = t->search.renormalize,
        .no_repeat_ngram = options->no_repeat_ngram,
        .repetition_penalty = options->repetition_penalty,
        .min_len = options->min_len,
        .unscored = options->unscored,
        .banned_sequences = how->sequences,
        .nbanned_sequences = how->nsequences,
        .patience = options->patience,
    };
}

/* Puts the ids of a batch on the tape, with padding. */
static attn_status stack(const attn_translator *t, attn_tape *tape, const attn__sentence *batch, int64_t n,
                         attn_tensor **source, attn_tensor **lens)
{
    int64_t columns = 1;
    for (int64_t i = 0; i < n; i++)
        columns = batch[i].n > columns ? batch[i].n : columns;
    columns = attn__source_columns(t, columns);
    *source = attn__ids_on_tape(tape, n, columns, NULL);
    *lens = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){n}, NULL);
    if (!*source || !*lens)
        return ATTN_ERROR_MEMORY;
    int32_t *ids = attn_tensor_data(*source), *lengths = attn_tensor_data(*lens);
    for (int64_t i = 0; i < n; i++) {
        attn__source_put(t, batch[i].ids, batch[i].n, columns, ids + i * columns);
        lengths[i] = (int32_t)batch[i].n;
    }
    return ATTN_OK;
}

/* The two tapes of a call. One holds the sources. The model runs on the other one, which keeps packed weights during
 * the call. */
typedef struct tapes {
    attn_tape *sources, *model;
} tapes;

typedef struct batch_of {
    /* the caller's translator, which owns the results; it differs from the translator of a thread */
    const attn_translator *owner;
    const attn__sentence *sentences;
    int64_t n;
    attn_beam_sentence *limits; /* what the search of each sentence keeps to */
} batch_of;

/* Translates a batch by beam search and fills `hypotheses`. */
static attn_status search(const attn_translator *t, const tapes *on, const batch_of *batch, const attn__resolved *how,
                          attn_hypothesis *hypotheses)
{
    attn_tensor *source, *lens;
    attn_beam_search_options decoding = decoding_options(t, how);
    for (int64_t i = 0; i < batch->n; i++) {
        const attn__sentence *s = &batch->sentences[i];
        batch->limits[i] = (attn_beam_sentence){.max_len = s->most,
                                                .prefix = s->prefix,
                                                .nprefix = s->nprefix,
                                                .allowed = s->allowed,
                                                .nallowed = s->nallowed,
                                                .number = s->line + 1};
        decoding.max_len = s->most > decoding.max_len ? s->most : decoding.max_len;
    }
    decoding.sentences = batch->limits;
    attn_tape_reset(on->sources, NULL);
    attn_status status = stack(t, on->sources, batch->sentences, batch->n, &source, &lens);
    return status == ATTN_OK ? attn__seq2seq_search(t->model, on->model, source, lens, &decoding, hypotheses) : status;
}

static attn_status align(const attn_translator *t, const tapes *on, const batch_of *batch, int64_t each,
                         const attn_hypothesis *hypotheses, attn_translation *results)
{
    int64_t count = 0;
    attn__aligned *aligned = attn__alloc(t->context, attn__size_mul((size_t)(batch->n * each), sizeof *aligned));
    attn_status status = aligned ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < batch->n * each && status == ATTN_OK; i++) {
        const attn__sentence *s = &batch->sentences[i / each];
        char **alignment = &results[s->line * each + i % each].alignment;
        if (hypotheses[i].ids && hypotheses[i].n > 0)
            aligned[count++] = (attn__aligned){.source = s->ids,
                                               .nsource = s->n,
                                               .ntokens = s->ntokens,
                                               .words = s->words,
                                               .said = hypotheses[i].ids,
                                               .nsaid = hypotheses[i].n,
                                               .owner = batch->owner->context,
                                               .alignment = alignment};
        else if (hypotheses[i].ids && !(*alignment = attn__strdup(batch->owner->context, "")))
            status = ATTN_ERROR_MEMORY;
    }
    if (status == ATTN_OK)
        status = attn__translator_align(t, on->model, aligned, count);
    attn__free(t->context, aligned);
    return status;
}

/* Ranks the hypotheses of each of n sentences by minimum Bayes risk, and keeps the best options->nbest. The kept
 * hypotheses are moved together: those of sentence i begin at index i * options->nbest. */
static attn_status choose(const attn_translator *t, int64_t n, const attn_translator_options *options,
                          attn_hypothesis *hypotheses)
{
    int64_t each = searched(options), keep = options->nbest;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = attn__translator_rank(t, hypotheses + i * each, each, keep);
    for (int64_t i = 1; i < n && status == ATTN_OK; i++)
        memmove(hypotheses + i * keep, hypotheses + i * each, (size_t)keep * sizeof *hypotheses);
    if (status != ATTN_OK)
        attn_hypotheses_free(t->context, hypotheses, n * each);
    return status;
}

/* The end token belongs to the translation, unless the translation was cut. */
static attn_status keep_tokens(const attn_translator *t, const attn__sentence *s, const attn_hypothesis *said,
                               attn__attended *attended)
{
    attended->source = attn__alloc(t->context, attn__size_mul((size_t)s->n, sizeof *s->ids));
    attended->said = attn__alloc(t->context, attn__size_mul((size_t)said->n + 1, sizeof *said->ids));
    if (!attended->source || !attended->said)
        return ATTN_ERROR_MEMORY;
    memcpy(attended->source, s->ids, (size_t)s->n * sizeof *s->ids);
    for (int64_t i = 0; said->ids && i < said->n; i++)
        attended->said[i] = said->ids[i];
    attended->said[said->n] = attn_vocab_special(t->target, ATTN_SPECIAL_EOS);
    attended->nsource = s->n;
    attended->nsaid = said->n + (said->n < s->most);
    return ATTN_OK;
}

/* Searches a batch, keeps its best hypotheses, and writes their texts and alignments to the results. */
static attn_status finish_batch(const attn_translator *t, const tapes *on, const batch_of *batch,
                                const attn__resolved *how, attn_hypothesis *hypotheses, attn_translation *results,
                                attn__attended *attended)
{
    const attn_translator_options *options = &how->options;
    attn_status status = search(t, on, batch, how, hypotheses);
    if (status == ATTN_OK && options->mbr)
        status = choose(t, batch->n, options, hypotheses);
    if (status != ATTN_OK)
        return status;
    int64_t each = options->nbest, n = batch->n * each;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        attn_translation *of_line = &results[batch->sentences[i / each].line * each];
        if (hypotheses[i].ids)
            status = attn__translation_make(batch->owner, &hypotheses[i], &of_line[i % each]);
        of_line[i % each].doubtful |= of_line->unknown > 0;
    }
    if (status == ATTN_OK && options->alignments)
        status = align(t, on, batch, each, hypotheses, results);
    if (status == ATTN_OK && attended)
        status = keep_tokens(batch->owner, &batch->sentences[0], &hypotheses[0], attended);
    attn_hypotheses_free(t->context, hypotheses, n);
    return status;
}

/* ----------------------------------------------------------------------------------------------- lines */

static int longer_first(const void *a, const void *b)
{
    const attn__sentence *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return (x->line > y->line) - (x->line < y->line);
}

/* The sentences of a call, divided into batches, and the arrays for their results. Batches with the longest
 * sentences come first. */
typedef struct batches {
    const attn_translator *t;
    const attn__sentence *sentences;
    int64_t n, size; /* n: number of sentences that are not empty; size: maximum number of sentences in a batch */
    const attn__resolved *how;
    attn_translation *results;
    attn__attended *attended; /* gets the tokens of the only sentence, unless it is NULL */
    attn_tape *weights;       /* tape that keeps packed weights for all threads */
    struct worker *workers;
    atomic_int_least64_t done; /* number of sentences that are finished */
    atomic_bool failed;        /* true: a batch failed, so no further batch is started */
} batches;

/* A translator for another thread, made with attn__model_view. `translator` shares all data with the original and is
 * not destroyed. The struct must not be moved, because it contains a pointer to its own model. */
typedef struct view {
    attn_translator translator;
    attn_model model;
} view;

static void make_view(view *made, const attn_translator *of, attn_context *context)
{
    *made = (view){.translator = *of, .model = attn__model_view(of->model, context)};
    made->translator.context = context;
    made->translator.model = &made->model;
}

/* A thread that translates whole batches. Its translator has a context of its own and the same parameters. */
typedef struct worker {
    attn_context *context;    /* context of this thread; NULL: the thread uses the caller's context */
    const attn_translator *t; /* the translator that this thread uses: the caller's, or the one in `own` */
    view own;
    tapes on;
    batch_of batch;
    attn_hypothesis *hypotheses;
    attn_status status;
} worker;

/* All threads then use the same plans. */
static attn_status share_wisdom(const attn_context *from, attn_context *to)
{
    size_t size = attn_wisdom_export(from, NULL, 0) + 1;
    char *text = attn__alloc(to, size);
    attn_status status = text ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (text && attn_wisdom_export(from, text, size) > 0)
        status = attn_wisdom_import(to, text);
    attn__free(to, text);
    return status;
}

static attn_status begin_context(worker *w, const attn_context *like)
{
    attn_context_options options = {.allocator = like->allocator,
                                    .threads = 1,
                                    .isa = attn_context_isa(like),
                                    .precision = like->precision,
                                    .batch_invariant = like->batch_invariant};
    attn_status status = attn_context_create(&w->context, &options);
    if (status == ATTN_OK)
        status = share_wisdom(like, w->context);
    if (status != ATTN_OK)
        return status;
    make_view(&w->own, w->t, w->context);
    w->t = &w->own.translator;
    return ATTN_OK;
}

static attn_status begin_worker(worker *w, const batches *all, bool alone)
{
    size_t size = (size_t)all->size;
    w->t = all->t;
    w->status = alone ? ATTN_OK : begin_context(w, all->t->context);
    if (w->status != ATTN_OK)
        return w->status;
    attn_context *context = w->t->context;
    w->hypotheses =
        attn__alloc_zero(context, attn__size_mul(size * (size_t)searched(&all->how->options), sizeof *w->hypotheses));
    w->batch =
        (batch_of){.owner = all->t, .limits = attn__alloc(context, attn__size_mul(size, sizeof *w->batch.limits))};
    w->status = w->hypotheses && w->batch.limits ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (w->status == ATTN_OK)
        w->status = attn_tape_create(&w->on.sources, context);
    if (w->status == ATTN_OK)
        w->status = attn_tape_create(&w->on.model, context);
    if (w->status == ATTN_OK)
        attn__packed_weights_share(w->on.model, all->weights);
    return w->status;
}

static void end_worker(worker *w)
{
    if (w->on.model)
        attn__packed_weights_end(w->on.model);
    attn_tape_destroy(w->on.model);
    attn_tape_destroy(w->on.sources);
    if (w->t) {
        attn__free(w->t->context, w->batch.limits);
        attn__free(w->t->context, w->hypotheses);
    }
    if (w->context)
        attn_context_destroy(w->context);
}

/* Runs the batch `item` of a call on the worker of this thread. */
static void run_worker_item(void *user, int64_t item, int thread)
{
    batches *all = user;
    worker *w = &all->workers[thread];
    int64_t at = item * all->size, left = all->n - at;
    if (atomic_load(&all->failed))
        return;
    ATTN__CALL(w->t->context); /* the call is the outermost one if the worker has a context of its own */
    w->batch.sentences = all->sentences + at;
    w->batch.n = left < all->size ? left : all->size;
    w->status = finish_batch(w->t, &w->on, &w->batch, all->how, w->hypotheses, all->results, all->attended);
    int64_t done = atomic_fetch_add(&all->done, w->batch.n) + w->batch.n;
    if (thread == 0 && w->status == ATTN_OK)
        w->status = attn__work(all->t->context, "sentences", done, all->n);
    if (w->status != ATTN_OK)
        atomic_store(&all->failed, true);
}

/* Returns the first error of the threads, and copies its message to the caller's context. If there is a single
 * thread, it uses the caller's context, so the message need not be copied. */
static attn_status first_error(const batches *all, int threads, bool alone)
{
    for (int i = 0; i < threads; i++) {
        const worker *w = &all->workers[i];
        if (w->status != ATTN_OK && alone)
            return w->status;
        if (w->status != ATTN_OK)
            return attn__fail(all->t->context, w->status, "%s",
                              w->context ? attn_context_error(w->context) : attn_status_text(w->status));
    }
    return ATTN_OK;
}

/* Runs the batches. If `alone` is true, they run one after the other, and each of them uses all threads of the
 * context. `alone` is true if there is only one batch or one thread. Otherwise, each thread runs whole batches. */
static void run_batches(batches *all, int64_t count, int threads, bool alone)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < threads && status == ATTN_OK; i++)
        status = begin_worker(&all->workers[i], all, alone);
    for (int64_t i = 0; i < count && status == ATTN_OK && alone; i++) {
        run_worker_item(all, i, 0);
        status = all->workers[0].status;
    }
    if (status == ATTN_OK && !alone)
        attn__parallel_items(threads, count, run_worker_item, all);
}

/* Creates a tape that keeps packed weights. */
static attn_status pack_begin(attn_tape **weights, attn_context *context)
{
    attn_status status = attn_tape_create(weights, context);
    return status == ATTN_OK ? attn__packed_weights_begin(*weights) : status;
}

static void pack_end(attn_tape *weights)
{
    if (weights)
        attn__packed_weights_end(weights);
    attn_tape_destroy(weights);
}

attn_status attn_translator_pack_weights(attn_translator *translator)
{
    attn_status status = attn_model_pack_weights(translator->model);
    /* the memory of the original weights is returned to the system before translations allocate memory */
    attn__system_trim();
    return status;
}

/* Runs the batches, if possible on several threads. How sentences are divided into batches does not depend on
 * the number of threads. So the results have the same bits for any number of threads. */
static attn_status run_on_workers(batches *all)
{
    attn_context *context = all->t->context;
    int64_t count = (all->n + all->size - 1) / all->size;
    int threads = attn_context_threads(context);
    threads = threads < count ? threads : (int)count;
    bool alone = threads < 2;
    threads = alone ? 1 : threads;
    all->workers = attn__alloc_zero(context, (size_t)threads * sizeof *all->workers);
    attn_status status = all->workers ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = pack_begin(&all->weights, context);
    if (status == ATTN_OK) {
        run_batches(all, count, threads, alone);
        status = first_error(all, threads, alone);
        for (int i = 0; i < threads; i++)
            end_worker(&all->workers[i]);
    }
    pack_end(all->weights);
    attn__free(context, all->workers);
    return status;
}

/* Divides sorted sentences into batches and runs them. Sentences without tokens come last, and have empty results. */
static attn_status divide_into_batches(attn_translator *t, const attn__sentence *sentences, int64_t n,
                                       const attn__resolved *how, attn_translation *results, attn__attended *attended)
{
    const attn_translator_options *options = &how->options;
    batches all = {.t = t, .sentences = sentences, .how = how, .results = results, .attended = attended};
    attn_status status = ATTN_OK;
    while (all.n < n && sentences[all.n].n > 0)
        all.n++;
    /* limited to the number of sentences, because the requested size may be too large for memory */
    all.size = options->batch < all.n ? options->batch : all.n;
    if (all.n > 0)
        status = run_on_workers(&all);
    for (int64_t i = all.n; status == ATTN_OK && i < n; i++)
        status = finish_empty(t, options->alignments, &results[sentences[i].line * options->nbest]);
    return status;
}

static attn_status check_options(const attn_translator *t, const attn_translator_options *o)
{
    if (o->nbest > o->beam)
        return attn__fail(
            t->context, ATTN_ERROR_ARGUMENT,
            "%lld translations of a line are requested, but the beam is %lld; the beam must be at least as large",
            (long long)o->nbest, (long long)o->beam);
    if (o->mbr && o->patience > 0 && o->patience < 1)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT,
                          "mbr compares all hypotheses of a beam, but with the patience %g the search finds fewer",
                          o->patience);
    if (o->mbr && o->beam < 2)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT, "mbr needs a beam of 2 or more; the beam is %lld",
                          (long long)o->beam);
    return attn__shortlist_fits(t, o);
}

/* Encodes the lines, and runs them sorted by length. */
static attn_status encode_lines(attn_translator *t, const char *const *lines, int64_t n, const attn__resolved *how,
                                attn_translation *results, attn__attended *attended)
{
    const attn_translator_options *o = &how->options;
    memset(results, 0, (size_t)(n * o->nbest) * sizeof *results);
    attn__sentence *sentences = attn__alloc_zero(t->context, attn__size_mul((size_t)n, sizeof *sentences));
    attn_status status = sentences ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        sentences[i].line = i;
        status = attn__sentence_prepare(t, lines[i], o, &sentences[i], &results[i * o->nbest]);
    }
    if (status == ATTN_OK) {
        qsort(sentences, (size_t)n, sizeof *sentences, longer_first);
        status = divide_into_batches(t, sentences, n, how, results, attended);
    }
    attn__sentences_free(t->context, sentences, n);
    if (status != ATTN_OK)
        attn_translations_free(t->context, results, n * o->nbest);
    return status;
}

/* Resolves the options, and translates n lines by them. `attended` may be given if n is 1, and otherwise is NULL. */
static attn_status resolve_options(attn_translator *t, const char *const *lines, int64_t n,
                                   const attn_translator_options *options, attn_translation *results,
                                   attn__attended *attended)
{
    if (ATTN__CHECK_RESERVED(t->context, options, attn_translator_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn__resolved resolved;
    attn_status status = attn__search_resolve(t, options, &resolved);
    if (status == ATTN_OK)
        status = check_options(t, &resolved.options);
    if (status == ATTN_OK)
        status = encode_lines(t, lines, n, &resolved, results, attended);
    attn__resolved_free(t, &resolved);
    return status;
}

attn_status attn_translator_translate(attn_translator *t, const char *const *lines, int64_t n,
                                      const attn_translator_options *options, attn_translation *results)
{
    ATTN__CALL(t->context);
    return resolve_options(t, lines, n, options, results, NULL);
}

attn_status attn__translator_attend(attn_translator *t, attn_tape *tape, const char *line,
                                    const attn_translator_options *options, attn_translation *result,
                                    attn__attended *attended)
{
    attn_translator_options best = options ? *options : (attn_translator_options){0};
    best.nbest = 1; /* because `result` is one translation */
    *attended = (attn__attended){.weights = {.context = t->context}};
    attn_status status = resolve_options(t, &line, 1, &best, result, attended);
    if (status != ATTN_OK || attended->nsource == 0)
        return status;
    const attn__aligned again = {
        .source = attended->source, .nsource = attended->nsource, .said = attended->said, .nsaid = attended->nsaid};
    status = attn__translator_weights(t, tape, &again, 1, &attended->weights);
    if (status != ATTN_OK)
        attn_translations_free(t->context, result, 1);
    return status;
}

void attn__attended_free(attn_context *context, attn__attended *attended)
{
    attn_named_clear(&attended->weights);
    attn__free(context, attended->source);
    attn__free(context, attended->said);
}

void attn_translations_free(attn_context *context, attn_translation *results, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        attn__free(context, results[i].text);
        attn__free(context, results[i].tokens);
        attn__free(context, results[i].unknown_words);
        attn__free(context, results[i].alignment);
        results[i] = (attn_translation){0};
    }
}
