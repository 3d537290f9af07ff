/* SPDX-License-Identifier: MIT
 *
 * Draws a translator's attention. A query of the decoder is labelled with the word that it produces. */
#include "apps/translator/lines.h"

#include "base/context.h"
#include "data/token_words.h"
#include "data/vocab.h"
#include "models/model_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 3 * ATTN__MAX_BLOCKS, LABEL = 128 };

/* The labels of tokens. If the pieces of each word are joined, the labels are words. */
typedef struct labels {
    int64_t tokens, n;
    int64_t *of; /* [tokens]: for each token, the index of its label; the indices are ascending */
    char (*text)[LABEL];
    const char **pointer;
} labels;

/* One row of panels, which are the heads of one layer. */
typedef struct layer_row {
    char title[64];
    char (*heads)[32];
    attn_panel *panels;
    float *values;
} layer_row;

typedef struct picture {
    attn_translator *t;
    const attn_translator_view *view;
    attn_tape *tape;
    /* labels of the source, of the words that the decoder produces, and of the words that it reads */
    labels source, said, read;
    layer_row rows[LAYERS];
    attn_panel_row panel_rows[LAYERS];
    int64_t n;
} picture;

/* If the text is too long, it is cut after a whole character. */
static void put_label(char *label, const char *token, size_t length)
{
    if (length >= LABEL) {
        length = LABEL - 1;
        while (length > 0 && ((unsigned char)token[length] & 0xC0) == 0x80)
            length--;
    }
    memcpy(label, token, length); /* NOLINT: the terminating zero is added in the next line */
    label[length] = '\0';
}

static attn_status make_labels(attn_context *context, labels *l, const attn_vocab *vocab, int64_t n, const int32_t *ids)
{
    l->tokens = l->n = n;
    l->of = attn__alloc_zero(context, attn__size_mul((size_t)n, sizeof *l->of));
    l->text = attn__alloc_zero(context, attn__size_mul((size_t)n, sizeof *l->text));
    l->pointer = attn__alloc_zero(context, attn__size_mul((size_t)n, sizeof *l->pointer));
    if (!l->of || !l->text || !l->pointer)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        const char *token = attn_vocab_token(vocab, ids[i]);
        token = token ? token : "<unk>";
        put_label(l->text[i], token, strlen(token));
        l->pointer[i] = l->text[i];
        l->of[i] = i;
    }
    return ATTN_OK;
}

static bool is_mark(const attn_vocab *vocab, int32_t id)
{
    return id == attn_vocab_special(vocab, ATTN_SPECIAL_BOS) || id == attn_vocab_special(vocab, ATTN_SPECIAL_EOS) ||
           id == attn_vocab_special(vocab, ATTN_SPECIAL_PAD);
}

/* Makes the label of a word from its pieces, which are separated by spaces. */
static attn_status label_word(const attn_vocab *vocab, const char *pieces, char *label)
{
    char *text = NULL;
    attn_status status = attn__vocab_join(vocab, pieces, &text);
    if (status == ATTN_OK)
        put_label(label, text, strlen(text));
    attn__free(vocab->context, text);
    return status;
}

/* The pieces of a word are collected in the buffer `pieces`, and then the word's label is made. Special tokens keep
 * their own labels. */
