/* SPDX-License-Identifier: MIT
 * Opens the tokenizer of a directory as it was published. */
#include "apps/checkpoint/tokenizer_read.h"

#include "apps/checkpoint/tokenizer_files.h"

#include "io/directory.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 28, MOST_DEPTH = 32, MOST_VALUES = 1000000, LONGEST = 1000000 };

static attn_status parse_config(json_t **config, attn_context *context, const char *name, const attn_bytes *file)
{
    attn__input input = {.context = context, .name = name, .data = (const uint8_t *)file->data, .size = file->size};
    return attn__json_parse(config, &input, MOST_DEPTH, MOST_VALUES, 0);
}

/* Reads tokenizer_config.json, if there is one. The file's text is freed after it was parsed. */
static attn_status read_config(json_t **config, attn_context *context, const char *directory)
{
    attn_bytes file = {0};
    *config = NULL;
    char *path = attn__join(context, directory, "tokenizer_config.json");
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn_status status = ATTN_OK;
    if (attn_file_exists(path)) {
        status = attn_file_read(&file, context, path, MOST_BYTES);
        if (status == ATTN_OK)
            status = parse_config(config, context, path, &file);
        attn_bytes_free(context, &file);
    }
    attn__free(context, path);
    return status;
}

/* Returns the text of a token that is a string or an object with "content", or NULL. */
static const char *token_text(const json_t *config, const char *key)
{
    const json_t *token = json_object_get(config, key);
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

static const char *const special_keys[ATTN__TOKEN_SPECIALS] = {"cls_token", "sep_token", "pad_token", "mask_token",
                                                               "unk_token"};

/* Takes the special tokens and the longest input from tokenizer_config.json. A length that is larger than any model's
 * stands for no limit. */
static void apply_config(attn__tokenizer *t, const json_t *config)
{
    for (int i = 0; i < ATTN__TOKEN_SPECIALS; i++) {
        const char *text = token_text(config, special_keys[i]);
        int32_t id = text ? attn__tokenizer_find(t, text, strlen(text)) : -1;
        t->special[i] = id >= 0 ? id : t->special[i];
    }
    double longest = json_number_value(json_object_get(config, "model_max_length"));
    if (longest >= 1 && longest <= LONGEST)
        t->max_length = (int64_t)longest;
}

/* ------------------------------------------------------------------------------------------------- vocab.txt */

static bool flag(const json_t *config, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* Adds the lines of vocab.txt as tokens. An id is the number of the line. */
static attn_status add_lines(attn__tokenizer *t, const char *name, const attn_bytes *file)
{
    attn_status status = ATTN_OK;
    int64_t id = 0;
    for (size_t at = 0; at < file->size && status == ATTN_OK; id++) {
        const char *line = file->data + at, *newline = memchr(line, '\n', file->size - at);
        size_t length = newline ? (size_t)(newline - line) : file->size - at;
        at += length + 1;
        if (length > 0 && line[length - 1] == '\r')
            length--;
        status = attn__tokenizer_add_token(t, name, line, length, id);
    }
    return status;
}

/* Makes the special tokens of a model with vocab.txt added tokens, which are found in texts. */
static attn_status add_special(attn__tokenizer *t, const char *name, const json_t *config, int32_t ids[])
{
    static const char *const usual[ATTN__TOKEN_SPECIALS] = {"[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"};
    attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN__TOKEN_SPECIALS && status == ATTN_OK; i++) {
        const char *text = token_text(config, special_keys[i]);
        text = text ? text : usual[i];
        ids[i] = attn__trie_find(&t->model.trie, text, strlen(text));
        if (ids[i] < 0)
            return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: the vocabulary has no token \"%.60s\"", name, text);
        attn__added added = {.content = (char *)(uintptr_t)text, .size = strlen(text), .special = true};
        status = attn__tokenizer_add_added(t, name, &added);
    }
    const char *key;
    json_t *token, *more = json_object_get(config, "added_tokens_decoder");
    json_object_foreach(more, key, token) if (status == ATTN_OK) status = attn__tokenizer_read_added(t, name, token);
    return status;
}

/* Refuses a kind of tokenizer whose vocab.txt has another meaning than Bert's. */
static attn_status check_class(attn_context *context, const char *name, const json_t *config)
{
    static const char *const known[] = {"BertTokenizer",          "BertTokenizerFast",    "DistilBertTokenizer",
                                        "ElectraTokenizer",       "ElectraTokenizerFast", "DistilBertTokenizerFast",
                                        "MPNetTokenizer",         "MPNetTokenizerFast",   "MobileBertTokenizer",
                                        "MobileBertTokenizerFast"};
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; class && i < sizeof known / sizeof *known; i++)
        if (strcmp(class, known[i]) == 0)
            return ATTN_OK;
    if (!class)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                      "%s: tokenizer_class \"%.60s\" is not supported with vocab.txt, and needs a tokenizer.json", name,
                      class);
}

