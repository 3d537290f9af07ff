/* SPDX-License-Identifier: MIT
 *
 * Reads tokenizer.json. What is unknown is refused by its name. Fields that do not change ids, such as the decoder and
 * the padding, are not read. */
#include "apps/checkpoint/tokenizer_read.h"

#include "apps/checkpoint/tokenizer_files.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 32, MOST_VALUES = 16000000 };

typedef struct reader {
    attn__tokenizer *t;
    const char *name; /* of the file */
    bool has_template;
} reader;

static attn_status bad(const reader *r, const char *part, const char *what)
{
    return attn__fail(r->t->context, ATTN_ERROR_FORMAT, "%s: %s: %s", r->name, part, what);
}

static attn_status unsupported(const reader *r, const char *part, const char *kind, const char *known)
{
    return attn__fail(r->t->context, ATTN_ERROR_UNSUPPORTED, "%s: %s \"%.60s\" is not supported; supported: %s",
                      r->name, part, kind, known);
}

/* Return a member, or the default if it is missing or null. */
static bool flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static const char *text_of(const json_t *object, const char *key, const char *otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

static int64_t integer_of(const json_t *value, int64_t otherwise)
{
    if (json_is_integer(value))
        return json_integer_value(value);
    double real = json_is_real(value) ? json_real_value(value) : -1;
    return real >= 0 && real < 1e15 && real == (double)(int64_t)real ? (int64_t)real : otherwise;
}

/* A kind of normalizer, pre-tokenizer or post-processor, and the function that reads it. */
typedef attn_status read_part(reader *r, const json_t *json);
typedef struct kind {
    const char *name;
    read_part *read;
} kind;

static attn_status read_kind(reader *r, const json_t *json, const char *part, const kind *kinds, size_t n,
                             const char *known)
{
    const char *type = text_of(json, "type", NULL);
    if (!json || json_is_null(json))
        return ATTN_OK;
    if (!type)
        return bad(r, part, "\"type\" is missing");
    for (size_t i = 0; i < n; i++)
        if (strcmp(kinds[i].name, type) == 0)
            return kinds[i].read(r, json);
    return unsupported(r, part, type, known);
}

static attn_status read_sequence(reader *r, const json_t *list, const char *part, read_part *read)
{
    attn_status status = json_is_array(list) ? ATTN_OK : bad(r, part, "the Sequence has no list");
    for (size_t i = 0; i < json_array_size(list) && status == ATTN_OK; i++)
        status = read(r, json_array_get(list, i));
    return status;
}

/* Reads {"String": ".."} or {"Regex": ".."}. */
static attn_status read_pattern(reader *r, const json_t *json, const char *part, attn__regex **pattern)
{
    const json_t *of = json_object_get(json, "pattern");
    const json_t *literal = json_object_get(of, "String"), *regex = json_object_get(of, "Regex");
    const json_t *text = literal ? literal : regex;
    if (!json_is_string(text))
        return bad(r, part, "\"pattern\" is missing");
    return attn__regex_create(pattern, r->t->context, json_string_value(text), json_string_length(text),
                              literal != NULL, r->name, part);
}

/* ------------------------------------------------------------------------------------------------ normalizers */

static attn_status add_normalizer(reader *r, attn__normalize_step normalizer)
{
    attn_status status = attn__tokenizer_add_normalizer(r->t, &normalizer);
    if (status != ATTN_OK)
        attn__normalizer_free(r->t->context, &normalizer);
    return status;
}

attn_status attn__tokenizer_add_bert_normalizer(attn__tokenizer *t, bool clean, bool chinese, bool accents, bool lower)
{
    const struct {
        bool wanted;
        attn__normalize_step normalizer;
    } steps[] = {
        {clean, {.kind = ATTN__NORMALIZE_BERT_CLEAN}}, {chinese, {.kind = ATTN__NORMALIZE_BERT_CHINESE}},
        {accents, {.kind = ATTN__NORMALIZE_FORM}},     {accents, {.kind = ATTN__NORMALIZE_BERT_ACCENTS}},
        {lower, {.kind = ATTN__NORMALIZE_LOWERCASE}},
    };
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == ATTN_OK; i++)
        if (steps[i].wanted)
            status = attn__tokenizer_add_normalizer(t, &steps[i].normalizer);
    return status;
}

static attn_status read_bert_normalizer(reader *r, const json_t *json)
{
    bool lower = flag(json, "lowercase", true);
    return attn__tokenizer_add_bert_normalizer(r->t, flag(json, "clean_text", true),
                                               flag(json, "handle_chinese_chars", true),
                                               flag(json, "strip_accents", lower), lower);
}