static attn_status join_labels(labels *l, const attn_vocab *vocab, const int32_t *ids, char *pieces)
{
    attn__word_counter counter = {.subwords = true};
    int64_t last = -1;
    size_t used = 0;
    attn_status status = ATTN_OK;
    l->n = 0;
    for (int64_t i = 0; i < l->tokens && status == ATTN_OK; i++) {
        bool mark = is_mark(vocab, ids[i]);
        char piece[LABEL];
        memcpy(piece, l->text[i], LABEL);
        size_t length = strlen(piece);
        int64_t word = mark ? counter.n++ : attn__word_number(&counter, piece, length);
        counter.space = counter.space || mark;
        /* A mark such as <eos> always begins a label. Otherwise it could join preceding pieces of spaces, which may
         * have the same word number. */
        if (l->n == 0 || word != last || mark) {
            status = used > 0 ? label_word(vocab, pieces, l->text[l->n - 1]) : ATTN_OK;
            l->n++;
            used = 0;
        }
        last = word;
        l->of[i] = l->n - 1;
        if (mark) {
            put_label(l->text[l->n - 1], piece, length);
            continue;
        }
        memcpy(pieces + used, piece, length + 1);
        used += length + 1;
        memcpy(pieces + used - 1, " ", 2);
    }
    return status == ATTN_OK && used > 0 ? label_word(vocab, pieces, l->text[l->n - 1]) : status;
}

static attn_status join_words(labels *l, const attn_vocab *vocab, const int32_t *ids)
{
    if (!attn_vocab_has_subwords(vocab))
        return ATTN_OK;
    char *pieces = attn__alloc(vocab->context, attn__size_mul((size_t)l->tokens + 1, LABEL + 1));
    attn_status status = pieces ? join_labels(l, vocab, ids, pieces) : ATTN_ERROR_MEMORY;
    attn__free(vocab->context, pieces);
    return status;
}

typedef struct spelling {
    labels *labels;
    const int32_t *ids;
    int32_t unknown;
    int64_t at;
} spelling;

static void spell_token(void *user, const char *token, size_t length)
{
    spelling *s = user;
    int64_t i = s->at++;
    if (i < s->labels->tokens && s->ids[i] == s->unknown)
        put_label(s->labels->text[i], token, length);
}

/* An unknown word is labelled as it was written. */
static attn_status label_source(picture *p, const char *text, int64_t n, const int32_t *ids)
{
    const attn_vocab *vocab = p->t->source;
    attn_status status = make_labels(p->t->context, &p->source, vocab, n, ids);
    spelling s = {.labels = &p->source, .ids = ids, .unknown = attn_vocab_special(vocab, ATTN_SPECIAL_UNK)};
    if (status == ATTN_OK)
        status = attn__vocab_split(vocab, text, spell_token, &s);
    return status == ATTN_OK && p->view->words ? join_words(&p->source, vocab, ids) : status;
}

static void free_labels(attn_context *context, labels *l)
{
    attn__free(context, l->of);
    attn__free(context, l->text);
    attn__free(context, l->pointer);
}

/* Returns the index of the first token after i that has another label than token i. */
static int64_t end_of(const labels *l, int64_t i)
{
    int64_t end = i + 1;
    while (end < l->tokens && l->of[end] == l->of[i])
        end++;
    return end;
}

/* Converts weights between tokens to weights between labels. A query has `columns` weights, of which those behind the
 * keys' labels are padding. Weights are averaged over the tokens of the query's
 * label, and summed over the tokens of the key's label. If the attention is causal, masked keys become NaN. */
static void join_weights(const float *weights, int64_t columns, const labels *queries, const labels *keys, bool causal,
                         float *map)
{
    memset(map, 0, (size_t)(queries->n * keys->n) * sizeof *map);
    for (int64_t first = 0, end; first < queries->tokens; first = end) {
        end = end_of(queries, first);
        float *row = map + queries->of[first] * keys->n;
        for (int64_t i = first; i < end; i++)
            for (int64_t j = 0; j < keys->tokens; j++)
                row[keys->of[j]] += weights[i * columns + j] / (float)(end - first);
        for (int64_t j = 0; causal && j < keys->tokens; j = end_of(keys, j))
            if (j >= end)
                row[keys->of[j]] = NAN;
    }
}

