/* SPDX-License-Identifier: MIT
 *
 * weights.h - what every format of weights offers: its arrays found, and its plain data.
 */
#ifndef ATTN_IO_WEIGHTS_H
#define ATTN_IO_WEIGHTS_H

#include "io/array.h"

/* Where a reader puts what it finds. */
typedef struct attn__findings {
    attn__arrays arrays;
    attn_config *metadata; /* NULL: not wanted */
    attn_bytes notes;
    void *memory; /* decompressed data that arrays point to: a chain, each block begins with the next one's
                   * address */
} attn__findings;

/* Notes are for people: their number is bounded. */
attn_status attn__findings_note(attn__findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Memory that lives as long as the findings. */
void *attn__findings_memory(attn__findings *findings, size_t size);

attn_status attn__safetensors_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find(attn__findings *findings, const attn__input *input);

#endif
