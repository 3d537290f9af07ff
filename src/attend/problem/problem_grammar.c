/* SPDX-License-Identifier: MIT
 * Reads a problem's text; the grammar stands in attn.h. */
#include "attend/problem/grammar.h"

#include "base/context.h"
#include "base/real.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int lengths, most_lengths;
    const char *letters, *needed;
} forms[ATTN__FORMS] = {
    [ATTN__HEADS] = {"", 0, 0, "bhqkdgv", "qd"},
    [ATTN__ADDITIVE] = {"add", 0, 0, "bhqkdgv", "qd"},
    [ATTN__AXIS] = {"axis", 1, ATTN__PHRASE_LENGTHS, "ch", "ch"},
    [ATTN__TIED] = {"tied", 2, 2, "bhd", "hd"},
    [ATTN__WINDOW] = {"window", 2, 2, "bhdwsl", "hdw"},
};

static const struct {
    const char *name;
    char value;
    int forms;
} features[ATTN__FEATURES] = {
#define ATTN_X(NAME, text, value, forms) [ATTN__FEATURE_##NAME] = {text, value, forms},
    ATTN__FEATURE_MAP(ATTN_X)
#undef ATTN_X
#define ATTN_X(NAME, name) [ATTN__FEATURE_SCORE_##NAME] = {#name, 0, 0},
        ATTN_SCORES(ATTN_X)
#undef ATTN_X
};

/* Features that exclude each other. */
#define BIT(NAME) (UINT64_C(1) << ATTN__FEATURE_##NAME)
static const uint64_t rivals[] = {
    BIT(BF16) | BIT(F64),
    BIT(BIAS) | BIT(BIASK) | BIT(BIASD) | BIT(BUCKETS),
    BIT(PAD) | BIT(MASK),
    BIT(LENS) | BIT(LENSQ),
    BIT(BTHD) | BIT(BHTD),
    BIT(ROW) | BIT(COL) | BIT(AXIS),
    BIT(ZERO) | BIT(MASK_BORDER) | BIT(SHIFT),
    BIT(OVER_N) | BIT(KERNEL_SUM),
    ((UINT64_C(1) << ATTN_SCORE_COUNT) - 1) << ATTN__FEATURE_SCORE_DOT,
};

typedef struct reader {
    attn_context *context;
    const char *text, *at;
    attn__phrase *phrase;
} reader;

