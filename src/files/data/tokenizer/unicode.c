/* SPDX-License-Identifier: MIT */
#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

typedef struct range {
    uint32_t first, last;
} range;

typedef struct categorized {
    uint32_t first, last;
    attn__general_category category;
} categorized;

/* ------------------------------------------------------------------- where `tokenizers` differs from Unicode 15 */

/* Code points that Unicode 15.1 and 16 added. */
static const categorized newer[] = {
    {0x897, 0x897, ATTN__MN},     {0x1b4e, 0x1b4f, ATTN__PO},   {0x1b7f, 0x1b7f, ATTN__PO},
    {0x1c89, 0x1c89, ATTN__LU},   {0x1c8a, 0x1c8a, ATTN__LL},   {0x2427, 0x2429, ATTN__SO},
    {0x2ffc, 0x2fff, ATTN__SO},   {0x31e4, 0x31e5, ATTN__SO},   {0x31ef, 0x31ef, ATTN__SO},
    {0xa7cb, 0xa7cc, ATTN__LU},   {0xa7cd, 0xa7cd, ATTN__LL},   {0xa7da, 0xa7da, ATTN__LU},
    {0xa7db, 0xa7db, ATTN__LL},   {0xa7dc, 0xa7dc, ATTN__LU},   {0x105c0, 0x105f3, ATTN__LO},
    {0x10d40, 0x10d49, ATTN__ND}, {0x10d4a, 0x10d4d, ATTN__LO}, {0x10d4e, 0x10d4e, ATTN__LM},
    {0x10d4f, 0x10d4f, ATTN__LO}, {0x10d50, 0x10d65, ATTN__LU}, {0x10d69, 0x10d6d, ATTN__MN},
    {0x10d6e, 0x10d6e, ATTN__PD}, {0x10d6f, 0x10d6f, ATTN__LM}, {0x10d70, 0x10d85, ATTN__LL},
    {0x10d8e, 0x10d8f, ATTN__SM}, {0x10ec2, 0x10ec4, ATTN__LO}, {0x10efc, 0x10efc, ATTN__MN},
    {0x11380, 0x11389, ATTN__LO}, {0x1138b, 0x1138b, ATTN__LO}, {0x1138e, 0x1138e, ATTN__LO},
    {0x11390, 0x113b5, ATTN__LO}, {0x113b7, 0x113b7, ATTN__LO}, {0x113b8, 0x113ba, ATTN__MC},
    {0x113bb, 0x113c0, ATTN__MN}, {0x113c2, 0x113c2, ATTN__MC}, {0x113c5, 0x113c5, ATTN__MC},
    {0x113c7, 0x113ca, ATTN__MC}, {0x113cc, 0x113cd, ATTN__MC}, {0x113ce, 0x113ce, ATTN__MN},
    {0x113cf, 0x113cf, ATTN__MC}, {0x113d0, 0x113d0, ATTN__MN}, {0x113d1, 0x113d1, ATTN__LO},
    {0x113d2, 0x113d2, ATTN__MN}, {0x113d3, 0x113d3, ATTN__LO}, {0x113d4, 0x113d5, ATTN__PO},
    {0x113d7, 0x113d8, ATTN__PO}, {0x113e1, 0x113e2, ATTN__MN}, {0x116d0, 0x116e3, ATTN__ND},
    {0x11bc0, 0x11be0, ATTN__LO}, {0x11be1, 0x11be1, ATTN__PO}, {0x11bf0, 0x11bf9, ATTN__ND},
    {0x11f5a, 0x11f5a, ATTN__MN}, {0x13460, 0x143fa, ATTN__LO}, {0x16100, 0x1611d, ATTN__LO},
    {0x1611e, 0x16129, ATTN__MN}, {0x1612a, 0x1612c, ATTN__MC}, {0x1612d, 0x1612f, ATTN__MN},
    {0x16130, 0x16139, ATTN__ND}, {0x16d40, 0x16d42, ATTN__LM}, {0x16d43, 0x16d6a, ATTN__LO},
    {0x16d6b, 0x16d6c, ATTN__LM}, {0x16d6d, 0x16d6f, ATTN__PO}, {0x16d70, 0x16d79, ATTN__ND},
    {0x18cff, 0x18cff, ATTN__LO}, {0x1cc00, 0x1ccef, ATTN__SO}, {0x1ccf0, 0x1ccf9, ATTN__ND},
    {0x1cd00, 0x1ceb3, ATTN__SO}, {0x1e5d0, 0x1e5ed, ATTN__LO}, {0x1e5ee, 0x1e5ef, ATTN__MN},
    {0x1e5f0, 0x1e5f0, ATTN__LO}, {0x1e5f1, 0x1e5fa, ATTN__ND}, {0x1e5ff, 0x1e5ff, ATTN__PO},
    {0x1f8b2, 0x1f8bb, ATTN__SO}, {0x1f8c0, 0x1f8c1, ATTN__SO}, {0x1fa89, 0x1fa89, ATTN__SO},
    {0x1fa8f, 0x1fa8f, ATTN__SO}, {0x1fabe, 0x1fabe, ATTN__SO}, {0x1fac6, 0x1fac6, ATTN__SO},
    {0x1fadc, 0x1fadc, ATTN__SO}, {0x1fadf, 0x1fadf, ATTN__SO}, {0x1fae9, 0x1fae9, ATTN__SO},
    {0x1fbcb, 0x1fbef, ATTN__SO}, {0x2ebf0, 0x2ee5d, ATTN__LO}};

