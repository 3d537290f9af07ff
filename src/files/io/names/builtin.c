/* SPDX-License-Identifier: MIT
 *
 * Contains the built-in names files of data/names/, which the build converts to arrays (cmake/embed.cmake).
 */
#include "io/names/names.h"

#include <string.h>

#define BUILTIN(X)                                                                                                     \
    X("vit-timm", vit_timm)                                                                                            \
    X("vit-huggingface", vit_huggingface)                                                                              \
    X("torch-transformer", torch_transformer)                                                                          \
    X("fairseq-transformer", fairseq_transformer)                                                                      \
    X("marian-huggingface", marian_huggingface)                                                                        \
    X("marian-huggingface-two", marian_huggingface_two)                                                                \
    X("marian-native", marian_native)                                                                                  \
    X("marian-native-two", marian_native_two)                                                                          \
    X("bert-huggingface", bert_huggingface)                                                                            \
    X("roberta-huggingface", roberta_huggingface)                                                                      \
    X("distilbert-huggingface", distilbert_huggingface)                                                                \
    X("modernbert-huggingface", modernbert_huggingface)                                                                \
    X("modernbert-huggingface-classes", modernbert_huggingface_classes)                                                \
    X("esm2-huggingface", esm2_huggingface)                                                                            \
    X("esm2-esm", esm2_esm)                                                                                            \
    X("msa-esm", msa_esm)                                                                                              \
    X("detr-facebook", detr_facebook)                                                                                  \
    X("detr-huggingface", detr_huggingface)                                                                            \
    X("resnet-torchvision", resnet_torchvision)                                                                        \
    X("bahdanau-d2l", bahdanau_d2l)

/* Lists the names files that are used only to write checkpoints, never to read them. */
#define WRITING(X)                                                                                                     \
    X("to-marian-huggingface", to_marian_huggingface)                                                                  \
    X("to-marian-huggingface-two", to_marian_huggingface_two)

#define DECLARE(name, symbol)                                                                                          \
    extern const unsigned char attn__names_##symbol[];                                                                 \
    extern const size_t attn__names_##symbol##_size;
BUILTIN(DECLARE)
WRITING(DECLARE)
#undef DECLARE

static const struct {
    const char *name;
    const unsigned char *text;
    const size_t *size;
} builtin[] = {
#define LIST(name, symbol) {name, attn__names_##symbol, &attn__names_##symbol##_size},
    BUILTIN(LIST) WRITING(LIST)
#undef LIST
};

#define ONE(name, symbol) +1
enum { ALL = sizeof builtin / sizeof *builtin, COUNT = 0 BUILTIN(ONE) };
#undef ONE

const char *attn_name_map_builtin(int i, const char **text)
{
    if (i < 0 || i >= COUNT)
        return NULL;
    if (text)
        *text = (const char *)builtin[i].text;
    return builtin[i].name;
}

bool attn__names_builtin_size(const char *name, const char **text, size_t *size)
{
    for (int i = 0; i < ALL; i++) {
        if (strcmp(builtin[i].name, name) == 0) {
            *text = (const char *)builtin[i].text;
            *size = *builtin[i].size;
            return true;
        }
    }
    return false;
}

/* Counts how many tensors of the checkpoint a built-in names file would map, and how many targets they would make.
 * All tensors of a rule with the operation "same" count as one target. *share is the share of the rules that match. */
static attn_status count_known(const attn_checkpoint *weights, const char *name, bool wrapped, int64_t *known,
                               int64_t *places, double *share)
{
    enum { MOST_RULES = 64 };
    int used = 0;
    bool seen[MOST_RULES] = {false};
    attn_name_map *names;
    attn_checkpoint_entry entry;
    attn_status status = attn_name_map_read(&names, attn__weights_context(weights), name);
    *known = *places = 0;
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &entry); i++) {
        int rule = attn__names_rule(names, entry.name, wrapped);
        const attn__operation *gathers = rule >= 0 ? attn__rule_gathers(&names->rules[rule]) : NULL;
        bool copy = gathers && gathers->kind == ATTN__SAME && rule < MOST_RULES && seen[rule];
        *known += rule >= 0;
        *places += rule >= 0 && !copy;
        if (rule >= 0 && rule < MOST_RULES)
            seen[rule] = true;
    }
    for (int i = 0; i < MOST_RULES; i++)
        used += seen[i];
    *share = status == ATTN_OK && names->n > 0 ? (double)used / names->n : 0;
    attn_name_map_destroy(names);
    return status;
}

attn_status attn_name_map_detect(const char **name, const attn_checkpoint *weights, int64_t *known, double *rules)
{
    int64_t most = 0, of_best = 0, all = 0;
    double share, of_rules = 0;
    attn_status status = ATTN_OK;
    attn_checkpoint_entry entry;
    *name = NULL;
    while (attn_checkpoint_at(weights, all, &entry))
        all++;
    /* The first COUNT attempts match whole names. If no names file matches half of the names, COUNT more attempts match
     * the names without their prefix. Half is required, because a few names can fit another family by chance. Whole
     * names come first, because a part of a name may be a whole name in another family. */
    for (int i = 0; i < 2 * COUNT && status == ATTN_OK && !(i == COUNT && *name && 2 * of_best >= all); i++) {
        int64_t n, places;
        status = count_known(weights, builtin[i % COUNT].name, i >= COUNT, &n, &places, &share);
        if (status == ATTN_OK && places > most) {
            *name = builtin[i % COUNT].name;
            most = places;
            of_best = n;
            of_rules = share;
        }
    }
    if (known)
        *known = of_best;
    if (rules)
        *rules = of_rules;
    return status;
}
