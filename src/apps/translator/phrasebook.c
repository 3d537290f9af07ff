/* SPDX-License-Identifier: MIT
 * The phrasebook that the library carries: data/phrasebook.tsv, made into an array when the library is built
 * (cmake/embed.cmake). */
#include "attn/translate.h"
#include "apps/translator/translator.h"

extern const unsigned char attn__phrasebook[];
extern const size_t attn__phrasebook_size;

const char *attn_phrasebook(size_t *size)
{
    if (size)
        *size = attn__phrasebook_size;
    return (const char *)attn__phrasebook;
}
