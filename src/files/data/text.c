/* SPDX-License-Identifier: MIT
 * Normalizes sentences for training, and joins words for display. */
#include "data/sentences.h"

#include "base/context.h"
#include "base/utf8.h"
#include "data/cut.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------- lower case */

/* Ranges of capital letters: the main blocks of Latin, Greek, Cyrillic and Armenian, by Unicode's simple case
 * mapping. If step is 1, a small letter is its capital plus `shift`. If step is 2, capitals alternate with their
 * small letters. */
static const struct {
    uint32_t first, last;
    uint8_t step;
    int32_t shift;
} capitals[] = {
    {0x41, 0x5a, 1, 32},        {0xc0, 0xd6, 1, 32},        {0xd8, 0xde, 1, 32},        {0x100, 0x12e, 2, 1},
    {0x130, 0x130, 1, -199},    {0x132, 0x136, 2, 1},       {0x139, 0x147, 2, 1},       {0x14a, 0x176, 2, 1},
    {0x178, 0x178, 1, -121},    {0x179, 0x17d, 2, 1},       {0x181, 0x181, 1, 210},     {0x182, 0x184, 2, 1},
    {0x186, 0x186, 1, 206},     {0x187, 0x187, 1, 1},       {0x189, 0x18a, 1, 205},     {0x18b, 0x18b, 1, 1},
    {0x18e, 0x18e, 1, 79},      {0x18f, 0x18f, 1, 202},     {0x190, 0x190, 1, 203},     {0x191, 0x191, 1, 1},
    {0x193, 0x193, 1, 205},     {0x194, 0x194, 1, 207},     {0x196, 0x196, 1, 211},     {0x197, 0x197, 1, 209},
    {0x198, 0x198, 1, 1},       {0x19c, 0x19c, 1, 211},     {0x19d, 0x19d, 1, 213},     {0x19f, 0x19f, 1, 214},
    {0x1a0, 0x1a4, 2, 1},       {0x1a6, 0x1a6, 1, 218},     {0x1a7, 0x1a7, 1, 1},       {0x1a9, 0x1a9, 1, 218},
    {0x1ac, 0x1ac, 1, 1},       {0x1ae, 0x1ae, 1, 218},     {0x1af, 0x1af, 1, 1},       {0x1b1, 0x1b2, 1, 217},
    {0x1b3, 0x1b5, 2, 1},       {0x1b7, 0x1b7, 1, 219},     {0x1b8, 0x1b8, 1, 1},       {0x1bc, 0x1bc, 1, 1},
    {0x1c4, 0x1c4, 1, 2},       {0x1c5, 0x1c5, 1, 1},       {0x1c7, 0x1c7, 1, 2},       {0x1c8, 0x1c8, 1, 1},
    {0x1ca, 0x1ca, 1, 2},       {0x1cb, 0x1db, 2, 1},       {0x1de, 0x1ee, 2, 1},       {0x1f1, 0x1f1, 1, 2},
    {0x1f2, 0x1f4, 2, 1},       {0x1f6, 0x1f6, 1, -97},     {0x1f7, 0x1f7, 1, -56},     {0x1f8, 0x21e, 2, 1},
    {0x220, 0x220, 1, -130},    {0x222, 0x232, 2, 1},       {0x23a, 0x23a, 1, 10795},   {0x23b, 0x23b, 1, 1},
    {0x23d, 0x23d, 1, -163},    {0x23e, 0x23e, 1, 10792},   {0x241, 0x241, 1, 1},       {0x243, 0x243, 1, -195},
    {0x244, 0x244, 1, 69},      {0x245, 0x245, 1, 71},      {0x246, 0x24e, 2, 1},       {0x370, 0x372, 2, 1},
    {0x376, 0x376, 1, 1},       {0x37f, 0x37f, 1, 116},     {0x386, 0x386, 1, 38},      {0x388, 0x38a, 1, 37},
    {0x38c, 0x38c, 1, 64},      {0x38e, 0x38f, 1, 63},      {0x391, 0x3a1, 1, 32},      {0x3a3, 0x3ab, 1, 32},
    {0x3cf, 0x3cf, 1, 8},       {0x3d8, 0x3ee, 2, 1},       {0x3f4, 0x3f4, 1, -60},     {0x3f7, 0x3f7, 1, 1},
    {0x3f9, 0x3f9, 1, -7},      {0x3fa, 0x3fa, 1, 1},       {0x3fd, 0x3ff, 1, -130},    {0x400, 0x40f, 1, 80},
    {0x410, 0x42f, 1, 32},      {0x460, 0x480, 2, 1},       {0x48a, 0x4be, 2, 1},       {0x4c0, 0x4c0, 1, 15},
    {0x4c1, 0x4cd, 2, 1},       {0x4d0, 0x52e, 2, 1},       {0x531, 0x556, 1, 48},      {0x1e00, 0x1e94, 2, 1},
    {0x1e9e, 0x1e9e, 1, -7615}, {0x1ea0, 0x1efe, 2, 1},     {0x1f08, 0x1f0f, 1, -8},    {0x1f18, 0x1f1d, 1, -8},
    {0x1f28, 0x1f2f, 1, -8},    {0x1f38, 0x1f3f, 1, -8},    {0x1f48, 0x1f4d, 1, -8},    {0x1f59, 0x1f5f, 2, -8},
    {0x1f68, 0x1f6f, 1, -8},    {0x1f88, 0x1f8f, 1, -8},    {0x1f98, 0x1f9f, 1, -8},    {0x1fa8, 0x1faf, 1, -8},
    {0x1fb8, 0x1fb9, 1, -8},    {0x1fba, 0x1fbb, 1, -74},   {0x1fbc, 0x1fbc, 1, -9},    {0x1fc8, 0x1fcb, 1, -86},
    {0x1fcc, 0x1fcc, 1, -9},    {0x1fd8, 0x1fd9, 1, -8},    {0x1fda, 0x1fdb, 1, -100},  {0x1fe8, 0x1fe9, 1, -8},
    {0x1fea, 0x1feb, 1, -112},  {0x1fec, 0x1fec, 1, -7},    {0x1ff8, 0x1ff9, 1, -128},  {0x1ffa, 0x1ffb, 1, -126},
    {0x1ffc, 0x1ffc, 1, -9},    {0x2126, 0x2126, 1, -7517}, {0x212a, 0x212a, 1, -8383}, {0x212b, 0x212b, 1, -8262},
    {0xff21, 0xff3a, 1, 32},
};

