/* SPDX-License-Identifier: MIT
 *
 * Defines the MSA Transformer (Rao et al. 2021, doi:10.1101/2021.02.12.430858). Parameters have the names of
 * ESM-MSA-1b.
 */
#include "models/msa_model.h"

#include "base/context.h"
#include "nn/named.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- building */

/* Initializes the embedding. Its table is also the weight of the head. With this variance of 1/D, the initial logits
 * have a variance near 1. The layers do not depend on this variance, because a norm follows the embedding. */
static void embedding_init(attn_nn_embedding *embedding, attn_nn_builder *builder, const char *name, int64_t rows,
                           int64_t dim)
{
    attn_nn_initializer fill = {.start = ATTN_INIT_NORMAL, .scale = 1 / sqrt((double)dim)};
    attn_nn_push(builder, name);
    embedding->scale = 1;
    embedding->weight = attn_nn_parameter(builder, "weight", 2, (int64_t[]){rows, dim}, fill);
    attn_nn_pop(builder);
}

/* In ESM-MSA-1 a position has one channel, which is added to all channels of a token. In ESM-MSA-1b a position has all
 * channels. */
static void msa_positions_init(attn__msa *m, attn_nn_builder *builder, const attn_config *config)
{
    enum { MOST_ROWS = 1024 };
    int64_t dim = attn_config_int(config, "embed_positions_msa_dim", m->dim);
    if (!attn_config_bool(config, "embed_positions_msa", true))
        return;
    if (dim != 1 && dim != m->dim) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "msa-transformer: embed_positions_msa_dim is %lld; allowed: 1 and %lld, the embed_dim",
                   (long long)dim, (long long)m->dim);
        return;
    }
    m->msa_positions = attn_nn_parameter(builder, "msa_position_embedding", 4, (int64_t[]){1, MOST_ROWS, 1, dim},
                                         (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = 0.01});
}

static void layers_init(attn__msa *m, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_msa_layer_options options = {
        .dim = m->dim,
        .ffn_dim = attn_config_int(config, "ffn_embed_dim", 0),
        .heads = m->heads,
        .dropout = m->dropout,
        .activation_dropout = attn_config_real(config, "activation_dropout", 0),
        /* With fill = 0, padded keys are left out. In the original they get the score -10000, which gives the same
         * weight 0, unless all keys are padding. */
        .fill = m->compat ? -10000 : 0,
        .own_depth = !m->compat,
        .untied = m->untied,
        .columns_first = m->columns_first,
        .max_tokens = attn_config_int(config, "max_tokens_per_msa", 0),
    };
    for (int64_t i = 0; i < m->layers; i++) {
        attn_nn_pushf(builder, "layers.%lld", (long long)i);
        attn_nn_msa_layer_init(&m->layer[i], builder, &options);
        attn_nn_pop(builder);
    }
}

static void heads_init(attn__msa *m, attn_nn_builder *builder)
{
    int64_t features = m->layers * m->heads, one = 1;
    attn_nn_push(builder, "contact_head.regression");
    /* The regression starts at zero, so it predicts a probability of one half for every contact. It is not trained
     * with the model: its weights are fitted to structures later. */
    m->regression.weight = attn_nn_parameter(builder, "weight", 2, (int64_t[]){1, features}, (attn_nn_initializer){0});
    m->regression.bias = attn_nn_parameter(builder, "bias", 1, &one, (attn_nn_initializer){0});
    attn_nn_pop(builder);
    attn_nn_push(builder, "lm_head");
    m->head_bias = attn_nn_parameter(builder, "bias", 1, &m->vocabulary, (attn_nn_initializer){0});
    attn__nn_linear_named(&m->dense, builder, "dense", m->dim, m->dim, true);
    attn__nn_layer_norm_named(&m->head_norm, builder, "layer_norm", m->dim, 0);
    attn_nn_pop(builder);
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn__msa *m = self;
    m->layers = attn_config_int(config, "layers", 0);
    m->dim = attn_config_int(config, "embed_dim", 0);
    m->heads = attn_config_int(config, "attention_heads", 0);
    m->vocabulary = attn_config_int(config, "vocab_size", 0);
    m->max_positions = attn_config_int(config, "max_positions", 0);
    m->dropout = attn_config_real(config, "dropout", 0);
    m->compat = strcmp(attn_config_text(config, "compat", "none"), "esm") == 0;
    m->untied = !attn_config_bool(config, "tied", true);
    m->columns_first = attn__config_choice(config, "order", attn__msa_orders) == 1;
    embedding_init(&m->embed_tokens, builder, "embed_tokens", m->vocabulary, m->dim);
    msa_positions_init(m, builder, config);
    layers_init(m, builder, config);
    heads_init(m, builder);
    embedding_init(&m->embed_positions, builder, "embed_positions", m->max_positions + ATTN__MSA_PAD + 1, m->dim);
    attn__nn_layer_norm_named(&m->norm_before, builder, "emb_layer_norm_before", m->dim, 0);
    attn__nn_layer_norm_named(&m->norm_after, builder, "emb_layer_norm_after", m->dim, 0);
}

/* -------------------------------------------------------------------------------------------------- running */

static bool wanted(const attn__call *call, const char *name)
{
    attn_tensor *unused = NULL;
    return attn__wanted(call, name, &unused) != NULL;
}

