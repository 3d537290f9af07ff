/* SPDX-License-Identifier: MIT
 *
 * Converts residues to ids. Ids are those of the ESM models: the indices of the rows of their embedding tables.
 */
#include "data/alignment.h"

#include <string.h>

static const char *const symbols[ATTN_RESIDUE_COUNT] = {
    "<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "V", "S", "E", "R", "T", "I", "D", "P",        "K",     "Q",
    "N",     "F",     "Y",     "M",     "H", "W", "C", "X", "B", "U", "Z", "O", ".", "-", "<null_1>", "<mask>"};

const char *attn_residue_symbol(int32_t id)
{
    return id >= 0 && id < ATTN_RESIDUE_COUNT ? symbols[id] : NULL;
}

int32_t attn_residue_id(char residue)
{
    char c = residue == 'J' ? 'X' : residue;
    for (int32_t id = 0; id < ATTN_RESIDUE_COUNT; id++)
        if (symbols[id][0] == c && symbols[id][1] == 0)
            return id;
    return -1;
}

void attn_alignment_tokens(const attn_alignment *alignment, int32_t *tokens)
{
    int32_t ids[128];
    for (int c = 0; c < 128; c++)
        ids[c] = attn_residue_id((char)c);
    for (int64_t i = 0; i < alignment->rows; i++) {
        const char *row = attn_alignment_row(alignment, i);
        *tokens++ = ATTN_RESIDUE_CLS;
        for (int64_t c = 0; c < alignment->columns; c++)
            *tokens++ = ids[(unsigned char)row[c]];
    }
}
