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
    const attn_alignment *alignment; /* all its rows are used; R, L */
    const float *distances;          /* [L,L] in angstrom, NaN where not known */
} attn_contact_example;

/* Zero means the default. */
typedef struct attn_contacts_fit_options {
    int64_t min_separation; /* pairs of the query's residues nearer in its sequence are left out; 0: 6 */
    double cutoff;          /* of a contact; 0: 8 */
    double c;               /* strength of the data against the penalty; 0: 0.15, as the authors took */
    size_t memory;          /* as in attn_msa_options */
} attn_contacts_fit_options;

typedef struct attn_contacts_fit_result {
    int64_t pairs, contacts; /* that were seen */
    int64_t features, used;  /* used: whose weight is not 0 */
    int64_t sweeps;
    int64_t found; /* contacts among the `contacts` pairs that the fit finds likeliest, of those it was fitted to */
} attn_contacts_fit_result;

/* Fits the regression and sets it in the model (attn_msa_set_regression).  ATTN_ERROR_ARGUMENT: no pair, or no
 * contact, among the examples; statuses of attn_msa_run; ATTN_ERROR_MEMORY (features take 4 L H bytes a pair). */
attn_status attn_contacts_fit(attn_msa *msa, const attn_contact_example *examples, int64_t n,
                              const attn_contacts_fit_options *options, attn_contacts_fit_result *fitted);

#endif
