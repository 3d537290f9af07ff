/* SPDX-License-Identifier: MIT
 *
 * Encodes texts: added tokens are found, what is between them is normalized, split and tokenized, and the template
 * joins the tokens. */
#include "data/tokenizer/parts.h"

#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

#include <inttypes.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- added tokens */

static uint32_t code_before(const char *bytes, size_t at, size_t *begin)
{
    uint32_t code = 0;
    *begin = at;
    do
        --*begin;
    while (*begin > 0 && ((unsigned char)bytes[*begin] & 0xc0) == 0x80);
    attn__utf8_decode(bytes + *begin, bytes + at, &code);
    return code;
}

static bool is_single_word(const char *bytes, size_t n, size_t begin, size_t end)
{
    size_t unused;
    uint32_t code = 0;
    if (begin > 0 && attn__unicode_word(code_before(bytes, begin, &unused), true))
        return false;
    if (end < n)
        attn__utf8_decode(bytes + end, bytes + n, &code);
    return end == n || !attn__unicode_word(code, true);
}

/* Splits bytes [begin, end) of the pieces' text at the added tokens of a trie. Of the tokens that begin at a place the
 * longest one is taken. */
static void split_added(const attn__tokenizer *t, const attn__trie *trie, attn__pieces *out, size_t from, size_t to)
{
    if (from == to) /* the text may have no bytes at all */
        return;
    const char *bytes = out->text.bytes + from;
    size_t n = to - from, done = 0;
    for (size_t at = 0; at < n && trie->nodes > 1;) {
        uint32_t node = attn__trie_next(trie, ATTN__TRIE_ROOT, (uint8_t)bytes[at]);
        size_t stop = at;
        int32_t which = -1;
        for (size_t i = at + 1; node != ATTN__TRIE_NONE; i++) {
            if (trie->values[node] >= 0) {
                which = trie->values[node];
                stop = i;
            }
            if (i >= n)
                break;
            node = attn__trie_next(trie, node, (uint8_t)bytes[i]);
        }
        if (which < 0) {
            at++;
            continue;
        }
        const attn__added *added = &t->added[which];
        size_t begin = at, before;
        at = stop;
        if (added->single_word && !is_single_word(bytes, n, begin, stop))
            continue;
        while (added->strips_left && begin > done && attn__unicode_space(code_before(bytes, begin, &before)))
            begin = before;
        while (added->strips_right && stop < n) {
            uint32_t code;
            int length = attn__utf8_decode(bytes + stop, bytes + n, &code);
            if (!length || !attn__unicode_space(code))
                break;
            stop += (size_t)length;
        }
        if (begin < done) /* the spaces belong to the token before */
            begin = done;
        attn__pieces_add(out, from + done, from + begin, -1);
        attn__pieces_add(out, from + begin, from + stop, added->id);
        done = stop;
        at = stop > at ? stop : at;
    }
    attn__pieces_add(out, from + done, to, -1);
}

/* Replaces `pieces` by the normalized pieces between the added tokens of its text. */
static void extract_and_normalize(const attn__tokenizer *t, attn__pieces *pieces, attn__pieces *scratch)
{
    attn__aligned_text part = {.context = t->context}, other = {.context = t->context};
    split_added(t, &t->added_raw, pieces, 0, pieces->text.n);
    attn__pieces_clear(scratch);
    for (size_t i = 0; i < pieces->n && pieces->text.status == ATTN_OK && scratch->text.status == ATTN_OK; i++) {
        const attn__piece *piece = &pieces->items[i];
        size_t begin = scratch->text.n;
        if (piece->id >= 0 || t->nnormalizers == 0) {
            attn__aligned_copy(&scratch->text, &pieces->text, piece->begin, piece->end);
        } else {
            part.n = 0;
            attn__aligned_copy(&part, &pieces->text, piece->begin, piece->end);
            attn__normalize(t, &part, &other);
            attn__aligned_copy(&scratch->text, &part, 0, part.n);
            if (part.status != ATTN_OK)
                scratch->text.status = part.status;
        }
        if (scratch->text.status != ATTN_OK)
            break;
        if (piece->id >= 0)
            attn__pieces_add(scratch, begin, scratch->text.n, piece->id);
        else
            split_added(t, &t->added_normalized, scratch, begin, scratch->text.n);
    }
    attn__aligned_free(&part);
    attn__aligned_free(&other);
    if (pieces->text.status != ATTN_OK)
        scratch->text.status = pieces->text.status;
    attn__pieces kept = *pieces;
    *pieces = *scratch;
    *scratch = kept;
}

