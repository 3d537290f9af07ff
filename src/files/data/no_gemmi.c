/* SPDX-License-Identifier: MIT
 * The functions of gemmi.h in a build without the gemmi library. */
#include "data/gemmi.h"

#ifndef ATTN_HAVE_GEMMI

attn__gemmi_result attn__gemmi_open(attn__gemmi **gemmi, const char *text, size_t size, const char *name, char *message)
{
    (void)text, (void)size, (void)name, (void)message;
    *gemmi = NULL;
    return ATTN__GEMMI_ABSENT;
}

void attn__gemmi_close(attn__gemmi *gemmi)
{
    (void)gemmi;
}

const attn__atom *attn__gemmi_atoms(const attn__gemmi *gemmi, int64_t *n)
{
    (void)gemmi;
    *n = 0;
    return NULL;
}

const char *attn__gemmi_sequence(const attn__gemmi *gemmi, const char *key, int64_t *n)
{
    (void)gemmi, (void)key;
    *n = 0;
    return NULL;
}

#endif