static attn_status read_form(reader *r, const json_t *json)
{
    const char *type = text_of(json, "type", "");
    return add_normalizer(r, (attn__normalize_step){.kind = ATTN__NORMALIZE_FORM,
                                                    .compatibility = strchr(type, 'K') != NULL,
                                                    .composed = strcmp(type, "NFC") == 0 || strcmp(type, "NFKC") == 0});
}

static attn_status read_lowercase(reader *r, const json_t *json)
{
    (void)json;
    return add_normalizer(r, (attn__normalize_step){.kind = ATTN__NORMALIZE_LOWERCASE});
}

static attn_status read_strip_accents(reader *r, const json_t *json)
{
    (void)json;
    return add_normalizer(r, (attn__normalize_step){.kind = ATTN__NORMALIZE_STRIP_ACCENTS});
}

static attn_status read_nmt(reader *r, const json_t *json)
{
    (void)json;
    return add_normalizer(r, (attn__normalize_step){.kind = ATTN__NORMALIZE_NMT});
}

static attn_status read_byte_normalizer(reader *r, const json_t *json)
{
    (void)json;
    return add_normalizer(r, (attn__normalize_step){.kind = ATTN__NORMALIZE_BYTE_LEVEL});
}

static attn_status read_strip(reader *r, const json_t *json)
{
    return add_normalizer(r, (attn__normalize_step){.kind = ATTN__NORMALIZE_STRIP,
                                                    .left = flag(json, "strip_left", true),
                                                    .right = flag(json, "strip_right", true)});
}

static attn_status set_content(reader *r, attn__normalize_step *n, const json_t *text)
{
    const char *content = json_string_value(text);
    if (!content)
        return bad(r, "normalizer", "the text to insert is missing");
    n->content = attn__strdup(r->t->context, content);
    n->content_size = strlen(content);
    return n->content ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status read_replace(reader *r, const json_t *json)
{
    attn__normalize_step n = {.kind = ATTN__NORMALIZE_REPLACE};
    attn_status status = set_content(r, &n, json_object_get(json, "content"));
    if (status == ATTN_OK)
        status = read_pattern(r, json, "normalizer Replace", &n.pattern);
    if (status == ATTN_OK)
        return add_normalizer(r, n);
    attn__normalizer_free(r->t->context, &n);
    return status;
}

static attn_status read_prepend(reader *r, const json_t *json)
{
    attn__normalize_step n = {.kind = ATTN__NORMALIZE_PREPEND};
    attn_status status = set_content(r, &n, json_object_get(json, "prepend"));
    return status == ATTN_OK ? add_normalizer(r, n) : status;
}

/* Decodes base64 (RFC 4648). Returns the number of bytes, or SIZE_MAX if the text is invalid. */
static size_t decode_base64(const char *text, size_t n, uint8_t *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = 0;
    uint32_t bits = 0;
    int have = 0;
    while (n > 0 && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return SIZE_MAX;
        bits = bits << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[size++] = (uint8_t)(bits >> have);
        }
    }
    return size;
}

/* Reads the rules of SentencePiece: the size of the trie in bytes, the trie, and texts that end with a zero byte. */
static attn_status take_charsmap(reader *r, attn__normalize_step *n, const uint8_t *bytes, size_t size)
{
    size_t trie = size >= 4 ? attn__read_u32(bytes) : SIZE_MAX;
    if (trie == SIZE_MAX || trie % 4 != 0 || trie == 0 || trie > size - 4)
        return bad(r, "normalizer Precompiled", "the charsmap is damaged");
    n->nunits = trie / 4;
    n->texts_size = size - 4 - trie;
    n->units = attn__alloc(r->t->context, trie);
    n->texts = attn__alloc(r->t->context, n->texts_size + 1);
    if (!n->units || !n->texts)
        return ATTN_ERROR_MEMORY;
    for (size_t i = 0; i < n->nunits; i++)
        n->units[i] = attn__read_u32(bytes + 4 + 4 * i);
    memcpy(n->texts, bytes + 4 + trie, n->texts_size);
    n->texts[n->texts_size] = '\0';
    if (attn__utf8_first_invalid(n->texts, n->texts_size) != SIZE_MAX)
        return bad(r, "normalizer Precompiled", "the charsmap has invalid UTF-8");
    return ATTN_OK;
}

