/* SPDX-License-Identifier: MIT
 *
 * contacts.h - fitting the contact regression of an MSA Transformer to known structures (Rao et al. 2021: logistic
 * regression with an L1 penalty over the symmetric, corrected row attention maps of every layer and head).
 *
 * One thread at a time uses a context; different contexts are independent.
 */
#ifndef ATTN_APPS_CONTACTS_H
#define ATTN_APPS_CONTACTS_H

#include "data/proteins.h"
#include "attn/msa.h"

typedef struct attn_contact_example {
    const attn_alignment *alignment; /* alignment, of which all rows are used; R, L */
    const float *distances;          /* distances [L,L] in angstrom, NaN if unknown */
} attn_contact_example;

/* Zero means the default. */
typedef struct attn_contacts_fit_options {
    int64_t min_separation; /* minimum distance of a pair in the query's sequence; 0: 6 */
    double cutoff;          /* maximum distance of a contact; 0: 8 */
    double c;               /* weight of the data against the penalty; 0: 0.15, the authors' value */
    size_t memory;          /* the field of attn_msa_options */
} attn_contacts_fit_options;

typedef struct attn_contacts_fit_result {
    int64_t pairs, contacts; /* numbers of pairs and of contacts in the examples */
    int64_t features, used;  /* used: number of features with a nonzero weight */
    int64_t sweeps;
    int64_t found; /* number of true contacts among the `contacts` likeliest pairs, on the training examples */
} attn_contacts_fit_result;

/* Fits the regression and sets it in the model (attn_msa_set_regression).  ATTN_ERROR_ARGUMENT: no pair, or no
 * contact, among the examples; statuses of attn_msa_run; ATTN_ERROR_MEMORY (features take 4 L H bytes a pair). */
attn_status attn_contacts_fit(attn_msa *msa, const attn_contact_example *examples, int64_t n,
                              const attn_contacts_fit_options *options, attn_contacts_fit_result *fitted);

#endif
