/* SPDX-License-Identifier: MIT
 *
 * contacts.h - fits the contact regression of an MSA Transformer to known structures (Rao et al. 2021: logistic
 * regression with an L1 penalty over the symmetric, corrected row attention maps of every layer and head).
 *
 * One thread at a time uses a context; different contexts are independent.
 */
#ifndef ATTN_APPS_CONTACTS_H
#define ATTN_APPS_CONTACTS_H

#include "data/proteins.h"
#include "attn/msa.h"

typedef struct attn_contact_example {
    const attn_alignment *alignment; /* an alignment of R rows and L columns; all rows are used */
    const float *distances;          /* distances of residues [L,L] in angstrom, NaN if unknown */
} attn_contact_example;

/* Options of the fit. Zero fields mean the defaults. */
typedef struct attn_contacts_fit_options {
    int64_t min_separation; /* minimum distance of a pair's residues in the sequence; 0: 6 */
    double cutoff;          /* maximum distance of a contact in angstrom; 0: 8 */
    double c;               /* weight of the data relative to the penalty; 0: 0.15, the authors' value */
    size_t memory;          /* limit of the memory in bytes, as in attn_msa_options */
} attn_contacts_fit_options;

typedef struct attn_contacts_fit_result {
    int64_t pairs, contacts; /* number of pairs and number of contacts in all examples */
    int64_t features, used;  /* number of features; number of features with a nonzero weight */
    int64_t sweeps;
    int64_t found; /* number of contacts among the `contacts` likeliest pairs of the training examples */
} attn_contacts_fit_result;

/* Fits the regression and sets it in the model, as attn_msa_set_regression does. ATTN_ERROR_ARGUMENT: the examples
 * have no pair or no contact. ATTN_ERROR_MEMORY: there is no memory; features take 4 L H bytes per pair, for L
 * layers of H heads. Otherwise the statuses of attn_msa_run. */
attn_status attn_contacts_fit(attn_msa *msa, const attn_contact_example *examples, int64_t n,
                              const attn_contacts_fit_options *options, attn_contacts_fit_result *fitted);

#endif
