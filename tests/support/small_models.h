/* SPDX-License-Identifier: MIT
 *
 * small_models.h - makes a small model of any architecture, and inputs for it. Shapes come from the registry of
 * architectures, in the form "(b,t,dim)". A letter or word of a shape is the value of the config's key of that name or,
 * if there is no such key, a value that the test chooses.
 */
#ifndef ATTN_TESTS_SMALL_MODELS_H
#define ATTN_TESTS_SMALL_MODELS_H

#include "attn/models.h"

enum { SMALL_WIDTH = 8, SMALL_LETTERS = 8 };

typedef struct small_filling {
    const attn_config *config;
    /* first: value of the first letter that is not a key; others: value of all other such letters */
    int64_t batch, first, others;
    bool channels; /* true: letters that begin with d are the width in the config */
    int letters;
    char names[SMALL_LETTERS][32];
} small_filling;

/* Makes a small config with few layers. Keys that have no default or a large default get the same width. The caller
 * destroys the config. */
attn_config *small_model_config(attn_context *context, const attn_architecture *a);
/* Evaluates the first form of a shape such as "(b) or (b,q)", with the values of the filling. Returns the rank. A
 * shape in words means the shape of axial layers, with channels first or last. */
int small_model_shape(small_filling *f, const char *text, int64_t shape[ATTN_MAX_RANK]);

#endif