/* Digits and numbers of Unicode 17. */
static const range newest_numbers[] = {{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}};

/* Marks of Unicode 16 and 17, which continue a grapheme cluster. */
static const range newer_marks[] = {{0x897, 0x897},     {0x1acf, 0x1add},   {0x1ae0, 0x1aeb},   {0x10d69, 0x10d6d},
                                    {0x10efa, 0x10efc}, {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
                                    {0x113c7, 0x113ca}, {0x113cc, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2},
                                    {0x11b60, 0x11b67}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f}, {0x1e5ee, 0x1e5ef},
                                    {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5}};

/* Punctuation, format characters and nonspacing marks that are newer than Unicode 8, or had another category in it. */
static const range not_punctuation[] = {{0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},
                                        {0xc84, 0xc84},     {0x1b7d, 0x1b7e},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},
                                        {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x1144b, 0x1144f},
                                        {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
                                        {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
                                        {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45},
                                        {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff},
                                        {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f}};
static const range not_control[] = {{0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};
static const range not_nonspacing[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8e1},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfb},   {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},
    {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x1123e}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1143f},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145e, 0x1145e}, {0x1182f, 0x11837}, {0x11839, 0x1183a},
    {0x1193b, 0x1193c}, {0x1193e, 0x1193e}, {0x11943, 0x11943}, {0x119d4, 0x119d7}, {0x119da, 0x119db},
    {0x119e0, 0x119e0}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47},
    {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a99}, {0x11c30, 0x11c36},
    {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f}, {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3},
    {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
    {0x11d47, 0x11d47}, {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4},
    {0x11f00, 0x11f01}, {0x11f36, 0x11f3a}, {0x11f40, 0x11f40}, {0x11f42, 0x11f42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16f4f, 0x16f4f}, {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46},
    {0x1e000, 0x1e006}, {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024}, {0x1e026, 0x1e02a},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e944, 0x1e94a}};
/* Marks that are newer than the tables of the normal forms. */
static const range not_mark[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xcf3, 0xcf3},     {0xd00, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a},
    {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
    {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01},
    {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}};