static attn_tensor *all_hidden(const attn__msa *m, attn_tape *tape, attn__msa_results *results)
{
    attn_tensor *parts[ATTN__MAX_BLOCKS + 1];
    for (int64_t i = 0; i <= m->layers; i++) {
        int64_t shape[5] = {1};
        memcpy(shape + 1, attn_tensor_shape(results->hidden[i]), 4 * sizeof *shape);
        parts[i] = attn_reshape(tape, results->hidden[i], 5, shape);
    }
    return attn_concat(tape, parts, (int)m->layers + 1, 0);
}

static void forward(const void *self, const attn__call *call)
{
    const attn__msa *m = self;
    bool every = wanted(call, "hidden");
    attn__msa_wishes wishes = {.logits = true,
                               .contacts = wanted(call, "contacts"),
                               .row_maps = wanted(call, "row_attentions"),
                               .column_maps = wanted(call, "col_attentions")};
    for (int64_t i = 0; i <= m->layers; i++)
        wishes.hidden[i] = every || (i == m->layers && wanted(call, "representations"));
    attn__msa_results results;
    bool done = attn__msa_run(m, call->tape, attn__call_input(call, "tokens"), &wishes, &results);
    /* Resets this field, because the layers set it to 2, the index of the batch axis of their activations [R,C,B,D]. */
    call->tape->examples = 0;
    if (!done)
        return;
    attn__call_output(call, "logits", results.logits);
    attn__call_output(call, "contacts", results.contacts);
    attn__call_output(call, "row_attentions", results.row_maps);
    attn__call_output(call, "col_attentions", results.column_maps);
    if (wishes.hidden[m->layers])
        attn__call_output(call, "representations", results.hidden[m->layers]);
    if (every)
        attn__call_output(call, "hidden", all_hidden(m, call->tape, &results));
}

static const char *const compats[] = {"none", "esm", NULL};

static const attn_setting keys[] = {
    {"layers", ATTN_CONFIG_TYPE_INT, "12", 1, ATTN__MAX_BLOCKS, NULL, "axial layers"},
    ATTN__KEY_COUNT("embed_dim", "768", "channels"),
    ATTN__KEY_COUNT("ffn_embed_dim", "3072", "hidden channels of the feed-forward blocks"),
    ATTN__KEY_COUNT("attention_heads", "12", "heads; divides embed_dim"),
    {"dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "share dropped in training"},
    {"attention_dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "taken but not used, as in the original"},
    {"activation_dropout", ATTN_CONFIG_TYPE_REAL, "0.1", 0, 0.99, NULL, "share of hidden channels dropped in training"},
    {"vocab_size", ATTN_CONFIG_TYPE_INT, "33", 2, 1 << 20, NULL, "tokens; 0 is <cls>, 1 is <pad>"},
    {"max_positions", ATTN_CONFIG_TYPE_INT, "1024", 1, 1 << 20, NULL, "most tokens of a row, <cls> among them"},
    ATTN__KEY_FLAG("embed_positions_msa", "true", "whether rows have positions too (at most 1,024 of them)"),
    ATTN__KEY_COUNT("embed_positions_msa_dim", "", "channels of these: 1 in ESM-MSA-1; default embed_dim"),
    ATTN__KEY_COUNT("max_tokens_per_msa", "16384",
                    "without gradients: most tokens whose projections are held at once; changes memory, not results"),
    ATTN__MSA_KEY_TIED,
    ATTN__MSA_KEY_ORDER,
    {"compat", ATTN_CONFIG_TYPE_TEXT, "none", 0, 0, compats,
     "esm: in batches of unlike alignments, tied scores are scaled and contacts corrected by the padded sizes"},
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {
    ATTN__PORT_IDS("tokens", "(batch,rows,cols)", "each row: <cls>, the aligned residues, then <pad>"),
};
static const attn_port outputs[] = {
    ATTN__PORT("logits", "(batch,rows,cols,vocab)", "of the masked-language head"),
    ATTN__PORT_OPTIONAL("representations", "(batch,rows,cols,dim)", "the last layer, normalized"),
    ATTN__PORT_OPTIONAL("hidden", "(layers+1,batch,rows,cols,dim)", "embedding and all layers, the last normalized"),
    ATTN__PORT_OPTIONAL("row_attentions", "(batch,layers,heads,cols,cols)",
                        "row attention; untied (batch,layers,heads,rows,cols,cols)"),
    ATTN__PORT_OPTIONAL("col_attentions", "(batch,layers,heads,cols,rows,rows)", "column attention"),
    ATTN__PORT_OPTIONAL("contacts", "(batch,cols-1,cols-1)",
                        "probabilities; no gradient flows through them; tied rows only"),
};

const attn__kind attn__kind_msa_transformer = {
    .about = {.name = "msa-transformer",
              .summary = "language model of alignments of protein sequences: contacts, representations, logits",
              .source = "Rao et al. 2021, MSA Transformer; facebookresearch/esm",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn__msa),
    .build = build,
    .forward = forward,
};

const attn__msa *attn__msa_of(const attn_model *model)
{
    return model && model->kind == &attn__kind_msa_transformer ? model->self : NULL;
}
