/* SPDX-License-Identifier: MIT
 *
 * Tests word alignments of three sentence pairs, with words as in the text and with prepared words, and the alignments'
 * use in batches.
 */
#include "fuzz.h"

#include "data/corpus.h"
#include "data/links.h"

#include <math.h>

static const char text[] = "Go now, Tom!\tVa, Tom !\nI am here.\tMe voici.\nGo.\tVa\xe2\x80\xaf!\n";

static const char words[] = "<pad>\n<bos>\n<eos>\n<unk>\nva\n,\ntom\n!\nVa\n";

enum { ROOM = 3 * 16 * 16 };

/* Checks that the target weights of each token sum to 1 or are all 0. */
static void check_guide(const attn_pairs *pairs, attn_vocab *vocab)
{
    attn_corpus *corpus;
    attn_batches *batches;
    attn_batch batch;
    float wanted[ROOM] = {0};
    if (attn_corpus_create(&corpus, pairs, vocab, vocab, NULL) != ATTN_OK ||
        attn_batches_create(&batches, corpus, &(attn_batches_options){.in_order = true}) != ATTN_OK ||
        !attn_batches_next(batches, &batch) || batch.size * batch.source_steps * batch.target_steps > ROOM)
        abort();
    attn__corpus_guide(corpus, &batch, wanted);
    for (int64_t row = 0; row < batch.size * batch.target_steps; row++) {
        double sum = 0;
        for (int64_t k = 0; k < batch.source_steps; k++)
            sum += (double)wanted[row * batch.source_steps + k];
        if (sum != 0 && !(fabs(sum - 1) < 1e-6))
            abort();
    }
    attn_batches_destroy(batches);
    attn_corpus_destroy(corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_pairs *pairs = NULL, *kept = NULL;
    attn_vocab *vocab = NULL;
    bool prepared = size & 1;
    attn_pairs_options reading = {.keep_text = !prepared};
    if (attn_pairs_parse(&pairs, context, text, sizeof text - 1, "pairs", &reading) != ATTN_OK)
        abort();
    reading.keep_text = true;
    if (prepared && attn_pairs_parse(&kept, context, text, sizeof text - 1, "pairs", &reading) != ATTN_OK)
        abort();
    if (attn__pairs_link(pairs, prepared ? kept : pairs, ATTN_COMPAT_NONE, (const char *)data, size, "fuzz") ==
        ATTN_OK) {
        if (attn_vocab_parse(&vocab, context, words, sizeof words - 1, "words") != ATTN_OK)
            abort();
        check_guide(pairs, vocab);
    }
    attn_vocab_destroy(vocab);
    attn_pairs_destroy(kept);
    attn_pairs_destroy(pairs);
    return fuzz_end(context);
}