static attn_status read_precompiled(reader *r, const json_t *json)
{
    const json_t *map = json_object_get(json, "precompiled_charsmap");
    size_t n = json_string_length(map);
    if (!json_is_string(map))
        return bad(r, "normalizer Precompiled", "\"precompiled_charsmap\" is missing");
    if (n == 0)
        return ATTN_OK;
    attn__normalize_step normalizer = {.kind = ATTN__NORMALIZE_PRECOMPILED};
    uint8_t *bytes = attn__alloc(r->t->context, n);
    if (!bytes)
        return ATTN_ERROR_MEMORY;
    size_t size = decode_base64(json_string_value(map), n, bytes);
    attn_status status = size == SIZE_MAX ? bad(r, "normalizer Precompiled", "the charsmap is not base64")
                                          : take_charsmap(r, &normalizer, bytes, size);
    attn__free(r->t->context, bytes);
    if (status == ATTN_OK)
        return add_normalizer(r, normalizer);
    attn__normalizer_free(r->t->context, &normalizer);
    return status;
}

static attn_status read_normalizer(reader *r, const json_t *json);

static attn_status read_normalizers(reader *r, const json_t *json)
{
    return read_sequence(r, json_object_get(json, "normalizers"), "normalizer", read_normalizer);
}

static attn_status read_normalizer(reader *r, const json_t *json)
{
    static const kind kinds[] = {{"BertNormalizer", read_bert_normalizer},
                                 {"NFC", read_form},
                                 {"NFD", read_form},
                                 {"NFKC", read_form},
                                 {"NFKD", read_form},
                                 {"Lowercase", read_lowercase},
                                 {"Strip", read_strip},
                                 {"StripAccents", read_strip_accents},
                                 {"Replace", read_replace},
                                 {"Prepend", read_prepend},
                                 {"Nmt", read_nmt},
                                 {"Precompiled", read_precompiled},
                                 {"ByteLevel", read_byte_normalizer},
                                 {"Sequence", read_normalizers}};
    return read_kind(r, json, "normalizer", kinds, sizeof kinds / sizeof *kinds,
                     "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Nmt, "
                     "Precompiled, ByteLevel, Sequence");
}

/* --------------------------------------------------------------------------------------------- pre-tokenizers */

static attn_status add_splitter(reader *r, attn__splitter splitter)
{
    attn_status status = attn__tokenizer_add_splitter(r->t, &splitter);
    if (status != ATTN_OK)
        attn__regex_destroy(splitter.pattern);
    return status;
}

attn_status attn__tokenizer_add_bert_splitters(attn__tokenizer *t)
{
    attn__splitter spaces = {.kind = ATTN__SPLIT_SPACES, .behavior = ATTN__SPLIT_REMOVED};
    attn__splitter punctuation = {.kind = ATTN__SPLIT_PUNCTUATION, .behavior = ATTN__SPLIT_ISOLATED};
    attn_status status = attn__tokenizer_add_splitter(t, &spaces);
    return status == ATTN_OK ? attn__tokenizer_add_splitter(t, &punctuation) : status;
}

static attn_status read_bert_splitter(reader *r, const json_t *json)
{
    (void)json;
    return attn__tokenizer_add_bert_splitters(r->t);
}

static attn_status read_byte_level(reader *r, const json_t *json)
{
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    attn_status status = ATTN_OK;
    if (flag(json, "add_prefix_space", true))
        status = add_splitter(r, (attn__splitter){.kind = ATTN__SPLIT_SPACE_BEFORE});
    if (status == ATTN_OK && flag(json, "use_regex", true)) {
        attn__splitter split = {.kind = ATTN__SPLIT_PATTERN, .behavior = ATTN__SPLIT_ISOLATED};
        status = attn__regex_create(&split.pattern, r->t->context, gpt2, sizeof gpt2 - 1, false, r->name, "ByteLevel");
        if (status == ATTN_OK)
            status = add_splitter(r, split);
    }
    return status == ATTN_OK ? add_splitter(r, (attn__splitter){.kind = ATTN__SPLIT_BYTE_LEVEL}) : status;
}

static attn_status read_words(reader *r, const json_t *json)
{
    (void)json;
    return add_splitter(r,
                        (attn__splitter){.kind = ATTN__SPLIT_WORDS, .behavior = ATTN__SPLIT_REMOVED, .invert = true});
}

static attn_status read_spaces(reader *r, const json_t *json)
{
    (void)json;
    return add_splitter(r, (attn__splitter){.kind = ATTN__SPLIT_SPACES, .behavior = ATTN__SPLIT_REMOVED});
}

