/* SPDX-License-Identifier: MIT
 * Computes BLEU of one sentence, as Dive into Deep Learning defines it. */
#include "attn/train.h"
#include "train/bleu.h"

#include <math.h>
#include <string.h>

/* Counts the words, which are separated by single spaces. An empty line has one word, which is empty. */
static int64_t word_count(const char *line)
{
    int64_t words = 1;
    for (; *line; line++)
        words += *line == ' ';
    return words;
}

static size_t gram_length(const char *line, int n)
{
    const char *end = line;
    for (int word = 0; word < n; word++) {
        end += strcspn(end, " ");
        if (word + 1 < n && *end)
            end++;
    }
    return (size_t)(end - line);
}

static const char *next_word(const char *line)
{
    line += strcspn(line, " ");
    return *line ? line + 1 : NULL;
}

/* Counts how often the n words at `gram` occur in `line`. Only the first `starts` words of `line` are tried as the
 * first of the n words. */
static int64_t occurrences(const char *line, int64_t starts, const char *gram, size_t length, int n)
{
    int64_t count = 0;
    for (; line && starts > 0; line = next_word(line), starts--)
        count += gram_length(line, n) == length && memcmp(line, gram, length) == 0;
    return count;
}

/* Returns the number of the prediction's n-grams that match the label. A match counts at most as often as the n-gram
 * occurs in the label. The time is quadratic in the length of the lines, which are short sentences. */
static int64_t clipped_matches(const char *prediction, int64_t pred_grams, const char *label, int64_t label_grams,
                               int n)
{
    int64_t matches = 0, before = 0;
    for (const char *gram = prediction; gram && before < pred_grams; gram = next_word(gram), before++) {
        size_t length = gram_length(gram, n);
        int64_t seen = occurrences(prediction, before, gram, length, n);
        matches += seen < occurrences(label, label_grams, gram, length, n);
    }
    return matches;
}

double attn_bleu_d2l(const char *prediction, const char *label, int k)
{
    int64_t pred = word_count(prediction), len = word_count(label);
    double score = exp(fmin(0, 1 - (double)len / (double)pred));
    for (int n = 1; n <= k && n <= pred; n++) {
        int64_t matches = clipped_matches(prediction, pred - n + 1, label, len - n + 1, n);
        score *= pow((double)matches / (double)(pred - n + 1), pow(0.5, n));
    }
    return score;
}
