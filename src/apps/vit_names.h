/* SPDX-License-Identifier: MIT
 *
 * vit_names.h - the one table of what a Vision Transformer's parameters are called by whom. */
#ifndef ATTN_APPS_VIT_NAMES_H
#define ATTN_APPS_VIT_NAMES_H

#include "attn/tensor.h"

typedef enum attn__vit_family { ATTN__VIT_HF, ATTN__VIT_HF_BARE, ATTN__VIT_TIMM, ATTN__VIT_FAMILIES } attn__vit_family;

/* Where a parameter is found. */
typedef struct attn__vit_place {
    char name[160];
    int part;  /* of the packed queries, keys and values: 0 to 2; -1: all of the tensor */
    bool head; /* of the classifier */
} attn__vit_place;

/* By the names in the list; false if they are nobody's. */
bool attn__vit_family_of(const attn_named_list *list, attn__vit_family *family);
/* The place of the parameter `own`; false if the table has no such. */
bool attn__vit_place_of(attn__vit_family family, const char *own, attn__vit_place *place);
/* Whether a plain ViT may pass the tensor over: the pooler that a Hugging Face model without a head has. */
bool attn__vit_may_skip(attn__vit_family family, const char *name);

#endif