static attn_status read_behavior(reader *r, const json_t *json, const char *part, attn__behavior *behavior)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = text_of(json, "behavior", "Isolated");
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) == 0) {
            *behavior = (attn__behavior)i;
            return ATTN_OK;
        }
    }
    return attn__fail(r->t->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: %s: behavior \"%.60s\" is not supported; supported: Removed, Isolated, "
                      "MergedWithPrevious, MergedWithNext, Contiguous",
                      r->name, part, name);
}

static attn_status read_split(reader *r, const json_t *json)
{
    attn__splitter s = {.kind = ATTN__SPLIT_PATTERN, .invert = flag(json, "invert", false)};
    attn_status status = read_behavior(r, json, "pre_tokenizer Split", &s.behavior);
    if (status == ATTN_OK)
        status = read_pattern(r, json, "pre_tokenizer Split", &s.pattern);
    return status == ATTN_OK ? add_splitter(r, s) : status;
}

static attn_status read_delimiter(reader *r, const json_t *json)
{
    const char *delimiter = text_of(json, "delimiter", "");
    attn__splitter s = {.kind = ATTN__SPLIT_PATTERN, .behavior = ATTN__SPLIT_REMOVED};
    attn_status status = attn__regex_create(&s.pattern, r->t->context, delimiter, strlen(delimiter), true, r->name,
                                            "pre_tokenizer CharDelimiterSplit");
    return status == ATTN_OK ? add_splitter(r, s) : status;
}

static attn_status read_digits(reader *r, const json_t *json)
{
    bool each = flag(json, "individual_digits", false);
    return add_splitter(r, (attn__splitter){.kind = ATTN__SPLIT_DIGITS,
                                            .behavior = each ? ATTN__SPLIT_ISOLATED : ATTN__SPLIT_CONTIGUOUS});
}

static attn_status read_punctuation(reader *r, const json_t *json)
{
    attn__splitter s = {.kind = ATTN__SPLIT_PUNCTUATION};
    attn_status status = read_behavior(r, json, "pre_tokenizer Punctuation", &s.behavior);
    return status == ATTN_OK ? add_splitter(r, s) : status;
}

static attn_status read_metaspace(reader *r, const json_t *json)
{
    const char *replacement = text_of(json, "replacement", "\xe2\x96\x81");
    bool prefix = flag(json, "add_prefix_space", true);
    const char *scheme = text_of(json, "prepend_scheme", prefix ? "always" : "never");
    attn__splitter s = {
        .kind = ATTN__SPLIT_METASPACE, .behavior = ATTN__SPLIT_MERGED_WITH_NEXT, .whole = !flag(json, "split", true)};
    size_t n = strlen(replacement);
    uint32_t code;
    if (n == 0 || n >= sizeof s.content || (size_t)attn__utf8_decode(replacement, replacement + n, &code) != n)
        return bad(r, "pre_tokenizer Metaspace", "the replacement is not one character");
    memcpy(s.content, replacement, n);
    if (strcmp(scheme, "always") == 0)
        s.prepend = ATTN__PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        s.prepend = ATTN__PREPEND_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return unsupported(r, "pre_tokenizer Metaspace: prepend_scheme", scheme, "first, always, never");
    return add_splitter(r, s);
}

static attn_status read_splitter(reader *r, const json_t *json);

static attn_status read_splitters(reader *r, const json_t *json)
{
    return read_sequence(r, json_object_get(json, "pretokenizers"), "pre_tokenizer", read_splitter);
}

static attn_status read_splitter(reader *r, const json_t *json)
{
    static const kind kinds[] = {{"BertPreTokenizer", read_bert_splitter},
                                 {"ByteLevel", read_byte_level},
                                 {"Whitespace", read_words},
                                 {"WhitespaceSplit", read_spaces},
                                 {"Split", read_split},
                                 {"CharDelimiterSplit", read_delimiter},
                                 {"Digits", read_digits},
                                 {"Punctuation", read_punctuation},
                                 {"Metaspace", read_metaspace},
                                 {"Sequence", read_splitters}};
    return read_kind(r, json, "pre_tokenizer", kinds, sizeof kinds / sizeof *kinds,
                     "BertPreTokenizer, ByteLevel, Whitespace, WhitespaceSplit, Split, CharDelimiterSplit, Digits, "
                     "Punctuation, Metaspace, Sequence");
}

/* --------------------------------------------------------------------------------------------- post-processors */

static attn_status claim_template(reader *r)
{
    if (r->has_template)
        return bad(r, "post_processor", "two post-processors that add tokens are not supported");
    r->has_template = true;
    return ATTN_OK;
}