/* ------------------------------------------------------------------------------------------------- one text */

/* Converts offsets in the pieces' text to offsets in the original text. */
static void place_tokens(const attn__aligned_text *text, attn__encoding *tokens, int64_t from)
{
    for (int64_t i = from; i < tokens->n; i++) {
        uint32_t begin = tokens->offsets[i][0], end = tokens->offsets[i][1];
        tokens->offsets[i][0] = text->origins[begin].begin;
        tokens->offsets[i][1] = end > begin ? text->origins[end - 1].end : text->origins[begin].begin;
    }
}

/* Tokenizes the pieces, and stops when there are `most` tokens or more. */
static attn_status encode_pieces(const attn__tokenizer *t, const attn__pieces *pieces, int64_t most,
                                 attn__encoding *tokens)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < pieces->n && status == ATTN_OK && tokens->n < most; i++) {
        const attn__piece *piece = &pieces->items[i];
        int64_t before = tokens->n;
        if (piece->id >= 0)
            status = attn__encoding_add(t->context, tokens, piece->id, piece->begin, piece->end);
        else
            status = attn__model_encode(t, pieces->text.bytes, piece->begin, piece->end, tokens);
        place_tokens(&pieces->text, tokens, before);
    }
    return status;
}

/* Appends the tokens of one text, until there are `most` or more. */
static attn_status encode_text(const attn__tokenizer *t, const char *text, size_t size, int64_t most,
                               attn__encoding *tokens)
{
    if (size > INT32_MAX)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT, "a text has %zu bytes; at most 2147483647 can be encoded",
                          size);
    attn__pieces pieces = {.text = {.context = t->context}}, scratch = {.text = {.context = t->context}};
    attn__aligned_decode(&pieces.text, text, size);
    if (pieces.text.status == ATTN_OK)
        extract_and_normalize(t, &pieces, &scratch);
    if (pieces.text.status == ATTN_OK)
        attn__split(t, &pieces, &scratch);
    attn_status status = pieces.text.status;
    if (status == ATTN_OK)
        status = encode_pieces(t, &pieces, most, tokens);
    attn__pieces_free(&pieces);
    attn__pieces_free(&scratch);
    return status;
}

/* ------------------------------------------------------------------------------------------------- together */

/* Counts the spaces at the beginning or the end of a token, whether as they are or as the character of a byte-level
 * model. */
static int count_spaces(const char *text, size_t n, bool at_end)
{
    int count = 0;
    while (n > 0) {
        uint32_t code = 0;
        size_t before = 0, length;
        if (at_end)
            code = code_before(text, n, &before);
        length = at_end ? n - before : (size_t)attn__utf8_decode(text, text + n, &code);
        if (length == 0 || (code != 0x120 && !attn__unicode_space(code)))
            break;
        text += at_end ? 0 : length;
        n -= length;
        count++;
    }
    return count;
}

/* Removes the spaces at the ends of tokens from their offsets, but one space at the beginning of a text if the
 * pre-tokenizer may have added it. As `tokenizers` does, it counts the spaces of a token, and removes as many
 * characters of the text. */
static void trim_offsets(const attn__tokenizer *t, attn__encoding *tokens, int64_t from, const char *text)
{
    for (int64_t i = from; i < tokens->n; i++) {
        uint32_t *offsets = tokens->offsets[i], begin = offsets[0];
        const attn__token_text *token = &t->tokens[tokens->ids[i]];
        const char *content = token->added ? text + begin : t->texts + token->begin;
        size_t n = token->added ? offsets[1] - begin : token->length, end = offsets[1];
        int leading = count_spaces(content, n, false), trailing = count_spaces(content, n, true);
        if (leading == 1 && t->keeps_first_space && (i == from || begin == 0))
            leading = 0;
        for (; leading > 0 && offsets[0] < offsets[1]; leading--) {
            uint32_t code;
            int length = attn__utf8_decode(text + offsets[0], text + offsets[1], &code);
            offsets[0] += length ? (uint32_t)length : 1;
        }
        for (; trailing > 0 && end > 0; trailing--)
            code_before(text, end, &end);
        if (trailing == 0)
            offsets[1] = end > offsets[0] ? (uint32_t)end : offsets[0];
    }
}

