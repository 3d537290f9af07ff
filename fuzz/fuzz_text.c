/* SPDX-License-Identifier: MIT
 *
 * Tests texts of users. Sentences are normalized, encoded, decoded and joined again. Lines are scored by BLEU.
 */
#include "fuzz.h"

#include "attn/train.h"
#include "train/bleu.h"

#include <math.h>
#include <string.h>

static char *terminated(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Checks that detokenizing writes exactly as many bytes as it reports. If the buffer is one byte too small, nothing
 * may be written past its end. */
static void put_together(const char *words, bool marks)
{
    size_t needed = attn_text_detokenize(words, marks, NULL, 0);
    char *out = malloc(needed + 1);
    if (!out || attn_text_detokenize(words, marks, out, needed + 1) != needed || strlen(out) != needed)
        abort();
    if (needed > 0)
        attn_text_detokenize(words, marks, out, needed);
    free(out);
}

static void normalize(attn_context *context, const char *text, size_t size, attn_compat compat)
{
    size_t needed = 0;
    if (attn_text_normalize(context, text, size, compat, NULL, 0, &needed) != ATTN_OK)
        return;
    char *out = malloc(needed + 1);
    if (!out || attn_text_normalize(context, text, size, compat, out, needed + 1, &needed) != ATTN_OK)
        abort();
    put_together(out, size & 2);
    free(out);
}

static void score(attn_context *context, const char *text, size_t size)
{
    const char *middle = text + size / 2;
    const char *predictions[] = {text, middle}, *references[] = {middle, text};
    attn_bleu bleu;
    if (attn_bleu_corpus(&bleu, context, predictions, references, NULL, 2) == ATTN_OK &&
        !(bleu.score >= 0 && bleu.score <= 100.0001))
        abort();
    double d2l = attn_bleu_d2l(text, middle, 2);
    if (!(d2l >= 0 && d2l <= 1.0001))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    char *text = terminated(data, size);
    normalize(context, text, size, size & 1 ? ATTN_COMPAT_D2L : ATTN_COMPAT_NONE);
    score(context, text, strlen(text));
    put_together(text, size & 1);
    free(text);
    return fuzz_end(context);
}