attn_status attn__tokenizer_add_template(attn__tokenizer *t, attn__template *to, const char *as, int32_t cls,
                                         int32_t sep)
{
    attn_status status = ATTN_OK;
    for (; *as && status == ATTN_OK; as += 2) {
        int8_t text = *as == 'A' ? 0 : *as == 'B' ? 1 : -1;
        status = attn__template_add(t, to, text, as[1] - '0', *as == 'c' ? cls : sep);
    }
    return status;
}

attn_status attn__tokenizer_add_bert_template(attn__tokenizer *t, int32_t cls, int32_t sep)
{
    attn_status status = attn__tokenizer_add_template(t, &t->single, "c0A0s0", cls, sep);
    return status == ATTN_OK ? attn__tokenizer_add_template(t, &t->pair, "c0A0s0B1s1", cls, sep) : status;
}

/* Reads ["[SEP]", 102]. */
static attn_status read_token(reader *r, const json_t *json, const char *key, int32_t *id)
{
    const json_t *pair = json_object_get(json, key);
    int64_t read = integer_of(json_array_get(pair, 1), -1);
    if (read < 0 || read > INT32_MAX)
        return attn__fail(r->t->context, ATTN_ERROR_FORMAT, "%s: post_processor: \"%s\" has no id", r->name, key);
    *id = (int32_t)read;
    return ATTN_OK;
}

static attn_status read_bert_template(reader *r, const json_t *json)
{
    int32_t cls = 0, sep = 0;
    attn_status status = claim_template(r);
    if (status == ATTN_OK)
        status = read_token(r, json, "cls", &cls);
    if (status == ATTN_OK)
        status = read_token(r, json, "sep", &sep);
    return status == ATTN_OK ? attn__tokenizer_add_bert_template(r->t, cls, sep) : status;
}

static attn_status read_roberta_template(reader *r, const json_t *json)
{
    int32_t cls = 0, sep = 0;
    attn_status status = claim_template(r);
    r->t->trims_offsets = flag(json, "trim_offsets", true);
    r->t->keeps_first_space = flag(json, "add_prefix_space", true);
    if (status == ATTN_OK)
        status = read_token(r, json, "cls", &cls);
    if (status == ATTN_OK)
        status = read_token(r, json, "sep", &sep);
    if (status == ATTN_OK)
        status = attn__tokenizer_add_template(r->t, &r->t->single, "c0A0s0", cls, sep);
    return status == ATTN_OK ? attn__tokenizer_add_template(r->t, &r->t->pair, "c0A0s0s0B0s0", cls, sep) : status;
}

static attn_status read_byte_offsets(reader *r, const json_t *json)
{
    if (flag(json, "trim_offsets", true)) {
        r->t->trims_offsets = true;
        r->t->keeps_first_space = flag(json, "add_prefix_space", true);
    }
    return ATTN_OK;
}

/* Reads an element of a template, {"Sequence": {..}} or {"SpecialToken": {..}}. */
static attn_status read_template_piece(reader *r, const json_t *json, const json_t *tokens, attn__template *to)
{
    static const char part[] = "post_processor TemplateProcessing";
    const json_t *sequence = json_object_get(json, "Sequence"), *token = json_object_get(json, "SpecialToken");
    const json_t *piece = sequence ? sequence : token;
    const char *id = text_of(piece, "id", NULL);
    int64_t type = integer_of(json_object_get(piece, "type_id"), 0);
    if (!id || type < 0 || type > INT32_MAX)
        return bad(r, part, "an element is neither a Sequence nor a SpecialToken");
    if (sequence) {
        if (strcmp(id, "A") != 0 && strcmp(id, "B") != 0)
            return unsupported(r, part, id, "A, B");
        return attn__template_add(r->t, to, id[0] == 'B', (int32_t)type, 0);
    }
    const json_t *ids = json_object_get(json_object_get(tokens, id), "ids");
    attn_status status = json_array_size(ids) > 0 ? ATTN_OK : bad(r, part, "a special token has no ids");
    for (size_t i = 0; i < json_array_size(ids) && status == ATTN_OK; i++) {
        int64_t number = integer_of(json_array_get(ids, i), -1);
        if (number < 0 || number > INT32_MAX)
            return bad(r, part, "an id of a special token is not 0 to 2147483647");
        status = attn__template_add(r->t, to, -1, (int32_t)type, (int32_t)number);
    }
    return status;
}