/* Counts characters from 1. */
static attn_status refuse(const reader *r, const char *why)
{
    return attn__fail(r->context, ATTN_ERROR_ARGUMENT, "problem \"%.100s\", character %d: %s", r->text,
                      (int)(r->at - r->text) + 1, why);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static attn_status read_size(reader *r, int64_t *value)
{
    const int64_t most = INT64_C(1) << 40;
    const char *begin = r->at;
    *value = 0;
    if (!is_digit(*r->at))
        return refuse(r, "a number must stand here");
    for (; is_digit(*r->at); r->at++) {
        *value = *value * 10 + (*r->at - '0');
        if (*value > most) {
            r->at = begin;
            return refuse(r, "the number is larger than 2^40");
        }
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ form */

static void read_form_name(reader *r)
{
    r->phrase->form = ATTN__HEADS;
    for (int i = ATTN__HEADS + 1; i < ATTN__FORMS; i++) {
        size_t length = strlen(forms[i].name);
        if (strncmp(r->at, forms[i].name, length) != 0)
            continue;
        r->phrase->form = (attn__form)i;
        r->at += length;
        while (*r->at == ' ')
            r->at++;
        return;
    }
}

static attn_status read_lengths(reader *r)
{
    attn__phrase *s = r->phrase;
    attn_status status = ATTN_OK;
    if (forms[s->form].most_lengths == 0)
        return ATTN_OK;
    do {
        if (s->nlengths == forms[s->form].most_lengths)
            return refuse(r, "one length too many");
        r->at += s->nlengths > 0;
        status = read_size(r, &s->lengths[s->nlengths]);
        s->nlengths++;
    } while (status == ATTN_OK && *r->at == 'x');
    if (status == ATTN_OK && s->nlengths < forms[s->form].lengths)
        return refuse(r, "an x and another length must stand here");
    return status;
}

static attn_status read_letter(reader *r)
{
    attn__phrase *s = r->phrase;
    char letter = *r->at, why[80];
    if (!strchr(forms[s->form].letters, letter)) {
        snprintf(why, sizeof why, "here must stand one of the letters %s, a : or the end", forms[s->form].letters);
        return refuse(r, why);
    }
    if (s->letter[letter - 'a'] >= 0)
        return refuse(r, "this letter stands twice");
    r->at++;
    attn_status status = read_size(r, &s->letter[letter - 'a']);
    if (status != ATTN_OK || s->form != ATTN__WINDOW || letter != 'w' || *r->at != 'x')
        return status;
    r->at++;
    return read_size(r, &s->taps_x);
}

static attn_status read_form(reader *r)
{
    read_form_name(r);
    attn_status status = read_lengths(r);
    while (status == ATTN_OK && *r->at && *r->at != ':' && *r->at != ',')
        status = read_letter(r);
    const char *needed = forms[r->phrase->form].needed;
    for (int i = 0; status == ATTN_OK && needed[i]; i++) {
        char why[40];
        snprintf(why, sizeof why, "%c and its number are missing", needed[i]);
        if (r->phrase->letter[needed[i] - 'a'] < 0)
            status = refuse(r, why);
    }
    return status;
}

/* -------------------------------------------------------------------------------------------- features */

static attn_status read_real(reader *r, double *value)
{
    char *end;
    *value = attn__real_of_text(r->at, &end);
    if (end == r->at || !(*value >= -1e300 && *value <= 1e300))
        return refuse(r, "a finite number must stand here");
    r->at = end;
    return ATTN_OK;
}

/* "-128..0"; an end left out is open. */
static attn_status read_end(reader *r, int64_t open, int64_t *value)
{
    bool negative = *r->at == '-';
    *value = open;
    r->at += negative;
    if (!is_digit(*r->at))
        return negative ? refuse(r, "a number must stand here") : ATTN_OK;
    attn_status status = read_size(r, value);
    *value = negative ? -*value : *value;
    return status;
}

static attn_status read_range(reader *r)
{
    attn_status status = read_end(r, INT64_MIN, &r->phrase->lo);
    if (status != ATTN_OK)
        return status;
    if (strncmp(r->at, "..", 2) != 0)
        return refuse(r, "a range is written LO..HI");
    r->at += 2;
    return read_end(r, INT64_MAX, &r->phrase->hi);
}

static attn_status read_value(reader *r, attn__feature feature)
{
    attn__phrase *s = r->phrase;
    if (!features[feature].value)
        return ATTN_OK;
    if (*r->at != '=')
        return refuse(r, "this feature needs a value: = must stand here");
    r->at++;
    switch (feature) {
    case ATTN__FEATURE_BAND:
        return read_range(r);
    case ATTN__FEATURE_AXIS:
        return read_size(r, &s->axis);
    case ATTN__FEATURE_PACKED:
        return read_size(r, &s->packed);
    case ATTN__FEATURE_BUCKETS:
        return read_size(r, &s->buckets);
    case ATTN__FEATURE_BLOCKS:
        return read_size(r, &s->blocks);
    case ATTN__FEATURE_FILL:
        return read_real(r, &s->fill);
    case ATTN__FEATURE_SCALE:
        return read_real(r, &s->scale);
    case ATTN__FEATURE_SOFTCAP:
        return read_real(r, &s->softcap);
    default:
        break;
    }
    const char *begin = r->at;
    attn_status status = read_real(r, &s->dropout);
    if (status != ATTN_OK || (s->dropout >= 0 && s->dropout < 1))
        return status;
    r->at = begin;
    return refuse(r, "dropout must be at least 0 and less than 1");
}

static attn_status refuse_feature(const reader *r, size_t length)
{
    char why[600];
    int used = snprintf(why, sizeof why, "there is no feature \"%.*s\" here; there are",
                        (int)(length < 40 ? length : 40), r->at);
    for (int i = 0; i < ATTN__FEATURES && used < (int)sizeof why; i++)
        if (!features[i].forms || (features[i].forms >> r->phrase->form & 1))
            used += snprintf(why + used, sizeof why - (size_t)used, " %s%s", features[i].name,
                             features[i].value ? "=" : "");
    return refuse(r, why);
}

static attn_status check_rivals(const reader *r, attn__feature feature)
{
    uint64_t bit = UINT64_C(1) << feature;
    char why[80];
    if (r->phrase->features & bit)
        return refuse(r, "this feature stands twice");
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
        uint64_t other = r->phrase->features & rivals[i];
        if (!(rivals[i] & bit) || !other)
            continue;
        snprintf(why, sizeof why, "%s and %s exclude each other", features[feature].name,
                 features[__builtin_ctzll(other)].name);
        return refuse(r, why);
    }
    return ATTN_OK;
}

static attn_status read_feature(reader *r)
{
    size_t length = strcspn(r->at, ",:=");
    int i = 0;
    while (i < ATTN__FEATURES && (strlen(features[i].name) != length || memcmp(features[i].name, r->at, length) != 0))
        i++;
    if (i == ATTN__FEATURES || (features[i].forms && !(features[i].forms >> r->phrase->form & 1)))
        return refuse_feature(r, length);
    attn_status status = check_rivals(r, (attn__feature)i);
    if (status != ATTN_OK)
        return status;
    r->phrase->features |= UINT64_C(1) << i;
    r->at += length;
    return read_value(r, (attn__feature)i);
}

static attn_status read_features(reader *r)
{
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && *r->at) {
        if (*r->at != ':' && *r->at != ',')
            return refuse(r, "a comma or the end must stand here");
        r->at++;
        status = read_feature(r);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------- all */

attn_status attn_problem_parse(attn_problem *problem, attn_context *context, const char *text, attn_direction direction)
{
    attn__call_begin(context);
    attn__phrase phrase = {.taps_x = -1};
    reader r = {.context = context, .text = text, .at = text, .phrase = &phrase};
    *problem = (attn_problem){0};
    for (size_t i = 0; i < sizeof phrase.letter / sizeof *phrase.letter; i++)
        phrase.letter[i] = -1;
    if (direction != ATTN_DIRECTION_FORWARD && direction != ATTN_DIRECTION_BACKWARD)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "direction %d is neither forward nor backward", (int)direction);
    attn_status status = read_form(&r);
    if (status == ATTN_OK)
        status = read_features(&r);
    if (status == ATTN_OK)
        status = attn__phrase_form(problem, context, &phrase);
    if (status == ATTN_OK) {
        problem->direction = direction;
        status = attn__phrase_features(problem, context, &phrase);
    }
    return status;
}
