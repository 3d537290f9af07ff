/* SPDX-License-Identifier: MIT
 *
 * Tests alignments in every format, and the selection of rows.
 */
#include "fuzz.h"

#include "data/proteins.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_alignment *all = NULL, *some = NULL;
    attn_alignment_options options = {.format = (attn_alignment_format)(size % 6), .query_columns = size & 8};
    if (attn_alignment_parse(&all, context, (const char *)data, size, "fuzz", &options) == ATTN_OK) {
        int64_t columns = attn_alignment_columns(all);
        if (attn_alignment_select(&some, all, &(attn_selection){.depth = 3}) != ATTN_OK)
            abort();
        for (int64_t i = 0; i < attn_alignment_rows(all); i++)
            if ((int64_t)strlen(attn_alignment_row(all, i)) != columns ||
                attn_residue_id(attn_alignment_row(all, i)[0]) < 0)
                abort();
    }
    attn_alignment_destroy(some);
    attn_alignment_destroy(all);
    return fuzz_end(context);
}