/* Computes how many of n[0] and n[1] tokens remain if at most `most` may (longest first). */
static void share(int64_t most, bool pair, int64_t n[2])
{
    if (n[0] + n[1] <= most)
        return;
    if (!pair || most == 0) {
        n[0] = most;
        n[1] = 0;
        return;
    }
    bool swapped = n[0] > n[1];
    int64_t shorter = swapped ? n[1] : n[0], longer;
    longer = shorter > most ? shorter : most - shorter > shorter ? most - shorter : shorter;
    if (shorter + longer > most) {
        shorter = most / 2;
        longer = shorter + most % 2;
    }
    n[0] = swapped ? longer : shorter;
    n[1] = swapped ? shorter : longer;
}

static attn_status append(const attn__tokenizer *t, attn__encoding *to, const attn__encoding *from, int64_t i,
                          int32_t type, int8_t text)
{
    attn_status status = attn__encoding_add(t->context, to, from->ids[i], from->offsets[i][0], from->offsets[i][1]);
    if (status == ATTN_OK) {
        to->types[to->n - 1] = type;
        to->texts[to->n - 1] = text;
    }
    return status;
}

/* Joins the tokens of the texts as the template tells. The tokens of text k are those from begin[k] on. */
static attn_status join(const attn__tokenizer *t, const attn__template *as, bool special, const attn__encoding *from,
                        const int64_t begin[2], const int64_t n[2], attn__encoding *to)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < as->n && status == ATTN_OK; i++) {
        const attn__template_piece *piece = &as->pieces[i];
        for (int64_t j = 0; from->ids && piece->text >= 0 && j < n[piece->text] && status == ATTN_OK; j++)
            status = append(t, to, from, begin[piece->text] + j, piece->type, piece->text);
        for (int32_t j = 0; piece->text < 0 && special && j < piece->n && status == ATTN_OK; j++) {
            status = attn__encoding_add(t->context, to, as->ids[piece->begin + j], 0, 0);
            if (status == ATTN_OK) {
                to->types[to->n - 1] = piece->type;
                to->texts[to->n - 1] = -1;
            }
        }
    }
    return status;
}

attn_status attn__tokenizer_encode(const attn__tokenizer *tokenizer, const char *text, size_t size, const char *second,
                                   size_t second_size, const attn__encode_options *options, attn__encoding *tokens)
{
    const attn__tokenizer *t = tokenizer;
    const attn__encode_options usual = {.special = true};
    options = options ? options : &usual;
    const attn__template *as = second ? &t->pair : &t->single;
    int64_t most = options->max_length > 0 ? options->max_length - (options->special ? as->nids : 0) : INT64_MAX;
    tokens->n = 0;
    if (most < 0)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT,
                          "max_length is %" PRId64 "; it must be at least %" PRId64 ", the number of special tokens",
                          options->max_length, as->nids);
    attn__encoding raw = {0};
    /* the lengths of both texts decide how a pair is cut, so that these are tokenized to their ends */
    int64_t enough = second || options->cut_left ? INT64_MAX : most;
    attn_status status = encode_text(t, text, size, enough, &raw);
    int64_t begin[2] = {0, raw.n}, n[2] = {raw.n, 0};
    if (status == ATTN_OK && t->trims_offsets)
        trim_offsets(t, &raw, 0, text);
    if (status == ATTN_OK && second) {
        status = encode_text(t, second, second_size, enough, &raw);
        n[1] = raw.n - n[0];
        if (status == ATTN_OK && t->trims_offsets)
            trim_offsets(t, &raw, begin[1], second);
    }
    if (status == ATTN_OK) {
        int64_t all[2] = {n[0], n[1]};
        share(most, second != NULL, n);
        for (int i = 0; options->cut_left && i < 2; i++)
            begin[i] += all[i] - n[i];
        status = join(t, as, options->special, &raw, begin, n, tokens);
    }
    attn__encoding_free(t->context, &raw);
    if (status != ATTN_OK)
        tokens->n = 0;
    return status;
}

void attn__encoding_free(attn_context *context, attn__encoding *tokens)
{
    attn__free(context, tokens->ids);
    attn__free(context, tokens->types);
    attn__free(context, tokens->offsets);
    attn__free(context, tokens->texts);
    *tokens = (attn__encoding){0};
}
