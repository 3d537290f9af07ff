/* SPDX-License-Identifier: MIT
 *
 * Implements guided alignment (Chen et al. 2016, arXiv:1607.01628). A translator's attention to the source is trained
 * with word alignments. As in Marian, the cross-entropy between attention and alignment is added to the loss. It is
 * summed over the aligned target tokens, and divided by the number of all target tokens of the batch. The losses of
 * several processes can then be added. */
#include "apps/translator/training.h"

#include "apps/translator/settings.h"
#include "base/context.h"
#include "base/rng.h"
#include "data/corpus.h"
#include "tensor/parts.h"

#include <stdlib.h>

typedef attn__translator_training training;

static const double usual_weight = 0.1;

/* The file counts the words of the original text, separated by spaces. If the vocabulary consists of words, the pairs
 * were normalized, so the data is read again without normalization. */
static attn_status link_pairs(training *t, const attn_bytes *file, const char *path)
{
    attn_pairs *kept = NULL;
    attn_status status = ATTN_OK;
    if (attn__setting_vocabulary(t->run.settings) == ATTN_VOCAB_WORDS) {
        attn_pairs_options options = {.compat = t->compat,
                                      .max_examples = attn_config_int(t->run.settings, "max_examples", 0),
                                      .keep_text = true};
        status = attn__pairs_read(&kept, t->run.context, &t->data, &options, NULL);
    }
    if (status == ATTN_OK)
        status = attn__pairs_link(t->all, kept ? kept : t->all, t->compat, file->data, file->size, path);
    attn_pairs_destroy(kept);
    return status;
}

/* Stores the absolute path of the file, and the weight of guided alignment, in the settings. Both are thus written
 * to training.json. */
static attn_status keep_settings(training *t, const char *path)
{
    attn_config *settings = t->run.settings;
    char *whole = t->run.resume ? NULL : realpath(path, NULL);
    attn_status status = whole ? attn_config_set_text(settings, "guided_alignment", whole) : ATTN_OK;
    free(whole);
    if (status == ATTN_OK && !attn_config_get(settings, "guided_alignment_weight"))
        status = attn_config_set_real(settings, "guided_alignment_weight", usual_weight);
    return status;
}

attn_status attn__training_guided(attn__translator_training *t)
{
    attn_bytes file = {0};
    const char *path = attn_config_text(t->run.settings, "guided_alignment", "");
    if (!path[0])
        return !attn_config_get(t->run.settings, "guided_alignment_weight")
                   ? ATTN_OK
                   : attn__fail(
                         t->run.context, ATTN_ERROR_ARGUMENT,
                         "guided_alignment_weight is given without a file of word alignments (guided_alignment)");
    attn_status status = attn_file_read(&file, t->run.context, path, 0);
    if (status == ATTN_OK)
        status = link_pairs(t, &file, path);
    if (status == ATTN_OK)
        t->run.fingerprint = attn__mix64(t->run.fingerprint ^ attn__mix64(~attn__fingerprint(file.data, file.size)));
    attn_bytes_free(t->run.context, &file);
    return status == ATTN_OK ? keep_settings(t, path) : status;
}

attn_status attn__guided_wanted(const attn__translator_training *t, attn_tape *tape, const attn_batch *batch,
                                attn_tensor **wanted)
{
    *wanted = NULL;
    if (!t->train_corpus->link_begin)
        return ATTN_OK;
    attn_tensor *map =
        attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){batch->size, batch->target_steps, batch->source_steps}, NULL);
    if (!map)
        return attn__result_status(t->run.context, map);
    if (attn__corpus_guide(t->train_corpus, batch, attn_tensor_data(map)))
        *wanted = map;
    return ATTN_OK;
}

attn_tensor *attn__guided_loss(const attn__translator_training *t, attn_tape *tape, attn_tensor *loss,
                               attn_tensor *weights, const attn_tensor *wanted, const attn_batch *batch)
{
    double weight = attn_config_real(t->run.settings, "guided_alignment_weight", usual_weight);
    if (loss && !weights) {
        attn__fail(t->run.context, ATTN_ERROR_UNSUPPORTED,
                   "guided_alignment: this model's decoder does not attend to the source");
        return NULL;
    }
    attn_tensor *guided = attn_weights_cross_entropy(tape, weights, wanted, (double)batch->target_tokens);
    return attn_add(tape, loss, attn_affine(tape, guided, weight, 0));
}
