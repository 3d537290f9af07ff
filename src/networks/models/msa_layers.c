/* SPDX-License-Identifier: MIT
 *
 * Defines tied row attention and column attention over alignments, the feed-forward network, their residual blocks, and
 * the axial layer that consists of three such blocks.
 */
#include "models/msa_model.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

const char *const attn__msa_orders[] = {"row-column", "column-row", NULL};

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_msa_attention_init(self, builder, attn_config_int(config, "embed_dim", 0),
                               attn_config_int(config, "num_heads", 0), attn_config_real(config, "dropout", 0),
                               attn_config_real(config, "mask_fill", 0));
}

static void rows_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    build(self, builder, config);
    ((attn_nn_msa_attention *)self)->untied = !attn_config_bool(config, "tied", true);
}

/* Returns the inverse of the input that marks padding: U8, zero for padding. */
static attn_tensor *kept(const attn__call *call)
{
    attn_tensor *padding = attn__call_input(call, "self_attn_padding_mask");
    if (!padding)
        return NULL;
    attn_tensor *keep =
        attn_tape_tensor(call->tape, ATTN_U8, attn_tensor_rank(padding), attn_tensor_shape(padding), NULL);
    for (int64_t i = 0; keep && i < attn_tensor_size(keep); i++)
        ((uint8_t *)attn_tensor_data(keep))[i] = ((const int32_t *)attn_tensor_data(padding))[i] == 0;
    return keep;
}

static void rows_forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "attention", &weights);
    attn_tensor *x = attn__call_input(call, "x"), *keep = kept(call);
    attn__call_output(call, "out", attn_nn_msa_attention_rows(self, call->tape, x, keep, wanted));
    attn__call_output(call, "attention", weights);
}

static void columns_forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "attention", &weights);
    attn_tensor *x = attn__call_input(call, "x"), *keep = kept(call);
    attn__call_output(call, "out", attn_nn_msa_attention_columns(self, call->tape, x, keep, wanted));
    attn__call_output(call, "attention", weights);
}

/* clang-format off */
#define KEYS                                                                                                           \
    ATTN__KEY_COUNT("embed_dim", NULL, "channels"),                                                                    \
    ATTN__KEY_COUNT("num_heads", NULL, "heads; divides embed_dim"),                                                    \
    ATTN__KEY_DROPOUT,                                                                                                 \
    ATTN__KEY_COUNT("max_tokens_per_msa", "65536", "kept for the original's configs; memory is linear without it"),    \
    {"mask_fill", ATTN_CONFIG_TYPE_REAL, "-10000", -1e30, 0, NULL, "score of padded keys; 0: they are left out"},      \
    ATTN__KEY_INIT
/* clang-format on */
static const attn_setting column_keys[] = {KEYS};
static const attn_setting row_keys[] = {ATTN__MSA_KEY_TIED, KEYS};
static const attn_port inputs[] = {
    ATTN__PORT("x", "(rows,cols,batch,embed_dim)", "alignments"),
    {"self_attn_padding_mask", "(batch,rows,cols)", true, true, "nonzero where there is padding"},
};
static const attn_port row_outputs[] = {
    ATTN__PORT("out", "(rows,cols,batch,embed_dim)", ""),
    ATTN__PORT_OPTIONAL("attention", "(heads,batch,cols,cols)",
                        "the one map of all rows, after dropout; untied (heads,rows,batch,cols,cols)"),
};
static const attn_port column_outputs[] = {
    ATTN__PORT("out", "(rows,cols,batch,embed_dim)", ""),
    ATTN__PORT_OPTIONAL("attention", "(heads,cols,batch,rows,rows)", "one map a column, after dropout"),
};

const attn__kind attn__kind_row_self_attention = {
    .about = {.name = "row-self-attention",
              .summary = "attention along the rows of an alignment, one map tied over all of them",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(row_keys, inputs, row_outputs)},
    .size = sizeof(attn_nn_msa_attention),
    .build = rows_build,
    .forward = rows_forward,
};

const attn__kind attn__kind_column_self_attention = {
    .about = {.name = "column-self-attention",
              .summary = "attention along the columns of an alignment",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(column_keys, inputs, column_outputs)},
    .size = sizeof(attn_nn_msa_attention),
    .build = build,
    .forward = columns_forward,
};

/* ------------------------------------------------------------------------------------------ axial layer */

