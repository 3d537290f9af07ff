/* SPDX-License-Identifier: MIT
 *
 * small_models.h - makes a small model of any architecture, and inputs for it. Shapes come from the registry of
 * architectures. A letter of a shape such as "(b,t,dim)" has the value of the configuration key of that name. If there
 * is no such key, the test chooses the value.
 */
#ifndef ATTN_TESTS_SMALL_MODELS_H
#define ATTN_TESTS_SMALL_MODELS_H

#include "attn/models.h"

enum { SMALL_WIDTH = 8, SMALL_LETTERS = 8 };

/* Values for the letters in a model's shapes. */
typedef struct small_filling {
    const attn_config *config;
    /* first: value of the first free letter of a call; others: value of the other free letters */
    int64_t batch, first, others;
    bool channels; /* if true, letters that begin with d have the width of the configuration */
    int letters;
    char names[SMALL_LETTERS][32];
} small_filling;

/* Makes a small configuration with few layers. Keys without a default or with a large default get the same width.
 * The caller destroys the configuration. */
attn_config *small_model_config(attn_context *context, const attn_architecture *a);
/* Evaluates the first form of a shape such as "(b) or (b,q)", with the values of the filling. Returns the rank. A shape
 * that is given in words is a shape of axial layers, with channels first or last. */
int small_model_shape(small_filling *f, const char *text, int64_t shape[ATTN_MAX_RANK]);

#endif
