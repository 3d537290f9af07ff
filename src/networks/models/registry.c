/* SPDX-License-Identifier: MIT
 *
 * Contains the list of architectures. A new architecture needs a file that defines its attn__kind, and a line in this
 * list.
 */
#include "models/kind.h"

#include "config/keys.h"

#include <string.h>

#define KINDS(X)                                                                                                       \
    X(masked_softmax)                                                                                                  \
    X(dot_product_attention)                                                                                           \
    X(additive_attention)                                                                                              \
    X(bilinear_attention)                                                                                              \
    X(multi_head_attention)                                                                                            \
    X(positional_encoding)                                                                                             \
    X(nadaraya_watson)                                                                                                 \
    X(position_wise_ffn)                                                                                               \
    X(add_norm)                                                                                                        \
    X(batch_norm)                                                                                                      \
    X(transformer_encoder_block)                                                                                       \
    X(transformer_decoder_block)                                                                                       \
    X(transformer_encoder)                                                                                             \
    X(transformer_decoder)                                                                                             \
    X(transformer)                                                                                                     \
    X(seq2seq_encoder)                                                                                                 \
    X(seq2seq_attention)                                                                                               \
    X(self_attention)                                                                                                  \
    X(pre_norm)                                                                                                        \
    X(channel_layer_norm)                                                                                              \
    X(reversible_block)                                                                                                \
    X(reversible_sequence)                                                                                             \
    X(axial_positional_embedding)                                                                                      \
    X(axial_transformer)                                                                                               \
    X(axial_image_transformer)                                                                                         \
    X(axial_image_classifier)                                                                                          \
    X(axial_classifier)                                                                                                \
    X(axial_attention)                                                                                                 \
    X(row_self_attention)                                                                                              \
    X(column_self_attention)                                                                                           \
    X(feed_forward_network)                                                                                            \
    X(normalized_residual_block)                                                                                       \
    X(axial_transformer_layer)                                                                                         \
    X(msa_transformer)                                                                                                 \
    X(detr_multi_head_attention)                                                                                       \
    X(detr_ffn)                                                                                                        \
    X(key_content_attention)                                                                                           \
    X(stand_alone_self_attention)                                                                                      \
    X(local_self_attention)                                                                                            \
    X(non_local)                                                                                                       \
    X(generalized_attention)                                                                                           \
    X(sine_position_encoding)                                                                                          \
    X(learned_position_encoding)                                                                                       \
    X(position_sensitive_attention)                                                                                    \
    X(patch_embedding)                                                                                                 \
    X(vit_mlp)                                                                                                         \
    X(vit_block)                                                                                                       \
    X(vit)                                                                                                             \
    X(non_local_net)                                                                                                   \
    X(sasa_resnet)                                                                                                     \
    X(axial_resnet)                                                                                                    \
    X(resnet)                                                                                                          \
    X(detr)

#define DECLARE(name) extern const attn__kind attn__kind_##name;
KINDS(DECLARE)
#undef DECLARE

static const attn__kind *const kinds[] = {
#define LIST(name) &attn__kind_##name,
    KINDS(LIST)
#undef LIST
};

enum { COUNT = sizeof kinds / sizeof *kinds };

int attn_architecture_count(void)
{
    return COUNT;
}

const attn_architecture *attn_architecture_at(int i)
{
    return i >= 0 && i < COUNT ? &kinds[i]->about : NULL;
}

const attn__kind *attn__kind_find(const char *name)
{
    for (int i = 0; name && i < COUNT; i++)
        if (strcmp(kinds[i]->about.name, name) == 0)
            return kinds[i];
    return NULL;
}

const attn_architecture *attn_architecture_find(const char *name)
{
    const attn__kind *kind = attn__kind_find(name);
    return kind ? &kind->about : NULL;
}

attn_status attn_architecture_select(const attn_architecture *architecture, const attn_config *from, attn_config *to)
{
    for (int i = 0; i < architecture->nkeys; i++) {
        const attn_setting *key = &architecture->keys[i];
        for (int64_t j = 0; j < attn_config_size(from); j++) {
            const char *name = attn_config_key(from, j);
            bool taken = strcmp(name, key->name) == 0 || attn__key_has_member(key, name);
            attn_status status = taken ? attn_config_set(to, name, attn_config_get(from, name)) : ATTN_OK;
            if (status != ATTN_OK)
                return status;
        }
    }
    return ATTN_OK;
}
