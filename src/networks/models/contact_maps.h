/* SPDX-License-Identifier: MIT
 *
 * contact_maps.h - contacts of proteins as a logistic regression over the attention maps of all heads of all layers
 * (Rao et al. 2020, doi:10.1101/2020.12.15.422761). Maps are added one layer at a time, so that they need not be
 * stored. */
#ifndef ATTN_MODELS_CONTACT_MAPS_H
#define ATTN_MODELS_CONTACT_MAPS_H

#include "nn/layers.h"

typedef struct attn__contact_regression {
    const attn_tensor *weight, *bias; /* [1,layers * heads], [1] */
} attn__contact_regression;

/* The maps of some heads of one layer: [heads,batch,C,C], or [batch,heads,C,C] if `batch_first` is true. Row and column
 * 0 are those of <cls>. `first` is the index of the first of these heads among the heads of all layers. */
typedef struct attn__contact_maps {
    const attn_tensor *maps;
    int64_t first;
    bool batch_first;
} attn__contact_maps;

/* Adds the maps to the sums [batch,P,P] of the regression. Protein b has the first residues[b] (I32 [batch]) of the P
 * places. Returns false and records an error if there is no memory. */
bool attn__contacts_add(const attn__contact_regression *regression, attn_tape *tape, const attn__contact_maps *maps,
                        const attn_tensor *residues, attn_tensor *sums);
/* Makes probabilities of the sums. Places that are not of the protein get 0. */
void attn__contacts_finish(const attn__contact_regression *regression, const attn_tensor *residues, attn_tensor *sums);

#endif
