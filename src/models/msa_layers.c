/* SPDX-License-Identifier: MIT
 *
 * Tied row attention and column attention over alignments. */
#include "models/keys.h"

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_msa_attention_init(self, builder, attn_config_int(config, "embed_dim", 0),
                               attn_config_int(config, "num_heads", 0), attn_config_real(config, "dropout", 0),
                               attn_config_real(config, "mask_fill", 0));
}

/* The padding mask turned round: one byte an entry, zero where there is padding. */
static attn_tensor *kept(const attn__call *call)
{
    attn_tensor *padding = attn__input(call, "self_attn_padding_mask");
    if (!padding) {
        return NULL;
    }
    attn_tensor *keep =
        attn_tensor_make(call->tape, ATTN_U8, attn_tensor_rank(padding), attn_tensor_shape(padding), NULL);
    for (int64_t i = 0; keep && i < attn_tensor_size(keep); i++) {
        ((uint8_t *)attn_tensor_data(keep))[i] = ((const int32_t *)attn_tensor_data(padding))[i] == 0;
    }
    return keep;
}

static void rows_forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "attention", &weights);
    attn_tensor *x = attn__input(call, "x"), *keep = kept(call);
    attn__output(call, "out", attn_nn_msa_attention_rows(self, call->tape, x, keep, wanted));
    attn__output(call, "attention", weights);
}

static void columns_forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "attention", &weights);
    attn_tensor *x = attn__input(call, "x"), *keep = kept(call);
    attn__output(call, "out", attn_nn_msa_attention_columns(self, call->tape, x, keep, wanted));
    attn__output(call, "attention", weights);
}

static const attn_key keys[] = {
    ATTN__KEY_COUNT("embed_dim", NULL, "channels"),
    ATTN__KEY_COUNT("num_heads", NULL, "heads; divides embed_dim"),
    ATTN__KEY_DROPOUT,
    ATTN__KEY_COUNT("max_tokens_per_msa", "65536", "kept for the original's configs; memory is linear without it"),
    {"mask_fill", ATTN_VALUE_REAL, "-10000", -1e30, 0, NULL, "score of padded keys; 0: they are left out"},
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {
    ATTN__PORT("x", "(rows,cols,batch,embed_dim)", "alignments"),
    {"self_attn_padding_mask", "(batch,rows,cols)", true, true, "nonzero where there is padding"},
};
static const attn_port row_outputs[] = {
    ATTN__PORT("out", "(rows,cols,batch,embed_dim)", ""),
    ATTN__PORT_OPTIONAL("attention", "(heads,batch,cols,cols)", "the one map of all rows, after dropout"),
};
static const attn_port column_outputs[] = {
    ATTN__PORT("out", "(rows,cols,batch,embed_dim)", ""),
    ATTN__PORT_OPTIONAL("attention", "(heads,cols,batch,rows,rows)", "one map a column, after dropout"),
};

const attn__kind attn__kind_row_self_attention = {
    .about = {.name = "row-self-attention",
              .summary = "attention along the rows of an alignment, one map tied over all of them",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(keys, inputs, row_outputs)},
    .size = sizeof(attn_nn_msa_attention),
    .build = build,
    .forward = rows_forward,
};

const attn__kind attn__kind_column_self_attention = {
    .about = {.name = "column-self-attention",
              .summary = "attention along the columns of an alignment",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(keys, inputs, column_outputs)},
    .size = sizeof(attn_nn_msa_attention),
    .build = build,
    .forward = columns_forward,
};
