/* SPDX-License-Identifier: MIT
 * A MarianMT model's vocabulary: pieces as keys, ids as values, in JSON or YAML; the ids of the .spm that cuts texts
 * mean nothing, unless that is the vocabulary itself. */
#include "apps/marian.h"

#include "apps/model_directory.h"
#include "base/context.h"
#include "data/vocab.h"
#include "io/yaml.h"

#include <inttypes.h>
#include <string.h>

typedef struct reading {
    attn_context *context;
    const char *path;
    attn_bytes bytes;
    json_t *root;
    attn__subword *pieces; /* of a .spm, in place of `root` */
    attn__word *words;     /* by id */
    int64_t n;
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
    attn__input input = {r->context, r->path, (const uint8_t *)r->bytes.data, r->bytes.size};
    if (status != ATTN_OK)
        return status;
    if (ends_in(r->path, ".spm"))
        return attn__subword_parse(&r->pieces, r->context, r->bytes.data, r->bytes.size, r->path);
    return ends_in(r->path, ".yml") || ends_in(r->path, ".yaml")
               ? attn__yaml_parse(&r->root, &input, 4, MOST_VALUES)
               : attn__json_parse(&r->root, &input, 4, MOST_VALUES, 0);
}

static attn_status place_piece(reading *r, const char *piece, const json_t *value)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= r->n)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"%.60s\": an id from 0 to %" PRId64 " belongs there",
                          r->path, piece, r->n - 1);
    if (r->words[id].text)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"%.60s\" and \"%.60s\" have the same id, %" PRId64,
                          r->path, r->words[id].text, piece, (int64_t)id);
    if (!*piece || strlen(piece) > UINT16_MAX)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: id %" PRId64 ": an empty piece, or one too long", r->path,
                          (int64_t)id);
    r->words[id] = (attn__word){piece, (uint32_t)strlen(piece), 0};
    return ATTN_OK;
}

static attn_status place_pieces(reading *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        size_t length;
        char kind;
        const char *piece = attn__subword_piece(r->pieces, i, &length, &kind);
        if (length == 0 || length > UINT16_MAX || memchr(piece, 0, length))
            return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: id %" PRId64 ": an empty piece, or one too long",
                              r->path, i);
        r->words[i] = (attn__word){piece, (uint32_t)length, 0};
    }
    return ATTN_OK;
}

/* As many ids as pieces and none twice: so each from 0 on has one.  There is room for <pad> behind them. */
static attn_status place_all(reading *r)
{
    const char *piece;
    json_t *value;
    attn_status status = ATTN_OK;
    r->n = r->pieces ? attn__subword_size(r->pieces) : (int64_t)json_object_size(r->root);
    r->words = attn__alloc_zero(r->context, attn__size_mul((size_t)r->n + 1, sizeof *r->words));
    if (!r->words)
        return ATTN_ERROR_MEMORY;
    if (r->pieces)
        return place_pieces(r);
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
    int64_t pad = attn_config_int(config, "pad_token_id", r->n - 1);
    int64_t start = attn_config_int(config, "decoder_start_token_id", pad);
    int64_t end = attn_config_int(config, "eos_token_id", 0);
    int32_t unknown = attn__words_find(&vocab->words, "<unk>", 5);
    if (pad < 0 || pad >= r->n || start < 0 || start >= r->n || end < 0 || end >= r->n || unknown < 0)
        return attn__fail(r->context, ATTN_ERROR_FORMAT,
                          "%s: %" PRId64 " pieces, <unk> %s; config.json has pad_token_id %" PRId64
                          ", decoder_start_token_id %" PRId64 " and eos_token_id %" PRId64,
                          r->path, r->n, unknown < 0 ? "not among them" : "among them", pad, start, end);
    vocab->special[ATTN_SPECIAL_PAD] = (int32_t)pad;
    vocab->special[ATTN_SPECIAL_BOS] = (int32_t)start;
    vocab->special[ATTN_SPECIAL_EOS] = (int32_t)end;
    vocab->special[ATTN_SPECIAL_UNK] = unknown;
    vocab->marian = true;
    return ATTN_OK;
}

/* Marian has no token to begin with. */
static attn_status add_pad(reading *r)
{
    static const char pad[] = "<pad>";
    if (r->n < 2 || r->words[0].length != 4 || memcmp(r->words[0].text, "</s>", 4) != 0 || r->words[1].length != 5 ||
        memcmp(r->words[1].text, "<unk>", 5) != 0)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: ids 0 and 1 are not </s> and <unk>", r->path);
    r->words[r->n++] = (attn__word){pad, sizeof pad - 1, 0};
    return ATTN_OK;
}

attn_status attn__marian_vocab(attn_vocab **vocab, attn_context *context, const char *path, const char *spm,
                               const attn_config *config, bool pad)
{
    reading r = {.context = context, .path = path};
    *vocab = NULL;
    attn_status status = read_file(&r);
    if (status == ATTN_OK)
        status = place_all(&r);
    if (status == ATTN_OK && pad)
        status = add_pad(&r);
    if (status == ATTN_OK)
        status = attn__vocab_create(vocab, context, r.words, r.n);
    if (status == ATTN_OK)
        status = set_specials(&r, *vocab, config);
    if (status == ATTN_OK)
        status = read_spm(*vocab, r.pieces ? path : spm);
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
