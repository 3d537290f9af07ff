/* SPDX-License-Identifier: MIT
 * Makes a tokenizer from its parts, and answers questions about its tokens. */
#include "data/tokenizer/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_IDS = 1 << 22 };

static attn_status set_text(attn__tokenizer *t, const char *name, const char *text, size_t length, int64_t id)
{
    if (id < 0 || id >= MOST_IDS)
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: the id %" PRId64 " of \"%.60s\" is not from 0 to %d",
                          name, id, text, MOST_IDS - 1);
    while (id >= t->ntokens) {
        attn__token_text *tokens = attn__grow(t->context, t->tokens, t->ntokens, sizeof *tokens);
        if (!tokens)
            return ATTN_ERROR_MEMORY;
        t->tokens = tokens;
        t->tokens[t->ntokens++] = (attn__token_text){0};
    }
    char *texts = t->texts;
    size_t need = t->texts_size + length + 1;
    if (need > UINT32_MAX)
        return attn__fail(t->context, ATTN_ERROR_FORMAT,
                          "%s: the texts of the tokens need %zu bytes; at most 4294967295 are supported", name, need);
    if (need > t->texts_capacity) {
        size_t capacity = 2 * need + 1024;
        texts = attn__realloc(t->context, t->texts, capacity);
        if (!texts)
            return ATTN_ERROR_MEMORY;
        t->texts = texts;
        t->texts_capacity = capacity;
    }
    memcpy(texts + t->texts_size, text, length);
    texts[t->texts_size + length] = '\0';
    t->tokens[id] = (attn__token_text){.begin = (uint32_t)t->texts_size, .length = (uint32_t)length, .present = true};
    t->texts_size = need;
    return ATTN_OK;
}

attn_status attn__tokenizer_add_token(attn__tokenizer *t, const char *name, const char *text, size_t length, int64_t id)
{
    attn_status status = set_text(t, name, text, length, id);
    if (status == ATTN_OK && attn__trie_find(&t->model.trie, text, length) < 0)
        t->model.size++;
    return status == ATTN_OK ? attn__trie_insert(&t->model.trie, text, length, (int32_t)id) : status;
}

attn_status attn__tokenizer_add_added(attn__tokenizer *t, const char *name, const attn__added *added)
{
    attn__added copy = *added;
    copy.id = attn__trie_find(&t->model.trie, added->content, added->size);
    for (int64_t i = 0; i < t->nadded; i++) {
        if (t->added[i].size == added->size && memcmp(t->added[i].content, added->content, added->size) == 0) {
            copy.content = t->added[i].content;
            copy.id = t->added[i].id;
            t->added[i] = copy;
            return ATTN_OK;
        }
    }
    attn__added *all = attn__grow(t->context, t->added, t->nadded, sizeof *all);
    if (!all)
        return ATTN_ERROR_MEMORY;
    t->added = all;
    /* a token that the model does not have gets the next id, whatever id the file tells */
    attn_status status = ATTN_OK;
    if (copy.id < 0) {
        copy.id = (int32_t)(t->model.size + t->nnew);
        status = set_text(t, name, added->content, added->size, copy.id);
        t->nnew++;
    }
    copy.content = status == ATTN_OK ? attn__alloc(t->context, added->size + 1) : NULL;
    if (!copy.content)
        return status == ATTN_OK ? ATTN_ERROR_MEMORY : status;
    memcpy(copy.content, added->content, added->size);
    copy.content[added->size] = '\0';
    t->tokens[copy.id].added = true;
    t->added[t->nadded++] = copy;
    return ATTN_OK;
}

attn_status attn__tokenizer_add_normalizer(attn__tokenizer *t, const attn__normalize_step *normalizer)
{
    attn__normalize_step *all = attn__grow(t->context, t->normalizers, t->nnormalizers, sizeof *all);
    if (!all)
        return ATTN_ERROR_MEMORY;
    t->normalizers = all;
    t->normalizers[t->nnormalizers++] = *normalizer;
    return ATTN_OK;
}

attn_status attn__tokenizer_add_splitter(attn__tokenizer *t, const attn__splitter *splitter)
{
    attn__splitter *all = attn__grow(t->context, t->splitters, t->nsplitters, sizeof *all);
    if (!all)
        return ATTN_ERROR_MEMORY;
    t->splitters = all;
    t->splitters[t->nsplitters++] = *splitter;
    return ATTN_OK;
}

attn_status attn__template_add(attn__tokenizer *t, attn__template *to, int8_t text, int32_t type, int32_t id)
{
    attn__template_piece *pieces = attn__grow(t->context, to->pieces, to->n, sizeof *pieces);
    int32_t *ids = pieces ? attn__grow(t->context, to->ids, to->nids, sizeof *ids) : NULL;
    to->pieces = pieces ? pieces : to->pieces;
    if (!ids)
        return ATTN_ERROR_MEMORY;
    to->ids = ids;
    to->pieces[to->n++] = (attn__template_piece){.text = text, .type = type, .begin = (int32_t)to->nids, .n = text < 0};
    if (text < 0)
        to->ids[to->nids++] = id;
    return ATTN_OK;
}

