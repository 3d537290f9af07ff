/* SPDX-License-Identifier: MIT
 *
 * Reads the vocabulary of a MarianMT model. It is a JSON or YAML file with pieces as keys and ids as values, or a text
 * with one piece per line. A .spm splits texts into pieces. Its own ids are ignored, unless the .spm itself is the
 * vocabulary.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "data/lines.h"
#include "data/vocab.h"
#include "io/yaml.h"

#include <inttypes.h>
#include <string.h>

typedef struct reading {
    attn_context *context;
    const char *path;
    attn_bytes bytes;
    json_t *root;
    attn__subword *pieces; /* pieces of a parsed .spm; used instead of `root` */
    int64_t lines;         /* number of lines of a text; used instead of `root` and `pieces` */
    attn__word *words;     /* pieces by id */
    int64_t n;
    const attn__marian_vocab_source *source;
    attn__marian_added *added;
    int64_t nadded;
} reading;

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), size = strlen(ending);
    return length >= size && strcmp(path + length - size, ending) == 0;
}

static attn_status read_file(reading *r)
{
    enum { MOST_BYTES = 256 << 20, MOST_VALUES = 4 << 20 };
    attn_status status = attn_file_read(&r->bytes, r->context, r->path, MOST_BYTES);
    attn__input input = {
        .context = r->context, .name = r->path, .data = (const uint8_t *)r->bytes.data, .size = r->bytes.size};
    if (status != ATTN_OK)
        return status;
    if (ends_in(r->path, ".spm"))
        return attn__subword_parse(&r->pieces, r->context, r->bytes.data, r->bytes.size, r->path);
    if (ends_in(r->path, ".json"))
        return attn__json_parse(&r->root, &input, 4, MOST_VALUES, 0);
    if (ends_in(r->path, ".yml") || ends_in(r->path, ".yaml"))
        return attn__yaml_parse(&r->root, &input, 4, MOST_VALUES);
    const char *line;
    size_t at = 0, length;
    while (attn__next_line(r->bytes.data, r->bytes.size, &at, &line, &length))
        r->lines++;
    return ATTN_OK;
}

static attn_status fail_piece(const reading *r, int64_t id, const char *what)
{
    return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: the piece of id %" PRId64 " %s", r->path, id, what);
}

/* Checks that a piece is neither empty nor too long, and is text. */
static attn_status check_piece(const reading *r, int64_t id, const char *piece, size_t length)
{
    const char *what = length == 0                ? "is empty"
                       : length > UINT16_MAX      ? "is longer than 65535 bytes"
                       : memchr(piece, 0, length) ? "has a zero byte"
                                                  : NULL;
    return what ? fail_piece(r, id, what) : ATTN_OK;
}

static attn_status place_piece(reading *r, const char *piece, const json_t *value)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= r->n)
        return attn__fail(r->context, ATTN_ERROR_FORMAT,
                          "%s: the id of \"%.60s\" must be an integer from 0 to %" PRId64, r->path, piece, r->n - 1);
    if (r->words[id].text)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"%.60s\" and \"%.60s\" have the same id, %" PRId64,
                          r->path, r->words[id].text, piece, (int64_t)id);
    if (check_piece(r, id, piece, strlen(piece)) != ATTN_OK)
        return ATTN_ERROR_FORMAT;
    r->words[id] = (attn__word){piece, (uint32_t)strlen(piece), 0};
    return ATTN_OK;
}

static attn_status place_pieces(reading *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        size_t length;
        char kind;
        const char *piece = attn__subword_piece(r->pieces, i, &length, &kind);
        if (check_piece(r, i, piece, length) != ATTN_OK)
            return ATTN_ERROR_FORMAT;
        r->words[i] = (attn__word){piece, (uint32_t)length, 0};
    }
    return ATTN_OK;
}

/* Reads the pieces from the lines of a text. The id of a piece is the number of its line, counted from 0. */
static attn_status place_lines(reading *r)
{
    const char *line;
    size_t at = 0, length;
    for (int64_t i = 0; attn__next_line(r->bytes.data, r->bytes.size, &at, &line, &length); i++) {
        if (check_piece(r, i, line, length) != ATTN_OK)
            return ATTN_ERROR_FORMAT;
        r->words[i] = (attn__word){line, (uint32_t)length, 0};
    }
    return ATTN_OK;
}

