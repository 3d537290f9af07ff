/* SPDX-License-Identifier: MIT
 *
 * Makes batches of sentence pairs. The order of sentences in an epoch depends only on the seed and the epoch.
 */
#include "data/corpus.h"

#include "data/order.h"
#include "dist/ranks.h"
#include "base/rng.h"

#include <inttypes.h>
#include <string.h>

/* Number of batches per window. Sentences are sorted by length within a window. The window is long enough that the
 * sentences of a batch have nearly the same length. It is short enough that batches contain different sentences in
 * each epoch. */
enum { WINDOW = 128 };

struct attn_batches {
    attn_context *context;
    const attn_corpus *corpus;
    attn_batches_options options;
    bool divided;
    int64_t count, epoch, position;
    int64_t steps[2];   /* maximum length of an encoded sentence, for each side */
    int64_t *sentences; /* [n]: the sentences in the order of the epoch */
    int64_t *batches;   /* [count]: the order of the batches in the epoch */
    int64_t *begins;    /* [count + 1]: the index in `sentences` at which each batch begins, the same in every epoch */
    attn__keyed *window;
    int32_t *source, *source_lens, *input, *labels, *target_lens;
    int64_t *indices;
};

/* ------------------------------------------------------------------------------------------- the order */

/* Returns the key by which sentences are sorted. It compares the target lengths first, because a position of the target
 * costs more: the loss is computed over the whole vocabulary. */
static int64_t key_of(const void *user, int64_t index)
{
    const attn_batches *b = user;
    return attn__corpus_length(b->corpus, ATTN_SIDE_TARGET, index) * (b->steps[ATTN_SIDE_SOURCE] + 1) +
           attn__corpus_length(b->corpus, ATTN_SIDE_SOURCE, index);
}

static void sort_windows(attn_batches *b)
{
    int64_t n = b->corpus->n, window = b->options.tokens ? n : WINDOW * b->options.size;
    for (int64_t begin = 0; begin < n; begin += window) {
        int64_t length = n - begin < window ? n - begin : window;
        attn__order_by_key(b->sentences + begin, length, key_of, b, b->window);
    }
}

/* All random numbers come from a generator that is created anew for each epoch, so an epoch can begin without running
 * the earlier epochs. */
static void order_epoch(attn_batches *b)
{
    int64_t n = b->corpus->n;
    for (int64_t i = 0; i < n; i++)
        b->sentences[i] = i;
    for (int64_t i = 0; i < b->count; i++)
        b->batches[i] = i;
    if (b->options.in_order)
        return;
    attn__rng rng = {.seed = b->options.seed, .stream = attn__mix64((uint64_t)b->epoch)};
    attn__rng_shuffle(&rng, b->sentences, n);
    if (!b->options.mixed_lengths) {
        sort_windows(b);
        /* If batches have a fixed number of sentences, the last batch may not be full. It is not shuffled and stays
         * the last one. */
        attn__rng_shuffle(&rng, b->batches, b->options.tokens ? b->count : n / b->options.size);
    }
}

/* --------------------------------------------------------------------------------------------- cutting */

static int64_t round_up(const attn_batches *b, int64_t steps)
{
    if (b->options.fixed_steps)
        return b->options.fixed_steps;
    return (steps + b->options.multiple - 1) / b->options.multiple * b->options.multiple;
}

/* Returns the end of the batch that begins at index `begin` of the current order. Sentences are added as long as
 * (number of sentences) * (longest length of either side) is at most options.tokens. */
static int64_t end_of_tokens(const attn_batches *b, int64_t begin)
{
    int64_t end = begin, longest = 1;
    for (; end < b->corpus->n; end++) {
        for (int side = 0; side < 2; side++) {
            int64_t steps = round_up(b, attn__corpus_length(b->corpus, (attn_side)side, b->sentences[end]));
            longest = steps > longest ? steps : longest;
        }
        if (end > begin && (end - begin + 1) * longest > b->options.tokens)
            break;
    }
    return end;
}

/* Divides the current order into batches. If batches are limited by tokens, all sentences were sorted by length. The
 * same lengths are then at the same indices in every epoch, so the division stays valid. */
static void cut(attn_batches *b)
{
    int64_t n = b->corpus->n, most = 0;
    b->count = 0;
    for (int64_t begin = 0; begin < n; b->count++) {
        int64_t size = b->options.size, rest = n - begin;
        int64_t end = b->options.tokens ? end_of_tokens(b, begin) : begin + (size < rest ? size : rest);
        b->begins[b->count] = begin;
        most = end - begin > most ? end - begin : most;
        begin = end;
    }
    b->begins[b->count] = n;
    b->options.size = most > 0 ? most : 1;
}

/* --------------------------------------------------------------------------------------------- making */

static attn_status fail_option(const attn_corpus *corpus, const char *what, int64_t value)
{
    return attn__fail(corpus->context, ATTN_ERROR_ARGUMENT, "batches: %s is %" PRId64 "; it must be 0 to %d", what,
                      value, (int)INT32_MAX);
}