static void axial_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_msa_layer_options options = {
        .dim = attn_config_int(config, "embedding_dim", 0),
        .ffn_dim = attn_config_int(config, "ffn_embedding_dim", 0),
        .heads = attn_config_int(config, "num_attention_heads", 0),
        .dropout = attn_config_real(config, "dropout", 0),
        .activation_dropout = attn_config_real(config, "activation_dropout", 0),
        .fill = attn_config_real(config, "mask_fill", 0),
        .own_depth = attn_config_bool(config, "own_depth", false),
        .untied = !attn_config_bool(config, "tied", true),
        .columns_first = attn__config_choice(config, "order", attn__msa_orders) == 1,
        .max_tokens = attn_config_int(config, "max_tokens_per_msa", 0),
    };
    attn_nn_msa_layer_init(self, builder, &options);
}

static void axial_forward(const void *self, const attn__call *call)
{
    attn_tensor *rows = NULL, **wanted_rows = attn__wanted(call, "row_attention", &rows);
    attn_tensor *columns = NULL, **wanted_columns = attn__wanted(call, "column_attention", &columns);
    attn_tensor *x = attn__call_input(call, "x"), *keep = kept(call);
    attn__call_output(call, "out", attn_nn_msa_layer_forward(self, call->tape, x, keep, wanted_rows, wanted_columns));
    attn__call_output(call, "row_attention", rows);
    attn__call_output(call, "column_attention", columns);
}

static const attn_setting axial_keys[] = {
    ATTN__KEY_COUNT("embedding_dim", "768", "channels"),
    ATTN__KEY_COUNT("ffn_embedding_dim", "3072", "hidden channels of the feed-forward block"),
    ATTN__KEY_COUNT("num_attention_heads", "8", "heads; divides embedding_dim"),
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL,
     "share dropped in training, of attention weights and of each block's result"},
    {"attention_dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL,
     "taken but not used, as in the original: attention weights are dropped by dropout"},
    {"activation_dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "share of hidden channels dropped in training"},
    ATTN__KEY_COUNT("max_tokens_per_msa", "16384",
                    "without gradients: most tokens whose projections are held at once; changes memory, not results"),
    {"mask_fill", ATTN_CONFIG_TYPE_REAL, "-10000", -1e30, 0, NULL, "score of padded keys; 0: they are left out"},
    ATTN__MSA_KEY_TIED,
    ATTN__MSA_KEY_ORDER,
    ATTN__KEY_FLAG("own_depth", "false", "scale tied scores by each alignment's own rows, not the padded batch's"),
    ATTN__KEY_INIT,
};
static const attn_port axial_outputs[] = {
    ATTN__PORT("out", "(rows,cols,batch,embedding_dim)", ""),
    ATTN__PORT_OPTIONAL("column_attention", "(heads,cols,batch,rows,rows)", "one map a column, after dropout"),
    ATTN__PORT_OPTIONAL("row_attention", "(heads,batch,cols,cols)",
                        "the one map of all rows, after dropout; untied (heads,rows,batch,cols,cols)"),
};

const attn__kind attn__kind_axial_transformer_layer = {
    .about = {.name = "axial-transformer-layer",
              .summary = "row attention, column attention and feed-forward over alignments, each a residual block",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(axial_keys, inputs, axial_outputs)},
    .size = sizeof(attn_nn_msa_layer),
    .build = axial_build,
    .forward = axial_forward,
};

/* ------------------------------------------------------------ feed-forward network and residual block */

static void network_init(attn_nn_ffn *ffn, attn_nn_builder *builder, const attn_config *config)
{
    int64_t dim = attn_config_int(config, "embedding_dim", 0), wide = attn_config_int(config, "ffn_embedding_dim", 0);
    ffn->activation = ATTN_ACTIVATION_GELU_ERF;
    ffn->dropout = attn_config_real(config, "activation_dropout", 0);
    attn__nn_linear_named(&ffn->dense1, builder, "fc1", dim, wide, true);
    attn__nn_linear_named(&ffn->dense2, builder, "fc2", wide, dim, true);
}

static void network_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    network_init(self, builder, config);
}

static void network_forward(const void *self, const attn__call *call)
{
    attn__call_output(call, "out", attn_nn_ffn_forward(self, call->tape, attn__call_input(call, "x")));
}

static const char *const residual_layers[] = {"row", "column", "feed-forward", NULL};
enum { ROW, COLUMN, FEED_FORWARD };

typedef struct residual_block {
    attn_nn_layer_norm norm;
    attn_nn_msa_attention attention;
    attn_nn_ffn ffn;
    int layer;
    double dropout;
} residual_block;

