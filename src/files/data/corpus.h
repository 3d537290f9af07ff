/* SPDX-License-Identifier: MIT
 *
 * corpus.h - sentence pairs that are encoded as ids.
 */
#ifndef ATTN_DATA_CORPUS_H
#define ATTN_DATA_CORPUS_H

#include "data/sentences.h"
#include "base/context.h"
#include "data/links.h"

/* The ids of all sentences of one side. Sentence i has the ids ids[begin[i]] to ids[begin[i+1] - 1], including
 * <eos>. */
typedef struct attn__encoded {
    int32_t *ids;
    int64_t *begin; /* n + 1 numbers */
    int64_t unknown, longest;
    int32_t pad;
} attn__encoded;

struct attn_corpus {
    attn_context *context;
    int64_t n;
    attn__encoded side[2];
    /* Links between tokens. Sentence i has the links link[link_begin[i]] to link[link_begin[i+1] - 1]. NULL: there
     * are no links. */
    attn__link *link;
    int64_t *link_begin;
    int32_t bos;
    /* D2L compatibility: the decoder's input is <bos> and all labels except the last; padding counts as labels here */
    bool end_in_input;
};

static inline int64_t attn__corpus_length(const attn_corpus *corpus, attn_side side, int64_t i)
{
    return corpus->side[side].begin[i + 1] - corpus->side[side].begin[i];
}

#endif
