/* SPDX-License-Identifier: MIT
 *
 * Contains the built-in phrasebook, which is the file data/phrasebook.tsv. The build converts it to an array
 * (cmake/embed.cmake).
 */
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