static attn_status check(const attn_corpus *corpus, const attn_batches_options *o)
{
    if (o->size < 0 || o->size > INT32_MAX)
        return fail_option(corpus, "size", o->size);
    if (o->tokens < 0 || o->tokens > INT32_MAX || (o->tokens > 0 && o->mixed_lengths))
        return o->mixed_lengths ? attn__fail(corpus->context, ATTN_ERROR_ARGUMENT,
                                             "batches: tokens and mixed_lengths cannot be used together")
                                : fail_option(corpus, "tokens", o->tokens);
    if (o->multiple < 0 || o->multiple > INT32_MAX)
        return fail_option(corpus, "multiple", o->multiple);
    for (int side = 0; side < 2 && o->fixed_steps; side++) {
        if (o->fixed_steps < corpus->side[side].longest)
            return attn__fail(corpus->context, ATTN_ERROR_ARGUMENT,
                              "batches: fixed_steps is %" PRId64
                              "; it must be at least the length of the longest sentence, %" PRId64,
                              o->fixed_steps, corpus->side[side].longest);
    }
    return ATTN_OK;
}

static void *array_of(attn_batches *b, int64_t rows, int64_t columns, size_t element)
{
    return attn__alloc(b->context, attn__size_mul(attn__size_mul((size_t)rows, (size_t)columns), element));
}

static attn_status allocate_order(attn_batches *b)
{
    int64_t n = b->corpus->n, size = b->options.size;
    int64_t window = b->options.tokens || n < WINDOW * size ? n : WINDOW * size;
    int64_t most = b->options.tokens ? n : (n + size - 1) / size; /* upper bound of the number of batches */
    b->sentences = array_of(b, n, 1, sizeof *b->sentences);
    b->batches = array_of(b, most, 1, sizeof *b->batches);
    b->begins = array_of(b, most + 1, 1, sizeof *b->begins);
    b->window = array_of(b, window, 1, sizeof *b->window);
    b->count = most;
    return b->sentences && b->batches && b->begins && b->window ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* Allocates memory for batches of the longest sentences, so that no batch needs a new allocation. */
static attn_status allocate(attn_batches *b)
{
    int64_t size = b->options.size, places[2];
    for (int side = 0; side < 2; side++) {
        /* If batches are limited by tokens, a batch has at most options.tokens tokens, but at least one sentence. */
        int64_t steps = b->steps[side], tokens = b->options.tokens > steps ? b->options.tokens : steps;
        places[side] = b->options.tokens && size > tokens / steps ? tokens : size * steps;
    }
    b->source = array_of(b, places[ATTN_SIDE_SOURCE], 1, sizeof *b->source);
    b->input = array_of(b, places[ATTN_SIDE_TARGET], 1, sizeof *b->input);
    b->labels = array_of(b, places[ATTN_SIDE_TARGET], 1, sizeof *b->labels);
    b->source_lens = array_of(b, size, 1, sizeof *b->source_lens);
    b->target_lens = array_of(b, size, 1, sizeof *b->target_lens);
    b->indices = array_of(b, size, 1, sizeof *b->indices);
    bool whole = b->source && b->input && b->labels && b->source_lens && b->target_lens && b->indices;
    return whole ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status prepare(attn_batches *b)
{
    attn_status status = allocate_order(b);
    if (status != ATTN_OK)
        return status;
    order_epoch(b); /* cut() needs an order, because it divides the current order into batches */
    cut(b);
    order_epoch(b);
    return allocate(b);
}

attn_status attn_batches_create(attn_batches **batches, const attn_corpus *corpus, const attn_batches_options *options)
{
    ATTN__CALL(corpus->context);
    static const attn_batches_options defaults;
    *batches = NULL;
    attn_status status = check(corpus, options ? options : &defaults);
    if (status != ATTN_OK)
        return status;
    attn_batches *b = attn__alloc_zero(corpus->context, sizeof *b);
    if (!b)
        return ATTN_ERROR_MEMORY;
    b->context = corpus->context;
    b->corpus = corpus;
    b->options = options ? *options : defaults;
    b->options.size = b->options.size ? b->options.size : 64;
    b->options.multiple = b->options.multiple ? b->options.multiple : 1;
    b->steps[ATTN_SIDE_SOURCE] = round_up(b, corpus->side[ATTN_SIDE_SOURCE].longest);
    b->steps[ATTN_SIDE_TARGET] = round_up(b, corpus->side[ATTN_SIDE_TARGET].longest);
    status = prepare(b);
    if (status != ATTN_OK) {
        attn_batches_destroy(b);
        return status;
    }
    *batches = b;
    return ATTN_OK;
}

void attn_batches_destroy(attn_batches *batches)
{
    if (!batches)
        return;
    void *const arrays[] = {batches->sentences,   batches->batches,     batches->begins, batches->window,
                            batches->source,      batches->source_lens, batches->input,  batches->labels,
                            batches->target_lens, batches->indices};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        attn__free(batches->context, arrays[i]);
    attn__free(batches->context, batches);
}

void attn_batches_seek(attn_batches *batches, int64_t epoch, int64_t position)
{
    bool other = epoch != batches->epoch;
    batches->epoch = epoch;
    batches->position = position < 0 ? 0 : position < batches->count ? position : batches->count;
    if (other)
        order_epoch(batches);
}

void attn_batches_shard(attn_batches *batches)
{
    batches->divided = true;
}

bool attn_batches_sharded(const attn_batches *batches)
{
    return batches->divided;
}

int64_t attn_batches_count(const attn_batches *batches)
{
    return batches->count;
}

int64_t attn_batches_epoch(const attn_batches *batches)
{
    return batches->epoch;
}

int64_t attn_batches_position(const attn_batches *batches)
{
    return batches->position;
}

/* ------------------------------------------------------------------------------------------- one batch */

/* Returns the length to which the sentences of a batch are padded. It is the length of the longest sentence, rounded
 * up to options.multiple. */
static int64_t longest_of(const attn_batches *b, const attn_batch *batch, attn_side side)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < batch->size; i++) {
        int64_t length = attn__corpus_length(b->corpus, side, b->indices[i]);
        longest = length > longest ? length : longest;
    }
    return round_up(b, longest);
}

