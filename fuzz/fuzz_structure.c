/* SPDX-License-Identifier: MIT
 *
 * Tests PDB and mmCIF files, and the mapping of a query to their residues.
 */
#include "fuzz.h"

#include "data/proteins.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_structure *structure = NULL;
    if (attn_structure_parse(&structure, context, (const char *)data, size, "fuzz", NULL) == ATTN_OK) {
        int64_t to[10];
        float distances[100];
        if (attn_structure_map(structure, "MKVL-AAGIV", 10, to, NULL) == ATTN_OK)
            attn_structure_distances(structure, to, 10, size & 1 ? ATTN_CBETA_ATOM : ATTN_CBETA_IMPUTED, distances);
    }
    attn_structure_destroy(structure);
    return fuzz_end(context);
}