static attn_status read_template(reader *r, const json_t *json)
{
    const json_t *tokens = json_object_get(json, "special_tokens");
    const json_t *lists[] = {json_object_get(json, "single"), json_object_get(json, "pair")};
    attn__template *to[] = {&r->t->single, &r->t->pair};
    attn_status status = claim_template(r);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        if (!json_is_array(lists[i]))
            return bad(r, "post_processor TemplateProcessing",
                       i ? "\"pair\" is not a list" : "\"single\" is not a list");
        for (size_t j = 0; j < json_array_size(lists[i]) && status == ATTN_OK; j++)
            status = read_template_piece(r, json_array_get(lists[i], j), tokens, to[i]);
    }
    for (int64_t i = 0; i < r->t->single.n && status == ATTN_OK; i++)
        if (r->t->single.pieces[i].text == 1)
            return bad(r, "post_processor TemplateProcessing",
                       "\"single\", the template of one text, has a second text");
    return status;
}

static attn_status read_processor(reader *r, const json_t *json);

static attn_status read_processors(reader *r, const json_t *json)
{
    return read_sequence(r, json_object_get(json, "processors"), "post_processor", read_processor);
}

static attn_status read_processor(reader *r, const json_t *json)
{
    static const kind kinds[] = {{"TemplateProcessing", read_template},
                                 {"BertProcessing", read_bert_template},
                                 {"RobertaProcessing", read_roberta_template},
                                 {"ByteLevel", read_byte_offsets},
                                 {"Sequence", read_processors}};
    return read_kind(r, json, "post_processor", kinds, sizeof kinds / sizeof *kinds,
                     "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
}

/* ------------------------------------------------------------------------------------------------------ models */

/* Reads the tokens of a vocabulary, {"token": id, ..}. */
static attn_status read_vocabulary(reader *r, const json_t *json)
{
    json_t *vocab = json_object_get(json, "vocab");
    const char *token;
    json_t *id;
    if (!json_is_object(vocab))
        return bad(r, "model", "\"vocab\" is missing");
    json_object_foreach(vocab, token, id)
    {
        attn_status status = attn__tokenizer_add_token(r->t, r->name, token, strlen(token), integer_of(id, -1));
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static void set_unknown(reader *r, const char *token)
{
    r->t->model.unk = token ? attn__trie_find(&r->t->model.trie, token, strlen(token)) : -1;
    r->t->special[ATTN__TOKEN_UNK] = r->t->model.unk;
}

void attn__tokenizer_set_word_piece(attn__tokenizer *t, const char *prefix, int64_t most_characters)
{
    t->model.kind = ATTN__MODEL_WORD_PIECE;
    t->model.continuing_node = attn__trie_walk(&t->model.trie, ATTN__TRIE_ROOT, prefix, strlen(prefix));
    t->model.most_characters = most_characters;
}

static attn_status read_word_piece(reader *r, const json_t *json)
{
    attn_status status = read_vocabulary(r, json);
    if (status != ATTN_OK)
        return status;
    set_unknown(r, text_of(json, "unk_token", "[UNK]"));
    attn__tokenizer_set_word_piece(r->t, text_of(json, "continuing_subword_prefix", "##"),
                                   integer_of(json_object_get(json, "max_input_chars_per_word"), 100));
    return ATTN_OK;
}

static attn_status read_word_level(reader *r, const json_t *json)
{
    r->t->model.kind = ATTN__MODEL_WORD_LEVEL;
    attn_status status = read_vocabulary(r, json);
    set_unknown(r, text_of(json, "unk_token", "<unk>"));
    return status;
}

static attn_status read_unigram(reader *r, const json_t *json)
{
    attn__token_model *m = &r->t->model;
    const json_t *vocab = json_object_get(json, "vocab");
    size_t n = json_array_size(vocab);
    int64_t unk = integer_of(json_object_get(json, "unk_id"), -1);
    double least = 0;
    m->kind = ATTN__MODEL_UNIGRAM;
    m->byte_fallback = flag(json, "byte_fallback", false);
    if (n == 0 || unk >= (int64_t)n)
        return bad(r, "model", n == 0 ? "\"vocab\" is missing or empty" : "unk_id is not in the vocabulary");
    m->scores = attn__alloc(r->t->context, attn__size_mul(n, sizeof *m->scores));
    attn_status status = m->scores ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        const json_t *entry = json_array_get(vocab, i), *token = json_array_get(entry, 0);
        const json_t *score = json_array_get(entry, 1);
        if (!json_is_string(token) || !json_is_number(score))
            return bad(r, "model", "an entry of the vocabulary is not a token with a score");
        m->scores[i] = json_number_value(score);
        least = i == 0 || m->scores[i] < least ? m->scores[i] : least;
        status =
            attn__tokenizer_add_token(r->t, r->name, json_string_value(token), json_string_length(token), (int64_t)i);
    }
    m->size = (int64_t)n;
    m->unk = unk < 0 ? -1 : (int32_t)unk;
    m->unk_score = least - 10;
    r->t->special[ATTN__TOKEN_UNK] = m->unk;
    return status;
}

/* Finds the two tokens of a merge, ["a", "b"] or "a b". */
static bool merge_parts(const json_t *json, const char *parts[2], size_t sizes[2])
{
    if (json_is_array(json) && json_array_size(json) == 2) {
        for (size_t i = 0; i < 2; i++) {
            parts[i] = json_string_value(json_array_get(json, i));
            sizes[i] = json_string_length(json_array_get(json, i));
        }
        return parts[0] && parts[1];
    }
    const char *text = json_string_value(json), *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return false;
    parts[0] = text;
    sizes[0] = (size_t)(space - text);
    parts[1] = space + 1;
    sizes[1] = strlen(space + 1);
    return true;
}

static attn_status read_merge(reader *r, const json_t *json, uint32_t rank, char **joined)
{
    attn__token_model *m = &r->t->model;
    const char *parts[2];
    size_t sizes[2], prefix = m->prefix ? strlen(m->prefix) : 0;
    if (!merge_parts(json, parts, sizes) || sizes[1] < prefix)
        return attn__fail(r->t->context, ATTN_ERROR_FORMAT, "%s: model: merge %" PRIu32 " is not two tokens", r->name,
                          rank);
    char *text = attn__realloc(r->t->context, *joined, sizes[0] + sizes[1] + 1);
    if (!text)
        return ATTN_ERROR_MEMORY;
    *joined = text;
    memcpy(text, parts[0], sizes[0]);
    memcpy(text + sizes[0], parts[1] + prefix, sizes[1] - prefix);
    int32_t left = attn__trie_find(&m->trie, parts[0], sizes[0]);
    int32_t right = attn__trie_find(&m->trie, parts[1], sizes[1]);
    int32_t merged = attn__trie_find(&m->trie, text, sizes[0] + sizes[1] - prefix);
    if (left < 0 || right < 0 || merged < 0)
        return attn__fail(
            r->t->context, ATTN_ERROR_FORMAT,
            "%s: model: merge %" PRIu32 ", \"%.*s\" and \"%.*s\", has a token that is not in the vocabulary", r->name,
            rank, (int)(sizes[0] < 60 ? sizes[0] : 60), parts[0], (int)(sizes[1] < 60 ? sizes[1] : 60), parts[1]);
    attn__merge_put(m, left, right, rank, merged);
    return ATTN_OK;
}

static attn_status read_merges(reader *r, const json_t *list)
{
    attn__token_model *m = &r->t->model;
    size_t n = json_array_size(list), slots = 16, rank = 0;
    char *joined = NULL;
    if (!json_is_array(list))
        return bad(r, "model", "\"merges\" is missing");
    while (slots < 2 * n)
        slots *= 2;
    m->merges = attn__alloc_zero(r->t->context, attn__size_mul(slots, sizeof *m->merges));
    m->merges_mask = slots - 1;
    attn_status status = m->merges ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text || strncmp(text, "#version", 8) != 0)
            status = read_merge(r, json_array_get(list, i), (uint32_t)rank++, &joined);
    }
    attn__free(r->t->context, joined);
    return status;
}