/* Writes a row of an array with `steps` columns: first the id `first`, if it is not negative, then n ids, then
 * padding. */
static void put_row(int32_t *array, int64_t row, int64_t steps, int32_t first, const int32_t *ids, int64_t n,
                    int32_t pad)
{
    int32_t *out = array + row * steps;
    int64_t at = 0;
    if (first >= 0)
        out[at++] = first;
    for (int64_t i = 0; i < n && at < steps; i++)
        out[at++] = ids[i];
    while (at < steps)
        out[at++] = pad;
}

static void fill_row(attn_batches *b, attn_batch *batch, int64_t row)
{
    int64_t index = b->indices[row];
    const attn__encoded *source = &b->corpus->side[ATTN_SIDE_SOURCE], *target = &b->corpus->side[ATTN_SIDE_TARGET];
    int64_t n = attn__corpus_length(b->corpus, ATTN_SIDE_SOURCE, index);
    int64_t m = attn__corpus_length(b->corpus, ATTN_SIDE_TARGET, index);
    const int32_t *words = target->ids + target->begin[index];
    put_row(b->source, row, batch->source_steps, -1, source->ids + source->begin[index], n, source->pad);
    /* The input is <bos> followed by the labels except the last. With D2L compatibility, the last label, <eos>,
     * stays in the input if there is room. */
    put_row(b->input, row, batch->target_steps, b->corpus->bos, words, b->corpus->end_in_input ? m : m - 1,
            target->pad);
    put_row(b->labels, row, batch->target_steps, -1, words, m, target->pad);
    b->source_lens[row] = (int32_t)n;
    b->target_lens[row] = (int32_t)m;
    batch->source_tokens += n;
    batch->target_tokens += m;
}

/* Copies this process's rows of the whole batch. The padded lengths of the whole batch must be computed before. */
static void take_share(attn_batches *b, attn_batch *batch)
{
    batch->whole = batch->size;
    for (int64_t row = 0; row < batch->whole; row++)
        batch->whole_tokens += attn__corpus_length(b->corpus, ATTN_SIDE_TARGET, b->indices[row]);
    if (!b->divided)
        return;
    batch->size = attn__ranks_share(b->context, batch->whole, &batch->first);
    batch->stands_in = batch->size == 0;
    if (batch->stands_in) {
        batch->first = 0;
        batch->size = 1;
    }
    memmove(b->indices, b->indices + batch->first, (size_t)batch->size * sizeof *b->indices);
}

bool attn_batches_next(attn_batches *batches, attn_batch *batch)
{
    attn_batches *b = batches;
    *batch = (attn_batch){0};
    if (b->position >= b->count)
        return false;
    const int64_t *begins = b->begins + b->batches[b->position++], begin = begins[0];
    batch->size = begins[1] - begin;
    memcpy(b->indices, b->sentences + begin, (size_t)batch->size * sizeof *b->indices);
    batch->source_steps = longest_of(b, batch, ATTN_SIDE_SOURCE);
    batch->target_steps = longest_of(b, batch, ATTN_SIDE_TARGET);
    take_share(b, batch);
    for (int64_t row = 0; row < batch->size; row++)
        fill_row(b, batch, row);
    batch->source = b->source;
    batch->source_lens = b->source_lens;
    batch->input = b->input;
    batch->labels = b->labels;
    batch->target_lens = b->target_lens;
    batch->indices = b->indices;
    return true;
}