/* Combining marks that the tables of the normal forms take for starters. */
static const range starters[] = {{0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
                                 {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
                                 {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
                                 {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
                                 {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
                                 {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
                                 {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
                                 {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f},
                                 {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}};
static const range not_compatible[] = {{0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},  {0x10781, 0x107ba},
                                       {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
/* A letter with a canonical decomposition that the tables of the normal forms do not have. */
static const uint32_t not_composed = 0x11938;

/* Upper case letters of Unicode 16 and 17. The lower case letter is the upper case letter plus `add`. */
static const struct {
    uint32_t first, last;
    int32_t add;
} newer_cases[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                   {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                   {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                   {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                   {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};

static bool in(const range *ranges, size_t n, uint32_t code)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && code >= ranges[low].first;
}
#define IN(ranges, code) in((ranges), sizeof(ranges) / sizeof *(ranges), (code))

static const categorized *newer_entry(uint32_t code)
{
    size_t low = 0, high = sizeof newer / sizeof *newer;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > newer[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof newer / sizeof *newer && code >= newer[low].first ? &newer[low] : NULL;
}

/* ------------------------------------------------------------------------------------------------ properties */

static attn__general_category category_of(uint32_t code)
{
    return (attn__general_category)utf8proc_category((utf8proc_int32_t)code);
}

attn__general_category attn__unicode_category(uint32_t code)
{
    const categorized *entry = code < newer[0].first ? NULL : newer_entry(code);
    if (code == 0x1171e) /* whose category changed */
        return ATTN__MC;
    return entry ? entry->category : category_of(code);
}

bool attn__unicode_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    attn__general_category category = category_of(code);
    return code == 0x85 || (category >= ATTN__ZS && category <= ATTN__ZP);
}

bool attn__unicode_numeric(uint32_t code)
{
    if (code < 0x80)
        return code >= '0' && code <= '9';
    attn__general_category category = attn__unicode_category(code);
    return (category >= ATTN__ND && category <= ATTN__NO) || IN(newest_numbers, code);
}

bool attn__unicode_punctuation(uint32_t code)
{
    if (code < 0x80)
        return (code > ' ' && code < '0') || (code > '9' && code < 'A') || (code > 'Z' && code < 'a') ||
               (code > 'z' && code < 0x7f);
    attn__general_category category = category_of(code);
    if (code == 0x166d || code == 0x111c9)
        return true;
    return category >= ATTN__PC && category <= ATTN__PO && !newer_entry(code) && !IN(not_punctuation, code);
}

bool attn__unicode_control(uint32_t code)
{
    if (code < 0x80)
        return code < ' ' || code == 0x7f;
    attn__general_category category = category_of(code);
    return (category == ATTN__CC || category == ATTN__CF || category == ATTN__CO) && !IN(not_control, code);
}

bool attn__unicode_nonspacing(uint32_t code)
{
    if (code < 0x300)
        return false;
    return code == 0x1734 || (category_of(code) == ATTN__MN && !newer_entry(code) && !IN(not_nonspacing, code));
}

bool attn__unicode_mark(uint32_t code)
{
    if (code < 0x300)
        return false;
    attn__general_category category = category_of(code);
    return code == 0x1cf2 || code == 0x1cf3 ||
           (category >= ATTN__MN && category <= ATTN__ME && !newer_entry(code) && !IN(not_mark, code));
}

bool attn__unicode_word(uint32_t code, bool joiners)
{
    if (code < 0x80)
        return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') ||
               code == '_';
    static const range circled[] = {{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    attn__general_category category = attn__unicode_category(code);
    return (category >= ATTN__LU && category <= ATTN__NL) || category == ATTN__PC || IN(circled, code) ||
           (joiners && (code == 0x200c || code == 0x200d));
}

int attn__unicode_lower(uint32_t code, uint32_t out[2])
{
    out[0] = code;
    if (code < 0x80) {
        out[0] = code >= 'A' && code <= 'Z' ? code + 'a' - 'A' : code;
        return 1;
    }
    if (code == 0x130) { /* I with a dot: i and a combining dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; i < sizeof newer_cases / sizeof *newer_cases; i++) {
        if (code >= newer_cases[i].first && code <= newer_cases[i].last) {
            out[0] = (uint32_t)((int32_t)code + newer_cases[i].add);
            return 1;
        }
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    return 1;
}

uint32_t attn__unicode_fold(uint32_t code)
{
    uint32_t lower[2];
    utf8proc_int32_t folded[4];
    int class = 0;
    if (code < 0x80) {
        attn__unicode_lower(code, lower);
        return lower[0];
    }
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)code, folded, 4, UTF8PROC_CASEFOLD, &class);
    return n == 1 ? (uint32_t)folded[0] : code;
}

/* ---------------------------------------------------------------------------------------------- normal forms */

int attn__unicode_decompose(uint32_t code, bool compatibility, uint32_t out[ATTN__LONGEST_DECOMPOSITION])
{
    utf8proc_int32_t parts[ATTN__LONGEST_DECOMPOSITION];
    int class = 0;
    out[0] = code;
    if (code < 0xa0 || code == not_composed || (compatibility && IN(not_compatible, code)))
        return 1;
    utf8proc_option_t form = UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)code, parts, ATTN__LONGEST_DECOMPOSITION, form, &class);
    if (n < 1 || n > ATTN__LONGEST_DECOMPOSITION)
        return 1;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out[i] = (uint32_t)parts[i];
    return (int)n;
}

int attn__unicode_combining_class(uint32_t code)
{
    if (code < 0x300)
        return 0;
    int class = utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
    return class && (IN(starters, code) || newer_entry(code)) ? 0 : class;
}

uint32_t attn__unicode_compose(uint32_t first, uint32_t second)
{
    if (second < 0x300)
        return 0;
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second};
    utf8proc_ssize_t n = utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return n == 1 && (uint32_t)pair[0] != not_composed ? (uint32_t)pair[0] : 0;
}

bool attn__unicode_grapheme_ends(uint32_t before, uint32_t after, int32_t *state)
{
    bool ends = utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)after, state);
    if (ends && after >= newer_marks[0].first && IN(newer_marks, after)) {
        attn__general_category category = category_of(before);
        return category == ATTN__CC || category == ATTN__ZL || category == ATTN__ZP;
    }
    return ends;
}