static attn_status read_affix(reader *r, const json_t *json, const char *key, char **affix)
{
    const char *text = text_of(json, key, "");
    if (*text)
        *affix = attn__strdup(r->t->context, text);
    return *text && !*affix ? ATTN_ERROR_MEMORY : ATTN_OK;
}

static attn_status read_bpe(reader *r, const json_t *json)
{
    attn__token_model *m = &r->t->model;
    m->kind = ATTN__MODEL_BPE;
    m->fuse_unk = flag(json, "fuse_unk", false);
    m->byte_fallback = flag(json, "byte_fallback", false);
    m->ignore_merges = flag(json, "ignore_merges", false);
    if (json_number_value(json_object_get(json, "dropout")) != 0)
        return bad(r, "model", "dropout of merges is not supported");
    attn_status status = read_affix(r, json, "continuing_subword_prefix", &m->prefix);
    if (status == ATTN_OK)
        status = read_affix(r, json, "end_of_word_suffix", &m->suffix);
    if (status == ATTN_OK)
        status = read_vocabulary(r, json);
    if (status == ATTN_OK)
        status = read_merges(r, json_object_get(json, "merges"));
    m->has_unk = text_of(json, "unk_token", NULL) != NULL;
    set_unknown(r, text_of(json, "unk_token", NULL));
    return status;
}