/* Builds Bert's tokenizer from vocab.txt and the settings in tokenizer_config.json. */
static attn_status build_bert(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                              const attn_bytes *file, const json_t *config)
{
    int32_t ids[ATTN__TOKEN_SPECIALS] = {0};
    bool lower = flag(config, "do_lower_case", true);
    attn_status status = check_class(context, name, config);
    if (status == ATTN_OK)
        status = attn__tokenizer_create(tokenizer, context);
    if (status == ATTN_OK)
        status = add_lines(*tokenizer, name, file);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_bert_normalizer(*tokenizer, true, flag(config, "tokenize_chinese_chars", true),
                                                     flag(config, "strip_accents", lower), lower);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_bert_splitters(*tokenizer);
    if (status == ATTN_OK)
        status = add_special(*tokenizer, name, config, ids);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_bert_template(*tokenizer, ids[ATTN__TOKEN_CLS], ids[ATTN__TOKEN_SEP]);
    if (status == ATTN_OK) {
        attn__tokenizer_set_word_piece(*tokenizer, "##", 100);
        (*tokenizer)->model.unk = ids[ATTN__TOKEN_UNK];
        status = attn__tokenizer_finish(*tokenizer, name);
    }
    return status;
}

/* --------------------------------------------------------------------------------------- SentencePiece models */

/* A kind of tokenizer with a SentencePiece model: how its ids differ from those of the pieces, and its template. */
typedef struct piece_kind {
    const char *name;
    bool fairseq; /* ids 0 to 3 are <s>, <pad>, </s> and <unk>; the pieces from the fourth on follow, then <mask> */
    const char *single, *pair;
    int extra; /* number of the tokens <extra_id_..>, in falling order */
} piece_kind;

static const piece_kind *find_piece_kind(attn_context *context, const char *name, const json_t *config)
{
    static const piece_kind kinds[] = {{"XLMRobertaTokenizer", true, "c0A0s0", "c0A0s0s0B0s0", 0},
                                       {"XLMRobertaTokenizerFast", true, "c0A0s0", "c0A0s0s0B0s0", 0},
                                       {"T5Tokenizer", false, "A0s0", "A0s0B0s0", 100},
                                       {"T5TokenizerFast", false, "A0s0", "A0s0B0s0", 100}};
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; class && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, class) == 0)
            return &kinds[i];
    attn__fail(
        context, ATTN_ERROR_UNSUPPORTED,
        "%s: tokenizer_class \"%.60s\" is not supported without a tokenizer.json; supported: XLMRobertaTokenizer, "
        "T5Tokenizer",
        name, class ? class : "");
    return NULL;
}

static attn_status add_pieces(attn__tokenizer *t, const char *name, bool fairseq)
{
    static const char *const first[] = {"<s>", "<pad>", "</s>", "<unk>"};
    attn_status status = ATTN_OK;
    for (int i = 0; i < 4 && fairseq && status == ATTN_OK; i++)
        status = attn__tokenizer_add_token(t, name, first[i], strlen(first[i]), i);
    for (int64_t i = fairseq ? 3 : 0; i < attn__subword_size(t->model.subword) && status == ATTN_OK; i++) {
        size_t length;
        char kind;
        const char *piece = attn__subword_piece(t->model.subword, i, &length, &kind);
        status = attn__tokenizer_add_token(t, name, piece, length, i + fairseq);
    }
    t->model.size = t->ntokens; /* the next id */
    return status;
}

/* Adds the special tokens, and finds the ids of the template's tokens. */
static attn_status add_piece_specials(attn__tokenizer *t, const char *name, const json_t *config,
                                      const piece_kind *kind, int32_t *cls, int32_t *sep)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token", "mask_token"};
    const char *const usual[] = {"<s>", "</s>", "<unk>", "<pad>", "<mask>"};
    int32_t ids[5] = {-1, -1, -1, -1, -1};
    attn_status status = ATTN_OK;
    for (int i = 0; i < 5 && status == ATTN_OK; i++) {
        const char *given = token_text(config, keys[i]), *text = given ? given : usual[i];
        bool mask = i == 4;
        attn__added added = {
            .content = (char *)(uintptr_t)text, .size = strlen(text), .special = true, .strips_left = mask};
        if (attn__trie_find(&t->model.trie, text, added.size) >= 0 || (mask && kind->fairseq))
            status = attn__tokenizer_add_added(t, name, &added);
        ids[i] = attn__tokenizer_find(t, text, added.size);
    }
    for (int i = kind->extra - 1; i >= 0 && status == ATTN_OK; i--) {
        char text[32];
        int n = snprintf(text, sizeof text, "<extra_id_%d>", i);
        attn__added added = {.content = text, .size = (size_t)n, .special = true};
        status = attn__tokenizer_add_added(t, name, &added);
    }
    *cls = ids[0];
    *sep = ids[1];
    t->model.unk = ids[2];
    if (status == ATTN_OK && (ids[1] < 0 || ids[2] < 0 || (kind->fairseq && ids[0] < 0)))
        status = attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: the model has no piece for \"%s\"", name,
                            keys[ids[1] < 0   ? 1
                                 : ids[2] < 0 ? 2
                                              : 0]);
    return status;
}

