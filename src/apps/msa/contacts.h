/* SPDX-License-Identifier: MIT
 *
 * contacts.h - fits the contact regression of an MSA Transformer to known structures (Rao et al. 2021). It is a
 * logistic regression with an L1 penalty. Its features are the row attention maps of every layer and head, made
 * symmetric and corrected.
 *
 * One thread at a time uses a context; different contexts are independent.
 */
#ifndef ATTN_APPS_CONTACTS_H
#define ATTN_APPS_CONTACTS_H

#include "data/proteins.h"
#include "attn/msa.h"

typedef struct attn_contact_example {
    const attn_alignment *alignment; /* an alignment of R rows and L columns, all of whose rows are used */
    const float *distances;          /* distances between residues [L,L] in angstrom; NaN: unknown */
} attn_contact_example;

/* A field that is zero has its default. */
typedef struct attn_contacts_fit_options {
    int64_t min_separation; /* minimum distance in the sequence between the residues of a pair; 0: 6 */
    double cutoff;          /* residues closer than this distance in angstrom are in contact; 0: 8 */
    /* weight of the data relative to the penalty; 0: 0.15, which is the value of the paper's authors */
    double c;
    size_t memory; /* maximum memory in bytes, as in attn_msa_options */
} attn_contacts_fit_options;

typedef struct attn_contacts_fit_result {
    int64_t pairs, contacts; /* number of pairs in all examples, and number of contacts among them */
    int64_t features, used;  /* number of features, and number of features whose weight is not zero */
    int64_t sweeps;
    /* number of true contacts among the n likeliest pairs of the training examples, where n is the number of
     * contacts */
    int64_t found;
} attn_contacts_fit_result;

/* Fits the regression and sets it in the model, as attn_msa_set_regression does. ATTN_ERROR_ARGUMENT: the examples have
 * no pair or no contact. ATTN_ERROR_MEMORY: there is no memory; the features need 4 L H bytes per pair, for L layers of
 * H heads. Otherwise returns the statuses of attn_msa_run. */
attn_status attn_contacts_fit(attn_msa *msa, const attn_contact_example *examples, int64_t n,
                              const attn_contacts_fit_options *options, attn_contacts_fit_result *fitted);

#endif