/* Inserts the added tokens in the tries that find them in texts. */
static attn_status index_added(attn__tokenizer *t, const char *name)
{
    attn_status status = attn__trie_create(&t->added_raw, t->context);
    if (status == ATTN_OK)
        status = attn__trie_create(&t->added_normalized, t->context);
    attn__aligned_text text = {.context = t->context}, scratch = {.context = t->context};
    for (int64_t i = 0; i < t->nadded && status == ATTN_OK; i++) {
        const attn__added *added = &t->added[i];
        if (!added->normalized) {
            status = attn__trie_insert(&t->added_raw, added->content, added->size, (int32_t)i);
            continue;
        }
        text.n = 0;
        attn__aligned_decode(&text, added->content, added->size);
        attn__normalize(t, &text, &scratch);
        status = text.status;
        if (status == ATTN_OK && text.n == 0)
            status = attn__fail(t->context, ATTN_ERROR_FORMAT,
                                "%s: the normalizers leave nothing of the added token \"%.60s\"", name, added->content);
        if (status == ATTN_OK)
            status = attn__trie_insert(&t->added_normalized, text.bytes, text.n, (int32_t)i);
    }
    attn__aligned_free(&text);
    attn__aligned_free(&scratch);
    return status;
}

static attn_status check_template(const attn__tokenizer *t, const char *name, const attn__template *of)
{
    for (int64_t i = 0; i < of->nids; i++)
        if (!attn__tokenizer_token(t, of->ids[i], NULL))
            return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: post_processor: no token has the id %" PRId32, name,
                              of->ids[i]);
    return ATTN_OK;
}

attn_status attn__tokenizer_finish(attn__tokenizer *t, const char *name)
{
    static const char *const usual[ATTN__TOKEN_SPECIALS][2] = {
        {"[CLS]", "<s>"}, {"[SEP]", "</s>"}, {"[PAD]", "<pad>"}, {"[MASK]", "<mask>"}, {"[UNK]", "<unk>"}};
    for (unsigned i = 0; i < 256; i++) {
        char token[8];
        snprintf(token, sizeof token, "<0x%02X>", i);
        t->model.bytes[i] = attn__trie_find(&t->model.trie, token, 6);
    }
    attn_status status = check_template(t, name, &t->single);
    if (status == ATTN_OK)
        status = check_template(t, name, &t->pair);
    if (status == ATTN_OK)
        status = index_added(t, name);
    for (int i = 0; i < ATTN__TOKEN_SPECIALS && status == ATTN_OK; i++)
        for (int j = 0; j < 2 && t->special[i] < 0; j++)
            t->special[i] = attn__tokenizer_find(t, usual[i][j], strlen(usual[i][j]));
    return status;
}

static void free_template(attn_context *context, attn__template *of)
{
    attn__free(context, of->pieces);
    attn__free(context, of->ids);
}

void attn__normalizer_free(attn_context *context, attn__normalize_step *normalizer)
{
    attn__regex_destroy(normalizer->pattern);
    attn__free(context, normalizer->content);
    attn__free(context, normalizer->units);
    attn__free(context, normalizer->texts);
}

attn_status attn__tokenizer_create(attn__tokenizer **tokenizer, attn_context *context)
{
    attn__tokenizer *t = *tokenizer = attn__alloc_zero(context, sizeof *t);
    if (!t)
        return ATTN_ERROR_MEMORY;
    t->context = context;
    t->model.unk = -1;
    t->model.continuing_node = ATTN__TRIE_NONE;
    for (int i = 0; i < ATTN__TOKEN_SPECIALS; i++)
        t->special[i] = -1;
    return attn__trie_create(&t->model.trie, context);
}

void attn__tokenizer_destroy(attn__tokenizer *tokenizer)
{
    attn__tokenizer *t = tokenizer;
    if (!t)
        return;
    for (int64_t i = 0; i < t->nnormalizers; i++)
        attn__normalizer_free(t->context, &t->normalizers[i]);
    for (int64_t i = 0; i < t->nsplitters; i++)
        attn__regex_destroy(t->splitters[i].pattern);
    for (int64_t i = 0; i < t->nadded; i++)
        attn__free(t->context, t->added[i].content);
    attn__free(t->context, t->normalizers);
    attn__free(t->context, t->splitters);
    attn__free(t->context, t->added);
    attn__trie_destroy(&t->added_raw);
    attn__trie_destroy(&t->added_normalized);
    attn__model_free(t->context, &t->model);
    free_template(t->context, &t->single);
    free_template(t->context, &t->pair);
    attn__free(t->context, t->texts);
    attn__free(t->context, t->tokens);
    attn__free(t->context, t);
}

/* ------------------------------------------------------------------------------------------------- questions */

int64_t attn__tokenizer_size(const attn__tokenizer *tokenizer)
{
    return tokenizer->ntokens;
}

const char *attn__tokenizer_token(const attn__tokenizer *tokenizer, int64_t id, size_t *length)
{
    if (id < 0 || id >= tokenizer->ntokens || !tokenizer->tokens[id].present)
        return NULL;
    if (length)
        *length = tokenizer->tokens[id].length;
    return tokenizer->texts + tokenizer->tokens[id].begin;
}

int32_t attn__tokenizer_find(const attn__tokenizer *tokenizer, const char *token, size_t length)
{
    for (int64_t i = 0; i < tokenizer->nadded; i++)
        if (tokenizer->added[i].size == length && memcmp(tokenizer->added[i].content, token, length) == 0)
            return tokenizer->added[i].id;
    return attn__trie_find(&tokenizer->model.trie, token, length);
}

int32_t attn__tokenizer_special(const attn__tokenizer *tokenizer, attn__special which)
{
    return tokenizer->special[which];
}

int64_t attn__tokenizer_max_length(const attn__tokenizer *tokenizer)
{
    return tokenizer->max_length;
}
