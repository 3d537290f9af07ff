/* SPDX-License-Identifier: MIT
 *
 * resnet_parts.h - residual networks of convolutions, as image classifiers and as backbones of detectors. */
#ifndef ATTN_MODELS_RESNET_PARTS_H
#define ATTN_MODELS_RESNET_PARTS_H

#include "models/model_keys.h"
#include "nn/spatial.h"

/* Maximum number of stages and of blocks in a network; number of stages of a network with a name. */
enum { ATTN__RESNET_STAGES = 6, ATTN__RESNET_BLOCKS = 64, ATTN__RESNET_NAMED_STAGES = 4 };

/* A residual block. It has two convolutions (3 x 3), or three convolutions (1 x 1, 3 x 3, 1 x 1). */
typedef struct attn__resnet_block {
    attn_nn_conv conv[3], shortcut;
    attn_nn_map_norm norm[3], shortcut_norm;
    int convs;
    bool has_shortcut;
} attn__resnet_block;

typedef struct attn__resnet {
    attn_nn_conv stem;
    attn_nn_map_norm stem_norm;
    attn__resnet_block block[ATTN__RESNET_BLOCKS]; /* blocks of all stages, in order */
    int blocks;
    bool pool;
    int64_t channels; /* number of channels of the network's result */
} attn__resnet;

extern const char *const attn__resnet_names[], *const attn__resnet_stems[], *const attn__resnet_norms[];
/* number of blocks in each stage, in the order of attn__resnet_names */
extern const int64_t attn__resnet_blocks[][ATTN__RESNET_NAMED_STAGES];
int64_t attn__resnet_stages(const attn_config *config);

/* The config keys that all residual networks have. norm is the default of the key for the kind of norm, and
 * frozen_doc describes the key frozen_stages. */
#define ATTN__KEYS_RESNET(norm, frozen_doc)                                                                            \
    {"backbone",                                                                                                       \
     ATTN_CONFIG_TYPE_TEXT,                                                                                            \
     "resnet50",                                                                                                       \
     0,                                                                                                                \
     0,                                                                                                                \
     attn__resnet_names,                                                                                               \
     "kind and number of blocks: two 3 x 3 convolutions (18, 34), or 1 x 1, 3 x 3, 1 x 1 (50, 101)"},                  \
        {"stage_blocks",                                                                                               \
         ATTN_CONFIG_TYPE_INTS,                                                                                        \
         "",                                                                                                           \
         1,                                                                                                            \
         ATTN__RESNET_BLOCKS,                                                                                          \
         NULL,                                                                                                         \
         "blocks of each stage, a number for each; default those of the name"},                                        \
        {"width",                                                                                                      \
         ATTN_CONFIG_TYPE_INTS,                                                                                        \
         "64",                                                                                                         \
         1,                                                                                                            \
         1 << 16,                                                                                                      \
         NULL,                                                                                                         \
         "channels of the first stage's 3 x 3 convolutions, doubled in each further one; or a list"},                  \
        {"stem",                                                                                                       \
         ATTN_CONFIG_TYPE_TEXT,                                                                                        \
         "conv",                                                                                                       \
         0,                                                                                                            \
         0,                                                                                                            \
         attn__resnet_stems,                                                                                           \
         "conv: 7 x 7 of stride 2 and pooling; small: 3 x 3 of stride 2, for pictures below 128 pixels"},              \
        {"norm",                                                                                                       \
         ATTN_CONFIG_TYPE_TEXT,                                                                                        \
         norm,                                                                                                         \
         0,                                                                                                            \
         0,                                                                                                            \
         attn__resnet_norms,                                                                                           \
         "behind convolutions: frozen batch norm, for trained weights; batch norm or group norm, to train"},           \
        {"norm_groups", ATTN_CONFIG_TYPE_INT, "32", 1, 1 << 16, NULL, "groups of channels of a group norm"},           \
        ATTN__KEY_FLAG("dilation", "false",                                                                            \
                       "the last stage keeps the resolution: its 3 x 3 convolutions have dilation 2"),                 \
        {"frozen_stages", ATTN_CONFIG_TYPE_INT, "", 0, ATTN__RESNET_STAGES + 1, NULL, frozen_doc},                     \
    {                                                                                                                  \
        "in_channels", ATTN_CONFIG_TYPE_INT, "3", 1, 1 << 16, NULL, "channels of an image"                             \
    }

/* Registers the parameters below the builder's current prefix. The stem and the stages before frozen_stages are not
 * trained. If the key frozen_stages is missing, its value is `frozen`. */
void attn__resnet_build(attn__resnet *resnet, attn_nn_builder *builder, const attn_config *config, int frozen);
/* Runs the network on x [B,in_channels,Y,X]. Returns [B,channels,Y',X']. */
attn_tensor *attn__resnet_forward(const attn__resnet *resnet, attn_tape *tape, attn_tensor *x);

#endif