/* Checks that no two words are equal, so that each word has one id. */
static attn_status check_twice(const reading *r, const attn_vocab *vocab)
{
    for (int64_t i = 0; i < r->n; i++)
        if (attn__words_find(&vocab->words, r->words[i].text, r->words[i].length) != i)
            return fail_piece(r, i, "is also that of another id");
    return ATTN_OK;
}

/* Puts all pieces in the order of their ids. Ids are unique and less than the number of pieces, so each id has a
 * piece. The array has room for <pad> at the end. */
static attn_status place_all(reading *r)
{
    const char *piece;
    json_t *value;
    attn_status status = ATTN_OK;
    r->n = r->pieces ? attn__subword_size(r->pieces) : r->root ? (int64_t)json_object_size(r->root) : r->lines;
    r->words = attn__alloc_zero(r->context, attn__size_mul((size_t)r->n + 1, sizeof *r->words));
    if (!r->words)
        return ATTN_ERROR_MEMORY;
    if (r->pieces)
        return place_pieces(r);
    if (!r->root)
        return place_lines(r);
    json_object_foreach(r->root, piece, value)
    {
        status = place_piece(r, piece, value);
        if (status != ATTN_OK)
            break;
    }
    return status;
}

static attn_status read_spm(attn_vocab *vocab, const char *path)
{
    attn_bytes bytes = {0};
    attn_status status = attn_file_read(&bytes, vocab->context, path, 0);
    if (status == ATTN_OK)
        status = attn__subword_parse(&vocab->subword, vocab->context, bytes.data, bytes.size, path);
    attn_bytes_free(vocab->context, &bytes);
    return status;
}

static attn_status set_specials(const reading *r, attn_vocab *vocab, const attn_config *config)
{
    const char *name = attn__marian_named_token(r->source->tokenizer, "unk_token", "<unk>");
    const char *last = attn__marian_named_token(r->source->tokenizer, "eos_token", "</s>");
    int64_t pad = attn_config_int(config, "pad_token_id", r->n - 1);
    int64_t start = attn_config_int(config, "decoder_start_token_id", pad);
    int64_t end = attn_config_int(config, "eos_token_id", 0);
    int32_t unknown = attn__words_find(&vocab->words, name, strlen(name));
    int32_t eos = attn__words_find(&vocab->words, last, strlen(last));
    if (unknown < 0)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: the vocabulary has no piece %.60s", r->path, name);
    const struct {
        const char *key;
        int64_t id;
    } special[] = {{"pad_token_id", pad}, {"decoder_start_token_id", start}, {"eos_token_id", end}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].id < 0 || special[i].id >= r->n)
            return attn__fail(r->context, ATTN_ERROR_FORMAT,
                              "%s: %s in config.json is %" PRId64 "; expected 0 to %" PRId64, r->path, special[i].key,
                              special[i].id, r->n - 1);
    if (eos >= 0 && eos != end)
        return attn__fail(r->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the tokenizer ends sentences with %.60s, id %" PRId32
                          ", but eos_token_id in config.json is %" PRId64,
                          r->path, last, eos, end);
    vocab->special[ATTN_SPECIAL_PAD] = (int32_t)pad;
    vocab->special[ATTN_SPECIAL_BOS] = (int32_t)start;
    vocab->special[ATTN_SPECIAL_EOS] = (int32_t)end;
    vocab->special[ATTN_SPECIAL_UNK] = unknown;
    vocab->marian = true;
    return ATTN_OK;
}

/* Adds <pad>, because decoding starts with <pad>: Marian has no begin token. The piece that had the id of <pad>
 * becomes the last piece. */
static attn_status add_pad(reading *r, const attn_config *config)
{
    static const char pad[] = "<pad>";
    const int64_t id = attn_config_int(config, "pad_token_id", r->n);
    if (r->n < 2 || r->words[0].length != 4 || memcmp(r->words[0].text, "</s>", 4) != 0 || r->words[1].length != 5 ||
        memcmp(r->words[1].text, "<unk>", 5) != 0)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: the pieces of ids 0 and 1 must be </s> and <unk>",
                          r->path);
    if (id < 2 || id > r->n)
        return attn__fail(r->context, ATTN_ERROR_FORMAT,
                          "%s: the vocabulary has %" PRId64 " pieces, so \"pad_token_id\" must be 2 to %" PRId64
                          ", but the model's is %" PRId64,
                          r->path, r->n, r->n, id);
    r->words[r->n++] = r->words[id];
    r->words[id] = (attn__word){pad, sizeof pad - 1, 0};
    return ATTN_OK;
}