static void residual_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    residual_block *r = self;
    int64_t dim = attn_config_int(config, "embedding_dim", 0);
    r->layer = attn__config_choice(config, "layer", residual_layers);
    r->dropout = attn_config_real(config, "dropout", 0);
    attn_nn_push(builder, "layer");
    if (r->layer == FEED_FORWARD) {
        network_init(&r->ffn, builder, config);
    } else {
        attn_nn_msa_attention_init(&r->attention, builder, dim, attn_config_int(config, "num_attention_heads", 0),
                                   r->dropout, attn_config_real(config, "mask_fill", 0));
        r->attention.untied = !attn_config_bool(config, "tied", true);
    }
    attn_nn_pop(builder);
    attn__nn_layer_norm_named(&r->norm, builder, "layer_norm", dim, 0);
}

static void residual_forward(const void *self, const attn__call *call)
{
    const residual_block *r = self;
    attn_tape *tape = call->tape;
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "attention", &weights);
    attn_tensor *x = attn__call_input(call, "x"), *keep = kept(call);
    attn_tensor *y = attn_nn_layer_norm_forward(&r->norm, tape, x);
    y = r->layer == FEED_FORWARD ? attn_nn_ffn_forward(&r->ffn, tape, y)
        : r->layer == COLUMN     ? attn_nn_msa_attention_columns(&r->attention, tape, y, keep, wanted)
                                 : attn_nn_msa_attention_rows(&r->attention, tape, y, keep, wanted);
    attn__call_output(call, "out", attn_add(tape, x, attn_dropout(tape, y, r->dropout)));
    if (wanted && r->layer == FEED_FORWARD) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_ARGUMENT,
                   "normalized-residual-block: layer=feed-forward has no output \"attention\"");
    }
    attn__call_output(call, "attention", weights);
}

/* clang-format off */
#define NETWORK_KEYS                                                                                                   \
    ATTN__KEY_COUNT("ffn_embedding_dim", "3072", "hidden channels of the feed-forward network"),                       \
    {"activation_dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "share of hidden channels dropped in training"}
/* clang-format on */
static const attn_setting network_keys[] = {
    ATTN__KEY_COUNT("embedding_dim", "768", "channels"),
    NETWORK_KEYS,
    ATTN__KEY_COUNT("max_tokens_per_msa", "16384", "kept for the original's configs; changes no result"),
    ATTN__KEY_INIT,
};
static const attn_setting residual_keys[] = {
    {"layer", ATTN_CONFIG_TYPE_TEXT, "row", 0, 0, residual_layers,
     "the layer of the block: row attention, column attention or the feed-forward network"},
    ATTN__KEY_COUNT("embedding_dim", "768", "channels"),
    ATTN__KEY_COUNT("num_attention_heads", "8", "heads of an attention; divides embedding_dim"),
    NETWORK_KEYS,
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL,
     "share dropped in training, of attention weights and of the layer's result"},
    {"mask_fill", ATTN_CONFIG_TYPE_REAL, "-10000", -1e30, 0, NULL, "score of padded keys; 0: they are left out"},
    ATTN__MSA_KEY_TIED,
    ATTN__KEY_INIT,
};
static const attn_port network_inputs[] = {ATTN__PORT("x", "(rows,cols,batch,embedding_dim)", "alignments")};
static const attn_port network_outputs[] = {ATTN__PORT("out", "(rows,cols,batch,embedding_dim)", "")};
static const attn_port residual_outputs[] = {
    ATTN__PORT("out", "(rows,cols,batch,embedding_dim)", ""),
    ATTN__PORT_OPTIONAL("attention", "(heads,batch,cols,cols)",
                        "after dropout, as the layer's own: of columns (heads,cols,batch,rows,rows)"),
};

const attn__kind attn__kind_feed_forward_network = {
    .about = {.name = "feed-forward-network",
              .summary = "two linear layers with GELU between them, for every residue of an alignment",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(network_keys, network_inputs, network_outputs)},
    .size = sizeof(attn_nn_ffn),
    .build = network_build,
    .forward = network_forward,
};

const attn__kind attn__kind_normalized_residual_block = {
    .about = {.name = "normalized-residual-block",
              .summary = "a layer norm, a layer over alignments, dropout and a residual connection",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(residual_keys, inputs, residual_outputs)},
    .size = sizeof(residual_block),
    .build = residual_build,
    .forward = residual_forward,
};