static attn_status build_pieces(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                                const attn_bytes *file, const json_t *config)
{
    int32_t cls = -1, sep = -1;
    const piece_kind *kind = find_piece_kind(context, name, config);
    attn_status status = kind ? attn__tokenizer_create(tokenizer, context) : ATTN_ERROR_UNSUPPORTED;
    attn__tokenizer *t = *tokenizer;
    if (status == ATTN_OK) {
        t->model.kind = ATTN__MODEL_SENTENCEPIECE;
        status = attn__subword_parse(&t->model.subword, context, file->data, file->size, name);
    }
    if (status == ATTN_OK)
        status = add_pieces(t, name, kind->fairseq);
    if (status == ATTN_OK)
        status = add_piece_specials(t, name, config, kind, &cls, &sep);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_template(t, &t->single, kind->single, cls, sep);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_template(t, &t->pair, kind->pair, cls, sep);
    return status == ATTN_OK ? attn__tokenizer_finish(t, name) : status;
}

/* ------------------------------------------------------------------------------------------------- directory */

typedef attn_status build_file(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                               const attn_bytes *file, const json_t *config);

static attn_status build_json(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                              const attn_bytes *file, const json_t *config)
{
    (void)config;
    return attn__tokenizer_parse(tokenizer, context, file->data, file->size, name);
}

static build_file *find_builder(const char *name)
{
    static const struct {
        const char *name;
        build_file *build;
    } files[] = {
#define ROW(name, function) {name, function},
        ATTN__TOKENIZER_FILES(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].build;
    return NULL;
}

static attn_status build(attn__tokenizer **tokenizer, attn_context *context, build_file *from, const char *name,
                         const attn_bytes *file, const json_t *config)
{
    if (!from)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: no tokenizer has a file of this name; expected one such as tokenizer.json or vocab.txt",
                          name);
    attn_status status = from(tokenizer, context, name, file, config);
    if (status == ATTN_OK)
        apply_config(*tokenizer, config);
    return status;
}

/* Destroys a tokenizer that was built only in part. */
static attn_status built(attn__tokenizer **tokenizer, attn_status status)
{
    if (status != ATTN_OK) {
        attn__tokenizer_destroy(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

attn_status attn__tokenizer_parse_file(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                                       const attn_bytes *file, const attn_bytes *config)
{
    *tokenizer = NULL;
    json_t *settings = NULL;
    attn_status status = config ? parse_config(&settings, context, "tokenizer_config.json", config) : ATTN_OK;
    if (status == ATTN_OK)
        status = build(tokenizer, context, find_builder(name), name, file, settings);
    json_decref(settings);
    return built(tokenizer, status);
}

static attn_status open_file(attn__tokenizer **tokenizer, attn_context *context, const char *path, build_file *from,
                             const json_t *config)
{
    attn_bytes file = {0};
    attn_status status = attn_file_read(&file, context, path, MOST_BYTES);
    if (status == ATTN_OK)
        status = build(tokenizer, context, from, path, &file, config);
    attn_bytes_free(context, &file);
    return status;
}

attn_status attn__tokenizer_open(attn__tokenizer **tokenizer, attn_context *context, const char *directory)
{
    const char *name = attn__tokenizer_file(directory);
    *tokenizer = NULL;
    if (!name)
        return attn__fail(context, ATTN_ERROR_NOT_FOUND,
                          "%s: the directory has no tokenizer.json, no vocab.txt and no SentencePiece model",
                          directory);
    json_t *config = NULL;
    attn_status status = read_config(&config, context, directory);
    char *path = status == ATTN_OK ? attn__join(context, directory, name) : NULL;
    if (status == ATTN_OK)
        status = path ? open_file(tokenizer, context, path, find_builder(name), config) : ATTN_ERROR_MEMORY;
    attn__free(context, path);
    json_decref(config);
    return built(tokenizer, status);
}
