/* SPDX-License-Identifier: MIT
 *
 * The models of tokenizer.json: WordPiece (Schuster and Nakajima 2012), BPE (Sennrich et al. 2016, arXiv:1508.07909),
 * Unigram (Kudo 2018, arXiv:1804.10959) and whole words. */
#include "data/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

attn_status attn__encoding_add(attn_context *context, attn__encoding *tokens, int32_t id, size_t begin, size_t end)
{
    if (tokens->n == tokens->capacity) {
        int64_t capacity = 2 * tokens->capacity + 64;
        size_t n = (size_t)capacity;
        int32_t *ids = attn__realloc(context, tokens->ids, attn__size_mul(n, sizeof *ids));
        tokens->ids = ids ? ids : tokens->ids;
        int32_t *types = ids ? attn__realloc(context, tokens->types, attn__size_mul(n, sizeof *types)) : NULL;
        tokens->types = types ? types : tokens->types;
        uint32_t(*offsets)[2] =
            types ? attn__realloc(context, tokens->offsets, attn__size_mul(n, sizeof *offsets)) : NULL;
        tokens->offsets = offsets ? offsets : tokens->offsets;
        int8_t *texts = offsets ? attn__realloc(context, tokens->texts, n) : NULL;
        tokens->texts = texts ? texts : tokens->texts;
        if (!texts)
            return ATTN_ERROR_MEMORY;
        tokens->capacity = capacity;
    }
    int64_t i = tokens->n++;
    tokens->ids[i] = id;
    tokens->types[i] = 0;
    tokens->texts[i] = 0;
    tokens->offsets[i][0] = (uint32_t)begin;
    tokens->offsets[i][1] = (uint32_t)end;
    return ATTN_OK;
}

static attn_status add_unknown(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                               attn__encoding *tokens)
{
    if (t->model.unk >= 0)
        return attn__encoding_add(t->context, tokens, t->model.unk, begin, end);
    return attn__fail(t->context, ATTN_ERROR_FORMAT,
                      "the model has no unknown token, and \"%.*s\" is not in its vocabulary",
                      (int)(end - begin < 60 ? end - begin : 60), bytes + begin);
}

/* --------------------------------------------------------------------------------------------- words, pieces */

static attn_status encode_word(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                               attn__encoding *tokens)
{
    int32_t id = attn__trie_find(&t->model.trie, bytes + begin, end - begin);
    return id >= 0 ? attn__encoding_add(t->context, tokens, id, begin, end) : add_unknown(t, bytes, begin, end, tokens);
}

