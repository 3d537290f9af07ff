/* SPDX-License-Identifier: MIT
 * The names of a Vision Transformer's parameters: here, at Hugging Face, in timm. */
#include "apps/vit_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* '*' is a block's number; what follows, .weight or .bias, is the same everywhere. */
static const struct {
    const char *own, *hf, *timm;
    int part; /* of timm's packed qkv; -1: none */
} names[] = {
    {"cls_token", "embeddings.cls_token", "cls_token", -1},
    {"pos_embedding", "embeddings.position_embeddings", "pos_embed", -1},
    {"patch_embedding.conv", "embeddings.patch_embeddings.projection", "patch_embed.proj", -1},
    {"blks.*.ln1", "encoder.layer.*.layernorm_before", "blocks.*.norm1", -1},
    {"blks.*.attention.W_q", "encoder.layer.*.attention.attention.query", "blocks.*.attn.qkv", 0},
    {"blks.*.attention.W_k", "encoder.layer.*.attention.attention.key", "blocks.*.attn.qkv", 1},
    {"blks.*.attention.W_v", "encoder.layer.*.attention.attention.value", "blocks.*.attn.qkv", 2},
    {"blks.*.attention.W_o", "encoder.layer.*.attention.output.dense", "blocks.*.attn.proj", -1},
    {"blks.*.ln2", "encoder.layer.*.layernorm_after", "blocks.*.norm2", -1},
    {"blks.*.mlp.dense1", "encoder.layer.*.intermediate.dense", "blocks.*.mlp.fc1", -1},
    {"blks.*.mlp.dense2", "encoder.layer.*.output.dense", "blocks.*.mlp.fc2", -1},
    {"head.0", "layernorm", "norm", -1},
    {"head.1", "classifier", "head", -1},
};

bool attn__vit_family_of(const attn_named_list *list, attn__vit_family *family)
{
    static const char *const marks[ATTN__VIT_FAMILIES] = {"vit.embeddings.cls_token", "embeddings.cls_token",
                                                          "blocks.0.attn.qkv.weight"};
    for (int i = 0; i < ATTN__VIT_FAMILIES; i++) {
        if (attn_named_find(list, marks[i])) {
            *family = (attn__vit_family)i;
            return true;
        }
    }
    return false;
}

/* Whether `name` is the pattern with a number in place of its '*', and what follows the pattern. */
static const char *match(const char *pattern, const char *name, int *block)
{
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern) {
                return NULL;
            }
            continue;
        }
        char *end;
        long number = strtol(name, &end, 10);
        if (end == name || number < 0 || number > 9999) {
            return NULL;
        }
        *block = (int)number;
        name = end;
    }
    return *name == '.' || *name == '\0' ? name : NULL;
}

static void fill(attn__vit_place *place, const char *prefix, const char *pattern, int block, const char *rest)
{
    const char *star = strchr(pattern, '*');
    if (star) {
        snprintf(place->name, sizeof place->name, "%s%.*s%d%s%s", prefix, (int)(star - pattern), pattern, block,
                 star + 1, rest);
    } else {
        snprintf(place->name, sizeof place->name, "%s%s%s", prefix, pattern, rest);
    }
}

bool attn__vit_place_of(attn__vit_family family, const char *own, attn__vit_place *place)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int block = 0;
        const char *rest = match(names[i].own, own, &block);
        if (!rest) {
            continue;
        }
        place->head = strcmp(names[i].own, "head.1") == 0;
        place->part = family == ATTN__VIT_TIMM ? names[i].part : -1;
        /* The classifier stands outside "vit.", which is the model without it. */
        fill(place, family == ATTN__VIT_HF && !place->head ? "vit." : "",
             family == ATTN__VIT_TIMM ? names[i].timm : names[i].hf, block, rest);
        return true;
    }
    return false;
}

bool attn__vit_may_skip(attn__vit_family family, const char *name)
{
    return family != ATTN__VIT_TIMM && strstr(name, "pooler.") != NULL;
}
