/* SPDX-License-Identifier: MIT
 *
 * small_models.h - a small model of any architecture of the registry, and inputs that it may take: what to feed is read
 * from the registry, the letters of a port's shape ("(b,t,dim)") are the config's where a key has that name, and free
 * otherwise.
 */
#ifndef ATTN_TESTS_SMALL_MODELS_H
#define ATTN_TESTS_SMALL_MODELS_H

#include "attn/models.h"

enum { SMALL_WIDTH = 8, SMALL_LETTERS = 8 };

/* How a run fills the letters. */
typedef struct small_filling {
    const attn_config *config;
    int64_t batch, first, others; /* the first free letter of a call, and the further ones */
    bool channels;                /* letters that begin with d are as wide as in the config */
    int letters;
    char names[SMALL_LETTERS][32];
} small_filling;

/* Keys without a default, or with a large one, get the same width; layers are few.  The caller's to destroy. */
attn_config *small_model_config(attn_context *context, const attn_architecture *a);
/* The first form of "(b) or (b,q)", as the filling has it; returns the rank.  Shapes in words are those of axial layers,
 * channels first or last. */
int small_model_shape(small_filling *f, const char *text, int64_t shape[ATTN_MAX_RANK]);

#endif
