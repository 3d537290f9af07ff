/* SPDX-License-Identifier: MIT
 *
 * Tests problems that are given as text. If a text is refused, there must be a message. Otherwise the engine checks the
 * problem that the text describes.
 */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_problem problem;
    char text[256];
    size_t n = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (attn_problem_parse(&problem, context, text, size & 1 ? ATTN_DIRECTION_BACKWARD : ATTN_DIRECTION_FORWARD) ==
            ATTN_OK &&
        (problem.ndims < 1 || problem.ndims > ATTN_MAX_DIMS || problem.nbands < 0 || problem.nbands > ATTN_MAX_BANDS ||
         problem.nrelatives < 0 || problem.nrelatives > ATTN_MAX_RELATIVE))
        abort();
    return fuzz_end(context);
}