/* Adds weights [1,H,queries,keys] as one row of panels. */
static attn_status add_row(picture *p, const attn_tensor *weights, const char *kind, int layer, const labels *queries,
                           const labels *keys, bool causal)
{
    attn_context *context = p->t->context;
    int64_t heads = attn_tensor_length(weights, 1), size = queries->n * keys->n;
    int64_t lines = attn_tensor_length(weights, 2), columns = attn_tensor_length(weights, 3);
    layer_row *row = &p->rows[p->n];
    row->values = attn__alloc(context, attn__size_mul((size_t)(heads * size), sizeof(float)));
    row->heads = attn__alloc(context, attn__size_mul((size_t)heads, sizeof *row->heads));
    row->panels = attn__alloc_zero(context, attn__size_mul((size_t)heads, sizeof *row->panels));
    p->n++; /* counted before the check below, so that the row's memory is freed even if an allocation has failed */
    if (!row->values || !row->heads || !row->panels)
        return ATTN_ERROR_MEMORY;
    const float *all = attn_tensor_data(weights);
    for (int64_t h = 0; h < heads; h++) {
        float *map = row->values + h * size;
        snprintf(row->heads[h], sizeof *row->heads, "Head %lld", (long long)h + 1);
        row->panels[h] = (attn_panel){heads > 1 ? row->heads[h] : NULL, queries->n, keys->n, map};
        join_weights(all + h * lines * columns, columns, queries, keys, causal, map);
    }
    snprintf(row->title, sizeof row->title, "%s, layer %d", kind, layer + 1);
    p->panel_rows[p->n - 1] = (attn_panel_row){.title = row->title,
                                               .row_labels = queries->pointer,
                                               .col_labels = keys->pointer,
                                               .n = heads,
                                               .panels = row->panels};
    return ATTN_OK;
}

static attn_status add_kind(picture *p, const attn_named_list *weights, const char *prefix, const char *kind,
                            const labels *queries, const labels *keys, bool causal)
{
    attn_status status = ATTN_OK;
    for (int layer = 0; status == ATTN_OK && p->n < LAYERS; layer++) {
        char name[32];
        snprintf(name, sizeof name, "%s.%d", prefix, layer);
        const attn_tensor *map = attn_named_find(weights, name);
        if (!map)
            break;
        status = add_row(p, map, kind, layer, queries, keys, causal);
    }
    return status;
}

static attn_status refuse_kinds(const picture *p, const attn_named_list *weights, unsigned kinds)
{
    static const char *const names[] = {"encoder", "decoder", "cross"};
    static const unsigned bits[] = {ATTN_SHOW_ENCODER, ATTN_SHOW_DECODER, ATTN_SHOW_CROSS};
    char asked[40] = "", has[40] = "", name[32];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.0", names[i]);
        char *list = kinds & bits[i] ? asked : attn_named_find(weights, name) ? has : NULL;
        if (list)
            snprintf(list + strlen(list), sizeof asked - strlen(list), "%s%s", *list ? ", " : "", names[i]);
    }
    return attn__fail(p->t->context, ATTN_ERROR_ARGUMENT,
                      "this model has no attention of the requested kinds (%s); it has: %s", asked,
                      *has ? has : "none");
}

static attn_status add_all(picture *p, const attn_named_list *weights, unsigned kinds)
{
    attn_status status = ATTN_OK;
    if (kinds & ATTN_SHOW_ENCODER)
        status = add_kind(p, weights, "encoder", "Encoder self-attention", &p->source, &p->source, false);
    if (status == ATTN_OK && kinds & ATTN_SHOW_DECODER)
        status = add_kind(p, weights, "decoder", "Decoder self-attention", &p->said, &p->read, true);
    if (status == ATTN_OK && kinds & ATTN_SHOW_CROSS)
        status = add_kind(p, weights, "cross", "Encoder-decoder attention", &p->said, &p->source, false);
    return status == ATTN_OK && p->n == 0 ? refuse_kinds(p, weights, kinds) : status;
}

