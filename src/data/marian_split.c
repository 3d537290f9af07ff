/* SPDX-License-Identifier: MIT
 *
 * A text as tokens of a MarianMT model: names of specials are tokens wherever they stand; what lies between goes to
 * SentencePiece by itself, but for a leading >>language<<, which is one token. */
#include "data/vocab.h"

#include <string.h>

/* The special token that `text` begins with; 0 if it does with none. */
static size_t special_at(const char *text)
{
    static const char *const names[] = {"</s>", "<unk>", "<pad>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(text, names[i], length) == 0)
            return length;
    }
    return 0;
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
    attn_status status = ATTN_OK;
    while (*text && status == ATTN_OK) {
        size_t length = 0, special = 0;
        while (text[length] && (special = special_at(text + length)) == 0)
            length++;
        status = split_between(vocab, text, length, take, user);
        if (status == ATTN_OK && special > 0)
            take(user, text + length, special);
        text += length + special;
    }
    return status;
}