/* Takes the longest token again and again. If no token fits, the whole word is unknown. */
static attn_status encode_word_piece(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                                     attn__encoding *tokens)
{
    const attn__token_model *m = &t->model;
    int64_t before = tokens->n, characters = 0;
    for (size_t i = begin; i < end; i++)
        characters += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    if (characters > m->most_characters)
        return add_unknown(t, bytes, begin, end, tokens);
    for (size_t at = begin; at < end;) {
        uint32_t node = at == begin ? ATTN__TRIE_ROOT : m->continuing_node;
        int32_t id = -1;
        size_t longest = at;
        for (size_t i = at; i < end && node != ATTN__TRIE_NONE; i++) {
            node = attn__trie_next(&m->trie, node, (uint8_t)bytes[i]);
            if (node != ATTN__TRIE_NONE && m->trie.values[node] >= 0) {
                id = m->trie.values[node];
                longest = i + 1;
            }
        }
        if (id < 0) {
            tokens->n = before;
            return add_unknown(t, bytes, begin, end, tokens);
        }
        attn_status status = attn__encoding_add(t->context, tokens, id, at, longest);
        if (status != ATTN_OK)
            return status;
        at = longest;
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------------- BPE */

typedef struct symbol {
    int32_t id, previous, next; /* neighbors; -1: none */
    uint32_t length;            /* in bytes; 0: merged into its neighbor */
} symbol;

/* A pair that may be merged, by the position of its left symbol. */
typedef struct candidate {
    uint32_t rank, position;
    int32_t merged;
} candidate;

typedef struct word {
    attn_context *context;
    symbol *symbols;
    candidate *heap; /* the pair that is merged first is at index 0 */
    size_t n, capacity, heap_n, heap_capacity;
} word;

static bool add_symbol(word *w, int32_t id, size_t length)
{
    if (w->n == w->capacity) {
        size_t capacity = 2 * w->capacity + 32;
        symbol *symbols = attn__realloc(w->context, w->symbols, attn__size_mul(capacity, sizeof *symbols));
        if (!symbols)
            return false;
        w->symbols = symbols;
        w->capacity = capacity;
    }
    int32_t i = (int32_t)w->n++;
    w->symbols[i] = (symbol){.id = id, .previous = i - 1, .next = -1, .length = (uint32_t)length};
    if (i > 0)
        w->symbols[i - 1].next = i;
    return true;
}

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->position < b->position;
}

static bool push(word *w, candidate new)
{
    if (w->heap_n == w->heap_capacity) {
        size_t capacity = 2 * w->heap_capacity + 32;
        candidate *heap = attn__realloc(w->context, w->heap, attn__size_mul(capacity, sizeof *heap));
        if (!heap)
            return false;
        w->heap = heap;
        w->heap_capacity = capacity;
    }
    size_t i = w->heap_n++;
    for (; i > 0 && before(&new, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = new;
    return true;
}

static candidate pop(word *w)
{
    candidate first = w->heap[0], last = w->heap[--w->heap_n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->heap_n) {
        if (child + 1 < w->heap_n && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return first;
}

/* Returns the slot of a pair, or the free slot where it belongs. */
static attn__merge *merge_slot(const attn__token_model *model, int32_t left, int32_t right)
{
    uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t i = (size_t)(pair * UINT64_C(0x9e3779b97f4a7c15) >> 24) & model->merges_mask;
    while (model->merges[i].pair != 0 && model->merges[i].pair != pair)
        i = (i + 1) & model->merges_mask;
    return &model->merges[i];
}

void attn__merge_put(attn__token_model *model, int32_t left, int32_t right, uint32_t rank, int32_t merged)
{
    uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    *merge_slot(model, left, right) = (attn__merge){pair, rank, merged};
}

static const attn__merge *find_merge(const attn__token_model *model, int32_t left, int32_t right)
{
    const attn__merge *merge = merge_slot(model, left, right);
    return merge->pair != 0 ? merge : NULL;
}

/* Adds the pair of the symbol at `position` and the next symbol to the heap, if it can be merged. */
static bool push_pair(const attn__token_model *m, word *w, int32_t position)
{
    if (position < 0 || w->symbols[position].next < 0)
        return true;
    const attn__merge *merge = find_merge(m, w->symbols[position].id, w->symbols[w->symbols[position].next].id);
    return !merge || push(w, (candidate){merge->rank, (uint32_t)position, merge->merged});
}

static bool merge_all(const attn__token_model *m, word *w)
{
    for (size_t i = 0; i + 1 < w->n; i++)
        if (!push_pair(m, w, (int32_t)i))
            return false;
    while (w->heap_n > 0) {
        candidate top = pop(w);
        symbol *left = &w->symbols[top.position];
        if (left->length == 0 || left->next < 0)
            continue;
        symbol *right = &w->symbols[left->next];
        const attn__merge *merge = find_merge(m, left->id, right->id);
        if (!merge || merge->merged != top.merged)
            continue; /* the pair has changed since it was added */
        left->id = top.merged;
        left->length += right->length;
        left->next = right->next;
        right->length = 0;
        if (left->next >= 0)
            w->symbols[left->next].previous = (int32_t)top.position;
        if (!push_pair(m, w, left->previous) || !push_pair(m, w, (int32_t)top.position))
            return false;
    }
    return true;
}

/* Text of a character with the model's prefix or suffix. */
typedef struct decorated {
    char *bytes;
    size_t n;
} decorated;

static attn_status decorate(const attn__tokenizer *t, decorated *d, const char *bytes, size_t n, bool first, bool last)
{
    const char *prefix = !first && t->model.prefix ? t->model.prefix : "";
    const char *suffix = last && t->model.suffix ? t->model.suffix : "";
    size_t before_n = strlen(prefix), after_n = strlen(suffix);
    char *text = attn__realloc(t->context, d->bytes, before_n + n + after_n + 1);
    if (!text)
        return ATTN_ERROR_MEMORY;
    memcpy(text, prefix, before_n + 1);
    memcpy(text + before_n, bytes, n);
    memcpy(text + before_n + n, suffix, after_n + 1);
    *d = (decorated){text, before_n + n + after_n};
    return ATTN_OK;
}

static bool add_bytes(const attn__token_model *m, word *w, const char *bytes, size_t n, bool *all)
{
    *all = true;
    for (size_t i = 0; i < n; i++)
        *all = *all && m->bytes[(unsigned char)bytes[i]] >= 0;
    for (size_t i = 0; i < n && *all; i++)
        if (!add_symbol(w, m->bytes[(unsigned char)bytes[i]], 1))
            return false;
    return true;
}

/* Makes the symbols of a word, one for each character. A character that no token has becomes bytes, or is unknown. */
static attn_status start_word(const attn__tokenizer *t, word *w, const char *bytes, size_t begin, size_t end)
{
    const attn__token_model *m = &t->model;
    decorated d = {0};
    size_t unknown = 0; /* bytes of unknown characters that wait */
    attn_status status = ATTN_OK;
    for (size_t at = begin; at < end && status == ATTN_OK;) {
        uint32_t code;
        int read = attn__utf8_decode(bytes + at, bytes + end, &code);
        size_t n = read ? (size_t)read : 1, text_n = n;
        const char *text = bytes + at;
        if (m->prefix || m->suffix) {
            status = decorate(t, &d, bytes + at, n, at == begin, at + n == end);
            if (status != ATTN_OK)
                break;
            text = d.bytes;
            text_n = d.n;
        }
        at += n;
        int32_t id = attn__trie_find(&m->trie, text, text_n);
        bool as_bytes = false, ok = true;
        if (id >= 0) {
            ok = (unknown == 0 || add_symbol(w, m->unk, unknown)) && add_symbol(w, id, n);
            unknown = 0;
        } else if (m->byte_fallback) {
            ok = add_bytes(m, w, text, text_n, &as_bytes);
        }
        if (ok && id < 0 && !as_bytes && m->has_unk) {
            if (m->unk < 0)
                status = add_unknown(t, bytes, at - n, at, NULL);
            else if (unknown > 0 && !m->fuse_unk) {
                ok = add_symbol(w, m->unk, unknown);
                unknown = n;
            } else
                unknown += n;
        }
        if (!ok)
            status = ATTN_ERROR_MEMORY;
    }
    if (status == ATTN_OK && unknown > 0 && !add_symbol(w, m->unk, unknown))
        status = ATTN_ERROR_MEMORY;
    attn__free(t->context, d.bytes);
    return status;
}

static attn_status encode_bpe(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                              attn__encoding *tokens)
{
    word w = {.context = t->context};
    int32_t whole = t->model.ignore_merges ? attn__trie_find(&t->model.trie, bytes + begin, end - begin) : -1;
    if (whole >= 0)
        return attn__encoding_add(t->context, tokens, whole, begin, end);
    attn_status status = start_word(t, &w, bytes, begin, end);
    if (status == ATTN_OK && !merge_all(&t->model, &w))
        status = ATTN_ERROR_MEMORY;
    size_t at = begin;
    for (size_t i = 0; i < w.n && status == ATTN_OK; i++) {
        size_t length = w.symbols[i].length, stop = at + length < end ? at + length : end;
        if (length > 0)
            status = attn__encoding_add(t->context, tokens, w.symbols[i].id, at, stop);
        at = stop;
    }
    attn__free(t->context, w.symbols);
    attn__free(t->context, w.heap);
    return status;
}

/* --------------------------------------------------------------------------------------------------- Unigram */

/* The best way from the beginning to a position: its last token. */
typedef struct best {
    double score;
    int32_t id;
    uint32_t begin; /* UINT32_MAX: no way */
} best;

/* Adds the token of bytes [begin, end) of a text: one of the vocabulary, or bytes, or the unknown token. */
static attn_status add_piece(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                             attn__encoding *tokens)
{
    int32_t id = attn__trie_find(&t->model.trie, bytes + begin, end - begin);
    if (id >= 0)
        return attn__encoding_add(t->context, tokens, id, begin, end);
    bool all = t->model.byte_fallback;
    for (size_t i = begin; i < end && all; i++)
        all = t->model.bytes[(unsigned char)bytes[i]] >= 0;
    if (!all)
        return add_unknown(t, bytes, begin, end, tokens);
    attn_status status = ATTN_OK;
    for (size_t i = begin; i < end && status == ATTN_OK; i++)
        status = attn__encoding_add(t->context, tokens, t->model.bytes[(unsigned char)bytes[i]], begin, end);
    return status;
}

static void improve(best *way, double score, int32_t id, size_t begin)
{
    if (way->begin == UINT32_MAX || score > way->score)
        *way = (best){score, id, (uint32_t)begin};
}

/* Finds the tokens with the largest sum of scores by dynamic programming. A character that no token has alone may be
 * unknown, at a score that is worse than every token's. Neighbors that are unknown become one token. */
static attn_status encode_unigram(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                                  attn__encoding *tokens)
{
    const attn__token_model *m = &t->model;
    size_t size = end - begin;
    best *ways = attn__alloc(t->context, attn__size_mul(size + 1, sizeof *ways));
    attn_status status = ways ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (ways)
        ways[0] = (best){0, 0, 0};
    for (size_t i = 1; i <= size && status == ATTN_OK; i++)
        ways[i] = (best){0, 0, UINT32_MAX};
    for (size_t at = 0, n; at < size && status == ATTN_OK; at += n) {
        uint32_t code, node = ATTN__TRIE_ROOT;
        int read = attn__utf8_decode(bytes + begin + at, bytes + end, &code);
        n = read ? (size_t)read : 1;
        bool single = false;
        for (size_t i = at; i < size; i++) {
            node = attn__trie_next(&m->trie, node, (uint8_t)bytes[begin + i]);
            if (node == ATTN__TRIE_NONE)
                break;
            int32_t found = m->trie.values[node];
            if (found >= 0) {
                improve(&ways[i + 1], ways[at].score + m->scores[found], found, at);
                single = single || i + 1 == at + n;
            }
        }
        if (!single && m->unk < 0)
            status = add_unknown(t, bytes, begin + at, begin + at + n, tokens);
        else if (!single)
            improve(&ways[at + n], ways[at].score + m->unk_score, m->unk, at);
    }
    /* turn the way around: ways[at] becomes the token that begins at `at`, and `begin` its end */
    uint32_t stop = (uint32_t)size, from = status == ATTN_OK ? ways[size].begin : 0;
    int32_t id = status == ATTN_OK ? ways[size].id : 0;
    while (status == ATTN_OK) {
        best previous = ways[from];
        ways[from] = (best){.id = id, .begin = stop};
        if (from == 0)
            break;
        stop = from;
        from = previous.begin;
        id = previous.id;
    }
    for (size_t at = 0; at < size && status == ATTN_OK;) {
        size_t next = ways[at].begin;
        while (ways[at].id == m->unk && next < size && ways[next].id == m->unk)
            next = ways[next].begin;
        status = add_piece(t, bytes, begin + at, begin + next, tokens);
        at = next;
    }
    attn__free(t->context, ways);
    return status;
}

/* --------------------------------------------------------------------------------------------- SentencePiece */

typedef struct taken {
    const attn__tokenizer *t;
    attn__encoding *tokens;
    size_t begin, end;
    attn_status status;
} taken;

static void take_piece(void *user, const char *piece, size_t length)
{
    taken *to = user;
    int32_t id = attn__trie_find(&to->t->model.trie, piece, length);
    if (to->status == ATTN_OK)
        to->status =
            attn__encoding_add(to->t->context, to->tokens, id >= 0 ? id : to->t->model.unk, to->begin, to->end);
}

/* The library does not tell the places of its pieces in a text, so that their offsets are those of the whole text. */
static attn_status encode_sentencepiece(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                                        attn__encoding *tokens)
{
    taken to = {.t = t, .tokens = tokens, .begin = begin, .end = end};
    attn_status status = attn__subword_encode(t->model.subword, bytes + begin, end - begin, take_piece, &to);
    return status == ATTN_OK ? to.status : status;
}

attn_status attn__model_encode(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                               attn__encoding *tokens)
{
    switch (t->model.kind) {
    case ATTN__MODEL_WORD_PIECE:
        return encode_word_piece(t, bytes, begin, end, tokens);
    case ATTN__MODEL_BPE:
        return encode_bpe(t, bytes, begin, end, tokens);
    case ATTN__MODEL_UNIGRAM:
        return encode_unigram(t, bytes, begin, end, tokens);
    case ATTN__MODEL_SENTENCEPIECE:
        return encode_sentencepiece(t, bytes, begin, end, tokens);
    default:
        return encode_word(t, bytes, begin, end, tokens);
    }
}

void attn__model_free(attn_context *context, attn__token_model *model)
{
    attn__trie_destroy(&model->trie);
    attn__free(context, model->merges);
    attn__free(context, model->prefix);
    attn__free(context, model->suffix);
    attn__free(context, model->scores);
    attn__subword_destroy(model->subword);
}