static uint32_t lower(uint32_t code)
{
    for (size_t i = 0; i < sizeof capitals / sizeof *capitals && code >= capitals[i].first; i++)
        if (code <= capitals[i].last && (code - capitals[i].first) % capitals[i].step == 0)
            return (uint32_t)((int32_t)code + capitals[i].shift);
    return code;
}

/* -------------------------------------------------------------------------------------------- preparing */

static bool is_blank(uint32_t code, attn_compat compat)
{
    if (code == ' ' || code == '\t' || code == '\n' || code == '\r' || code == 0xa0 || code == 0x202f)
        return true;
    /* further blanks: typographic spaces from en quad to hair space, and the ideographic space */
    return compat == ATTN_COMPAT_NONE &&
           ((code >= 0x2000 && code <= 0x200a) || code == 0x205f || code == 0x3000 || code == 0x0b || code == 0x0c);
}

/* Returns whether a character is invisible: a soft hyphen, a zero-width space, a joiner or a byte order mark. */
static bool is_invisible(uint32_t code)
{
    return code == 0xad || (code >= 0x200b && code <= 0x200d) || code == 0x2060 || code == 0xfeff;
}

static bool is_mark(uint32_t code, attn_compat compat)
{
    bool low = code == ',' || code == '.' || code == '!' || code == '?';
    return low || (compat == ATTN_COMPAT_NONE && (code == ';' || code == ':'));
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

/* The text that was written so far, and the state on which the next character depends. */
typedef struct prepare {
    attn__cut out;
    attn_compat compat;
    uint32_t before; /* the last character that was written; 0: none so far */
    bool blank;      /* true: a space must be written before the next character */
} prepare;

static void prepare_one(prepare *p, uint32_t code, bool digit_follows)
{
    if (is_blank(code, p->compat)) {
        p->blank = true;
        return;
    }
    if (p->compat == ATTN_COMPAT_NONE && is_invisible(code))
        return;
    if (p->compat == ATTN_COMPAT_NONE && code == 0x2019)
        code = '\'';
    bool in_number = p->compat == ATTN_COMPAT_NONE && is_digit(p->before) && digit_follows && !p->blank;
    if (is_mark(code, p->compat) && !in_number)
        p->blank = true;
    if (p->blank && p->before)
        attn__cut_put(&p->out, " ", 1);
    char bytes[4];
    p->before = lower(code);
    p->blank = false;
    attn__cut_put(&p->out, bytes, (size_t)attn__utf8_encode(p->before, bytes));
}

attn_status attn_text_normalize(attn_context *context, const char *text, size_t length, attn_compat compat, char *out,
                                size_t size, size_t *needed)
{
    ATTN__CALL(context);
    attn_status known = attn__check_choice(context, "compat", (int)compat, ATTN_COMPAT_D2L);
    if (known != ATTN_OK)
        return known;
    prepare p = {.out = {out, size, 0}, .compat = compat};
    const char *end = text + length;
    for (const char *at = text; at < end;) {
        uint32_t code;
        int n = attn__utf8_decode(at, end, &code);
        if (n == 0 || code == 0)
            return attn__fail(context, ATTN_ERROR_FORMAT, "byte %zu: %s", (size_t)(at - text),
                              n == 0 ? "invalid UTF-8" : "a zero byte");
        at += n;
        prepare_one(&p, code, at < end && is_digit((unsigned char)*at));
    }
    size_t used = attn__cut_end(&p.out);
    if (needed)
        *needed = used;
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ words */

bool attn_text_word(const char **text, const char **word, size_t *length)
{
    *word = *text + strspn(*text, " ");
    *length = strcspn(*word, " ");
    *text = *word + *length;
    return *length > 0;
}

static bool joins_left(const char *word, size_t length, bool space_before_high_marks)
{
    const char *marks = space_before_high_marks ? ".," : ".,!?;:";
    return length == 1 && strchr(marks, *word);
}

size_t attn_text_detokenize(const char *text, bool space_before_high_marks, char *out, size_t size)
{
    attn__cut c = {out, size, 0};
    const char *word;
    size_t length;
    while (attn_text_word(&text, &word, &length)) {
        if (c.used > 0 && !joins_left(word, length, space_before_high_marks))
            attn__cut_put(&c, " ", 1);
        attn__cut_put(&c, word, length);
    }
    return attn__cut_end(&c);
}