static int64_t find_word(const reading *r, const attn__word *word)
{
    for (int64_t i = 0; i < r->n; i++)
        if (r->words[i].length == word->length && memcmp(r->words[i].text, word->text, word->length) == 0)
            return i;
    return -1;
}

/* Appends the added tokens. Their ids must follow the ids of the vocabulary. If the id of an added token is inside
 * the vocabulary, the vocabulary must have the same token at this id. A token without an id has the id of its text, or
 * the next free id. It is left out if the model has no row for it. */
static attn_status add_tokens(reading *r)
{
    attn_status status = attn__marian_added_tokens(&r->added, &r->nadded, r->context, r->path, r->source->tokenizer);
    if (status != ATTN_OK || r->nadded == 0)
        return status;
    size_t size = attn__size_mul((size_t)(r->n + r->nadded), sizeof *r->words);
    attn__word *words = attn__realloc(r->context, r->words, size);
    if (!words)
        return ATTN_ERROR_MEMORY;
    r->words = words;
    int64_t kept = 0;
    for (int64_t i = 0; i < r->nadded; i++) {
        attn__marian_added *token = &r->added[i];
        attn__word word = {token->text, (uint32_t)strlen(token->text), 0};
        if (token->id < 0)
            token->id = find_word(r, &word);
        if (token->id < 0) {
            if (r->n >= r->source->rows)
                continue;
            token->id = r->n;
        }
        if (token->id == r->n)
            r->words[r->n++] = word;
        if (token->id > r->n)
            return attn__fail(r->context, ATTN_ERROR_FORMAT,
                              "%s: the added token \"%.60s\" has the id %" PRId64 "; the next free id is %" PRId64,
                              r->path, token->text, token->id, r->n);
        const attn__word *there = &r->words[token->id];
        if (there->length != word.length || memcmp(there->text, word.text, word.length) != 0)
            return attn__fail(r->context, ATTN_ERROR_FORMAT,
                              "%s: the added token \"%.60s\" has the id %" PRId64 ", which the token \"%.*s\" has",
                              r->path, token->text, token->id, there->length < 60 ? (int)there->length : 60,
                              there->text);
        r->added[kept++] = *token;
    }
    r->nadded = kept;
    return ATTN_OK;
}

static attn_status finish(const reading *r, attn_vocab *vocab)
{
    attn_status status = check_twice(r, vocab);
    if (status == ATTN_OK)
        status = set_specials(r, vocab, r->source->config);
    vocab->tidy = json_is_true(json_object_get(r->source->tokenizer->config, "clean_up_tokenization_spaces"));
    vocab->added = attn__alloc(r->context, attn__size_mul((size_t)r->nadded + 1, sizeof *vocab->added));
    if (!vocab->added)
        return ATTN_ERROR_MEMORY;
    for (; vocab->nadded < r->nadded; vocab->nadded++) {
        vocab->added[vocab->nadded] = r->added[vocab->nadded].how;
        vocab->added[vocab->nadded].id = (int32_t)r->added[vocab->nadded].id;
    }
    return status == ATTN_OK ? read_spm(vocab, r->pieces ? r->path : r->source->spm) : status;
}

attn_status attn__marian_vocab(attn_vocab **vocab, attn_context *context, const attn__marian_vocab_source *source)
{
    reading r = {.context = context, .path = source->path, .source = source};
    *vocab = NULL;
    attn_status status = read_file(&r);
    if (status == ATTN_OK)
        status = place_all(&r);
    if (status == ATTN_OK && source->pad)
        status = add_pad(&r, source->config);
    if (status == ATTN_OK)
        status = add_tokens(&r);
    if (status == ATTN_OK)
        status = attn__vocab_create(vocab, context, r.words, r.n);
    if (status == ATTN_OK)
        status = finish(&r, *vocab);
    attn__free(context, r.added);
    attn__free(context, r.words);
    json_decref(r.root);
    attn__subword_destroy(r.pieces);
    attn_bytes_free(context, &r.bytes);
    if (status != ATTN_OK) {
        attn_vocab_destroy(*vocab);
        *vocab = NULL;
    }
    return status;
}