static attn_status read_model(reader *r, const json_t *json)
{
    static const kind kinds[] = {
        {"WordPiece", read_word_piece}, {"BPE", read_bpe}, {"Unigram", read_unigram}, {"WordLevel", read_word_level}};
    if (!json_is_object(json))
        return attn__fail(r->t->context, ATTN_ERROR_FORMAT, "%s: \"model\" is missing", r->name);
    if (json_object_get(json, "type"))
        return read_kind(r, json, "model", kinds, sizeof kinds / sizeof *kinds, "WordPiece, BPE, Unigram, WordLevel");
    /* old files do not name the kind */
    if (json_object_get(json, "merges"))
        return read_bpe(r, json);
    if (json_is_array(json_object_get(json, "vocab")))
        return read_unigram(r, json);
    return json_object_get(json, "continuing_subword_prefix") ? read_word_piece(r, json) : read_word_level(r, json);
}

/* -------------------------------------------------------------------------------------------------- the file */

attn_status attn__tokenizer_read_added(attn__tokenizer *t, const char *name, const json_t *json)
{
    const json_t *content = json_object_get(json, "content");
    if (!json_is_string(content))
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: added_tokens: a token has no \"content\"", name);
    bool special = flag(json, "special", false);
    attn__added added = {.content = (char *)(uintptr_t)json_string_value(content),
                         .size = json_string_length(content),
                         .special = special,
                         .single_word = flag(json, "single_word", false),
                         .strips_left = flag(json, "lstrip", false),
                         .strips_right = flag(json, "rstrip", false),
                         .normalized = flag(json, "normalized", !special)};
    return added.size == 0 ? ATTN_OK : attn__tokenizer_add_added(t, name, &added);
}

static attn_status read_added(reader *r, const json_t *list)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < json_array_size(list) && status == ATTN_OK; i++)
        status = attn__tokenizer_read_added(r->t, r->name, json_array_get(list, i));
    return status;
}

static attn_status read_all(reader *r, const json_t *root)
{
    const char *version = text_of(root, "version", "1.0");
    if (strcmp(version, "1.0") != 0)
        return unsupported(r, "version", version, "1.0");
    attn__tokenizer *t = r->t;
    attn_status status = read_normalizer(r, json_object_get(root, "normalizer"));
    if (status == ATTN_OK)
        status = read_splitter(r, json_object_get(root, "pre_tokenizer"));
    if (status == ATTN_OK)
        status = read_processor(r, json_object_get(root, "post_processor"));
    if (status == ATTN_OK && !r->has_template) {
        status = attn__tokenizer_add_template(t, &t->single, "A0", 0, 0);
        if (status == ATTN_OK)
            status = attn__tokenizer_add_template(t, &t->pair, "A0B1", 0, 0);
    }
    if (status == ATTN_OK)
        status = read_model(r, json_object_get(root, "model"));
    if (status == ATTN_OK)
        status = read_added(r, json_object_get(root, "added_tokens"));
    t->max_length = integer_of(json_object_get(json_object_get(root, "truncation"), "max_length"), 0);
    int64_t pad = integer_of(json_object_get(json_object_get(root, "padding"), "pad_id"), -1);
    if (pad >= 0 && pad < t->ntokens)
        t->special[ATTN__TOKEN_PAD] = (int32_t)pad;
    return status == ATTN_OK ? attn__tokenizer_finish(t, r->name) : status;
}

attn_status attn__tokenizer_parse(attn__tokenizer **tokenizer, attn_context *context, const char *json, size_t size,
                                  const char *name)
{
    json_t *root = NULL;
    attn__input input = {.context = context, .name = name, .data = (const uint8_t *)json, .size = size};
    attn_status status = attn__tokenizer_create(tokenizer, context);
    if (status == ATTN_OK)
        status = attn__json_parse(&root, &input, MOST_DEPTH, MOST_VALUES, 0);
    if (status == ATTN_OK)
        status = read_all(&(reader){.t = *tokenizer, .name = name}, root);
    json_decref(root);
    if (status != ATTN_OK) {
        attn__tokenizer_destroy(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}
