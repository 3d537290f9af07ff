/* SPDX-License-Identifier: MIT
 *
 * model_keys.h - config keys, inputs and outputs that several architectures share. */
#ifndef ATTN_MODELS_MODEL_KEYS_H
#define ATTN_MODELS_MODEL_KEYS_H

#include "models/kind.h"

#define ATTN__COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { ATTN__MAX_BLOCKS = 64 };

/* columns of the macros below: NAME, TYPE, default, min, max, choices, doc */
/* clang-format off */
#define ATTN__KEY_DROPOUT                                                                                              \
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0", 0, 0.99, NULL, "share of numbers dropped in training"}
/* clang-format on */
/* clang-format off */
#define ATTN__KEY_FILL                                                                                                 \
    {"mask_fill", ATTN_CONFIG_TYPE_REAL, "0", -1e30, 0, NULL, \
     "score of masked keys; 0: left out, a query without keys gives zeros; -1e6: as in Dive into Deep Learning, it "   \
     "gives the mean"}
/* clang-format on */
/* clang-format off */
#define ATTN__KEY_INIT                                                                                                 \
    {"init", ATTN_CONFIG_TYPE_TEXT, "xavier", 0, 0, attn__init_choices, \
     "first values: xavier (recommended) or torch (PyTorch's defaults)"}
/* clang-format on */
#define ATTN__KEY_COUNT(name, otherwise, doc)                                                                          \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_INT, otherwise, 1, 1 << 30, NULL, doc                                                   \
    }
#define ATTN__KEY_FLAG(name, otherwise, doc)                                                                           \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_BOOL, otherwise, 0, 0, NULL, doc                                                        \
    }

#define ATTN__PORT(name, shape, doc)                                                                                   \
    {                                                                                                                  \
        name, shape, false, false, doc                                                                                 \
    }
#define ATTN__PORT_IDS(name, shape, doc)                                                                               \
    {                                                                                                                  \
        name, shape, true, false, doc                                                                                  \
    }
#define ATTN__PORT_OPTIONAL(name, shape, doc)                                                                          \
    {                                                                                                                  \
        name, shape, false, true, doc                                                                                  \
    }
/* clang-format off */
#define ATTN__PORT_LENS(shape)                                                                                         \
    {"valid_lens", shape, true, true, "keys at or past the length take no part; left out: all do"}
/* clang-format on */

extern const char *const attn__init_choices[];

/* Returns the index of a key's value in the list of its choices, or 0 if the key has no value. Other values cannot
 * occur, because the table of keys was checked before. */
int attn__config_choice(const attn_config *config, const char *key, const char *const *choices);

/* Sets the fields for keys, inputs and outputs in the description of an architecture. k, in and out are the arrays. */
#define ATTN__PORTS(k, in, out)                                                                                        \
    .nkeys = ATTN__COUNT(k), .keys = (k), .ninputs = ATTN__COUNT(in), .inputs = (in), .noutputs = ATTN__COUNT(out),    \
    .outputs = (out)
#define ATTN__PORTS_NO_KEYS(in, out)                                                                                   \
    .ninputs = ATTN__COUNT(in), .inputs = (in), .noutputs = ATTN__COUNT(out), .outputs = (out)

#endif
