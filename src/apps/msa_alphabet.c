/* SPDX-License-Identifier: MIT
 * The alphabet of the published checkpoints: special tokens, residues by frequency, gaps. */
#include "attn/msa.h"

#include <string.h>

static const char *const tokens[] = {"<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "V", "S", "E", "R",
                                     "T",     "I",     "D",     "P",     "K", "Q", "N", "F", "Y", "M", "H",
                                     "W",     "C",     "X",     "B",     "U", "Z", "O", ".", "-", "<null_1>", "<mask>"};
enum { COUNT = sizeof tokens / sizeof *tokens, FIRST = 4, LAST = 30 };

int32_t attn_msa_token(char residue)
{
    for (int32_t i = FIRST; i <= LAST; i++) {
        if (tokens[i][0] == residue)
            return i;
    }
    return -1;
}

const char *attn_msa_token_text(int32_t token)
{
    return token >= 0 && token < COUNT ? tokens[token] : NULL;
}