/* Makes the labels of the m tokens that the decoder produces, and of the m tokens that it reads for them. */
static attn_status label_translation(picture *p, int64_t m, const int32_t *said)
{
    attn_translator *t = p->t;
    int32_t *in = attn__alloc(t->context, attn__size_mul((size_t)m, sizeof *in));
    if (!in)
        return ATTN_ERROR_MEMORY;
    in[0] = attn_vocab_special(t->target, ATTN_SPECIAL_BOS);
    memcpy(in + 1, said, (size_t)(m - 1) * sizeof *in);
    attn_status status = make_labels(t->context, &p->said, t->target, m, said);
    if (status == ATTN_OK)
        status = make_labels(t->context, &p->read, t->target, m, in);
    if (status == ATTN_OK && p->view->words)
        status = join_words(&p->said, t->target, said);
    if (status == ATTN_OK && p->view->words)
        status = join_words(&p->read, t->target, in);
    attn__free(t->context, in);
    return status;
}

static attn_status build(picture *p, const char *text, const attn__attended *a)
{
    unsigned chosen = p->view->kinds & (ATTN_SHOW_ENCODER | ATTN_SHOW_DECODER | ATTN_SHOW_CROSS);
    attn_status status = label_source(p, text, a->nsource, a->source);
    if (status == ATTN_OK)
        status = label_translation(p, a->nsaid, a->said);
    if (status == ATTN_OK)
        status = add_all(p, &a->weights, chosen ? chosen : ~0u);
    return status;
}

static void release(picture *p)
{
    attn_context *context = p->t->context;
    for (int64_t i = 0; i < p->n; i++) {
        attn__free(context, p->rows[i].values);
        attn__free(context, p->rows[i].heads);
        attn__free(context, p->rows[i].panels);
    }
    free_labels(context, &p->source);
    free_labels(context, &p->said);
    free_labels(context, &p->read);
    attn_tape_destroy(p->tape);
    attn__free(context, p);
}

static attn_status render(const picture *p, const char *text, const char *said, attn_plot_format format,
                          attn_bytes *out)
{
    char title[512];
    snprintf(title, sizeof title, "%.200s → %.200s", text, said);
    attn_heatmaps maps = {.title = strlen(text) < 200 && strlen(said) < 200 ? title : NULL,
                          .n = p->n,
                          .rows = p->panel_rows,
                          .low = p->view->low,
                          .high = p->view->high,
                          .colours = p->view->colours};
    return attn_heatmaps_render(out, p->t->context, &maps, format);
}

static attn_status draw(picture *p, const char *sentence, attn_plot_format format, attn_bytes *out,
                        attn_translation *said)
{
    attn_context *context = p->t->context;
    attn__attended attended;
    char *text = NULL;
    attn_status status = attn__translator_attend(p->t, p->tape, sentence, p->view->search, said, &attended);
    if (status == ATTN_OK && attended.nsource == 0)
        status = attn__fail(context, ATTN_ERROR_ARGUMENT, "there is nothing to show for an empty sentence");
    if (status == ATTN_OK)
        status = attn__normalized(p->t, sentence, &text);
    if (status == ATTN_OK)
        status = build(p, text, &attended);
    if (status == ATTN_OK)
        status = render(p, text, said->text, format, out);
    attn__free(context, text);
    attn__attended_free(context, &attended);
    return status;
}

attn_status attn_translator_render_attention(attn_translator *t, const char *sentence, const attn_translator_view *view,
                                             attn_plot_format format, attn_bytes *out, attn_bytes *translation)
{
    static const attn_translator_view usual = {0};
    ATTN__CALL(t->context);
    attn_translation said = {0};
    *out = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(t->context, view, attn_translator_view) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    picture *p = attn__alloc_zero(t->context, sizeof *p);
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->t = t;
    p->view = view ? view : &usual;
    attn_status status = attn_tape_create(&p->tape, t->context);
    if (status == ATTN_OK)
        status = draw(p, sentence, format, out, &said);
    if (status == ATTN_OK && translation) {
        *translation = (attn_bytes){said.text, strlen(said.text)};
        said.text = NULL;
    }
    attn_translations_free(t->context, &said, 1);
    release(p);
    return status;
}
