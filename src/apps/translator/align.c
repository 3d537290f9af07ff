/* SPDX-License-Identifier: MIT
 *
 * Finds, for each word of a translation, the source word to which it attends. The model runs again over the whole
 * translation, because the weights must be summed over the pieces of each word.
 */
#include "apps/translator/lines.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- words of the target */

/* Numbers the words of a translation. words[i] becomes the number of the word to which token i belongs. If the token
 * belongs to no word, it becomes -1. Returns the number of words. */
static int64_t number_words(const attn_translator *t, const attn__aligned *a, int64_t *words)
{
    attn__word_counter counter = {.subwords = attn_vocab_has_subwords(t->target)};
    for (int64_t i = 0; i < a->nsaid; i++) {
        int32_t id = a->said[i];
        bool hidden = id == attn_vocab_special(t->target, ATTN_SPECIAL_PAD) ||
                      id == attn_vocab_special(t->target, ATTN_SPECIAL_BOS) ||
                      (counter.subwords && id == attn_vocab_special(t->target, ATTN_SPECIAL_UNK));
        const char *token = attn_vocab_token(t->target, id);
        words[i] = hidden || !token ? -1 : attn__word_number(&counter, token, strlen(token));
    }
    return counter.n;
}

/* ------------------------------------------------------------------------------------------- from weights */

/* The attention weights of one sentence, [heads,rows,cols]. */
typedef struct maps {
    const float *data;
    int64_t heads, rows, cols;
} maps;

/* Adds the weights of query `row` to the sums of the source words. The weights of all heads are added. */
static void add_query(const maps *m, int64_t row, const attn__aligned *a, int32_t eos, double *sums)
{
    for (int64_t h = 0; h < m->heads; h++) {
        const float *weights = m->data + (h * m->rows + row) * m->cols;
        for (int64_t k = 0; k < a->nsource && k < a->ntokens; k++)
            if (a->source[k] != eos)
                sums[a->words[k]] += (double)weights[k];
    }
}

static int64_t greatest(const double *sums, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = sums[i] > sums[best] ? i : best;
    return best;
}

/* Scratch memory for one sentence: the word numbers of the target's tokens, the sums of weights of the source words,
 * and the text. */
typedef struct room {
    int64_t *words;
    double *sums;
    char *text;
} room;

enum { PAIR = 48 }; /* maximum length of the text of one aligned pair */

static void write_pairs(const attn_translator *t, const maps *m, attn__aligned *a, const room *r)
{
    int64_t nwords = number_words(t, a, r->words), nsource = 1;
    int32_t eos = attn_vocab_special(t->source, ATTN_SPECIAL_EOS);
    size_t length = 0;
    for (int64_t k = 0; k < a->ntokens; k++)
        nsource = a->words[k] + 1 > nsource ? a->words[k] + 1 : nsource;
    for (int64_t j = 0; j < nwords; j++) {
        memset(r->sums, 0, (size_t)nsource * sizeof *r->sums);
        for (int64_t i = 0; i < a->nsaid; i++)
            if (r->words[i] == j)
                add_query(m, i, a, eos, r->sums);
        length += (size_t)snprintf(r->text + length, PAIR, "%s%lld-%lld", j > 0 ? " " : "",
                                   (long long)greatest(r->sums, nsource), (long long)j);
    }
    r->text[length] = '\0';
}

static attn_status align_one(const attn_translator *t, const maps *m, attn__aligned *a)
{
    attn_context *context = t->context;
    size_t said = (size_t)a->nsaid, tokens = (size_t)a->ntokens + 1;
    room r = {.words = attn__alloc(context, attn__size_mul(said, sizeof *r.words)),
              .sums = attn__alloc(context, attn__size_mul(tokens, sizeof *r.sums)),
              .text = attn__alloc(context, attn__size_add(attn__size_mul(said, PAIR), 1))};
    attn_status status = r.words && r.sums && r.text ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        write_pairs(t, m, a, &r);
    if (status == ATTN_OK)
        *a->alignment = attn__strdup(a->owner, r.text);
    attn__free(context, r.words);
    attn__free(context, r.sums);
    attn__free(context, r.text);
    return status == ATTN_OK && !*a->alignment ? ATTN_ERROR_MEMORY : status;
}

/* ---------------------------------------------------------------------------------------------- the model */

typedef struct tensors {
    attn_tensor *source, *lens, *input;
} tensors;

