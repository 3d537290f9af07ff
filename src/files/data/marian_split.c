/* SPDX-License-Identifier: MIT
 *
 * Splits a text into the tokens of a MarianMT model. The names of special and added tokens become tokens wherever they
 * occur in the text. SentencePiece splits the text between them. A >>language<< at the beginning is one token.
 */
#include "data/vocab.h"

#include <string.h>

/* A special or added token, which is a token wherever its text occurs. */
typedef struct found {
    size_t length; /* 0: none */
    const attn__added_token *added;
} found;

/* Returns the longest special or added token at the beginning of `text`. */
static found token_at(const attn_vocab *vocab, const char *text)
{
    found f = {0};
    for (int64_t i = 0; i < vocab->nadded; i++) {
        const attn__word *word = &vocab->words.items[vocab->added[i].id];
        if (word->length > f.length && strncmp(text, word->text, word->length) == 0)
            f = (found){word->length, &vocab->added[i]};
    }
    return f;
}

static attn_status split_between(const attn_vocab *vocab, const char *text, size_t length, attn__subword_take *take,
                                 void *user)
{
    if (length == 0)
        return ATTN_OK;
    for (size_t i = 2; length > 3 && strncmp(text, ">>", 2) == 0 && i + 1 < length; i++) {
        if (text[i] == '<' && text[i + 1] == '<') {
            take(user, text, i + 2);
            return attn__subword_encode(vocab->subword, text + i + 2, length - i - 2, take, user);
        }
    }
    return attn__subword_encode(vocab->subword, text, length, take, user);
}

attn_status attn__marian_split(const attn_vocab *vocab, const char *text, attn__subword_take *take, void *user)
{
    static const char spaces[] = " \t\n\v\f\r";
    attn_status status = ATTN_OK;
    while (*text && status == ATTN_OK) {
        size_t length = 0;
        found next = {0};
        while (text[length] && (next = token_at(vocab, text + length)).length == 0)
            length++;
        size_t before = length;
        while (next.added && next.added->strips_left && before > 0 && strchr(spaces, text[before - 1]))
            before--;
        status = split_between(vocab, text, before, take, user);
        if (status == ATTN_OK && next.length > 0)
            take(user, text + length, next.length);
        text += length + next.length;
        if (next.added && next.added->strips_right)
            text += strspn(text, spaces);
    }
    return status;
}