static attn_status stack(const attn_translator *t, attn_tape *tape, const attn__aligned *a, int64_t n, tensors *x)
{
    int64_t cols = 1, rows = 1;
    for (int64_t i = 0; i < n; i++) {
        cols = a[i].nsource > cols ? a[i].nsource : cols;
        rows = a[i].nsaid > rows ? a[i].nsaid : rows;
    }
    cols = attn__source_columns(t, cols);
    *x = (tensors){.source = attn__ids_on_tape(tape, n, cols, NULL),
                   .lens = attn_tape_tensor(tape, ATTN_I32, 1, &n, NULL),
                   .input = attn__ids_on_tape(tape, n, rows, NULL)};
    if (!x->source || !x->lens || !x->input)
        return ATTN_ERROR_MEMORY;
    int32_t *source = attn_tensor_data(x->source), *lens = attn_tensor_data(x->lens), *in = attn_tensor_data(x->input);
    int32_t behind = attn_vocab_special(t->target, ATTN_SPECIAL_PAD);
    int32_t bos = attn_vocab_special(t->target, ATTN_SPECIAL_BOS);
    for (int64_t i = 0; i < n; i++) {
        attn__source_put(t, a[i].source, a[i].nsource, cols, source + i * cols);
        for (int64_t j = 0; j < rows; j++)
            in[i * rows + j] = j == 0 ? bos : j < a[i].nsaid ? a[i].said[j - 1] : behind;
        lens[i] = (int32_t)a[i].nsource;
    }
    return ATTN_OK;
}

attn_status attn__translator_weights(const attn_translator *t, attn_tape *tape, const attn__aligned *a, int64_t n,
                                     attn_named_list *weights)
{
    attn_seq2seq_options options = {.weights = weights, .first_position = t->compat == ATTN_COMPAT_D2L};
    tensors x;
    attn_tape_reset(tape, &(attn_tape_options){0});
    attn_status status = stack(t, tape, a, n, &x);
    return status == ATTN_OK ? attn__result_status(t->context, attn_seq2seq_forward(t->model, tape, x.source, x.lens,
                                                                                    x.input, &options))
                             : status;
}

/* Returns the cross-attention weights of the decoder's last layer. Returns NULL if there are none. */
static const attn_tensor *last_layer(const attn_named_list *weights)
{
    const attn_tensor *found = NULL, *next;
    char name[32];
    for (int layer = 0;; layer++) {
        snprintf(name, sizeof name, "cross.%d", layer);
        next = attn_named_find(weights, name);
        if (!next)
            return found;
        found = next;
    }
}

static attn_status align_with(const attn_translator *t, const attn_named_list *weights, attn__aligned *a, int64_t n)
{
    const attn_tensor *all = last_layer(weights);
    attn_status status = ATTN_OK;
    if (!all)
        return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED,
                          "there are no alignments: this model's decoder does not attend to the source");
    maps m = {
        .heads = attn_tensor_length(all, 1), .rows = attn_tensor_length(all, 2), .cols = attn_tensor_length(all, 3)};
    const float *data = attn_tensor_data((attn_tensor *)(uintptr_t)all);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        m.data = data + i * m.heads * m.rows * m.cols;
        status = align_one(t, &m, &a[i]);
    }
    return status;
}

static attn_status align_batch(const attn_translator *t, attn_tape *tape, attn__aligned *a, int64_t n)
{
    attn_named_list weights = {.context = t->context};
    attn_status status = attn__translator_weights(t, tape, a, n, &weights);
    if (status == ATTN_OK)
        status = align_with(t, &weights, a, n);
    attn_named_clear(&weights);
    return status;
}

/* Returns how many sentences are run together. The number is limited because the weights of all layers are stored.
 * They grow with the square of the sentences' length. */
static int64_t how_many(const attn__aligned *a, int64_t n)
{
    int64_t longest = 1, count = 0;
    while (count < n) {
        int64_t mine = a[count].nsource > a[count].nsaid ? a[count].nsource : a[count].nsaid;
        longest = mine > longest ? mine : longest;
        if (count > 0 && (count + 1) * longest * longest > 1 << 17)
            break;
        count++;
    }
    return count;
}

attn_status attn__translator_align(const attn_translator *t, attn_tape *tape, attn__aligned *a, int64_t n)
{
    attn_status status = ATTN_OK;
    for (int64_t at = 0, count = 0; at < n && status == ATTN_OK; at += count) {
        count = how_many(a + at, n - at);
        status = align_batch(t, tape, a + at, count);
    }
    return status;
}
