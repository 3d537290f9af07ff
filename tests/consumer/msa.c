/* SPDX-License-Identifier: MIT
 *
 * msa.h: an alignment is read, and an MSA Transformer with random weights runs on it. The argument is the folder of the
 * model.
 *
 * attn_msa_load reads a published model; here models.h, which msa.h includes, makes one. */
#include <attn/msa.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { LAYERS = 2, DIM = 16, HEADS = 4 };

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    attn_config *config;
    attn_model *model;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    CHECK(attn_config_set_int(config, "layers", LAYERS) == ATTN_OK);
    CHECK(attn_config_set_int(config, "embed_dim", DIM) == ATTN_OK);
    CHECK(attn_config_set_int(config, "ffn_embed_dim", 32) == ATTN_OK);
    CHECK(attn_config_set_int(config, "attention_heads", HEADS) == ATTN_OK);
    CHECK(attn_config_set_int(config, "max_positions", 32) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "msa-transformer", config, NULL) == ATTN_OK);
    CHECK(attn_model_save(model, folder) == ATTN_OK);
    attn_msa *msa;
    CHECK(attn_msa_load(&msa, context, folder, NULL) == ATTN_OK);

    /* Two sequences beside the query; small letters are insertions, which have no column. */
    static const char text[] = ">query\nMKLVE\n>one\nMKaL-E\n>two\n-RLVE\n";
    attn_msa_family family;
    CHECK(attn_msa_family_parse(&family, context, text, strlen(text), "test.a3m", NULL) == ATTN_OK);
    CHECK(family.rows == 3 && family.cols == 6 && family.sequences == 3 && strcmp(family.query, "MKLVE") == 0);
    static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO.-", rows[3][6] = {"MKLVE", "MKL-E", "-RLVE"};
    for (int r = 0; r < 3; r++) {
        const int32_t *tokens = family.tokens + r * 6;
        CHECK(tokens[0] == 0); /* <cls> */
        for (int c = 0; c < 5; c++)
            CHECK(tokens[c + 1] == 4 + strchr(letters, rows[r][c]) - letters);
    }
    for (int c = 0; c < 5; c++)
        CHECK(family.numbers[c] == c + 1);

    /* The weights of every map sum to 1; a bound on the memory changes nothing but rounding. */
    attn_msa_options options = {
        .logits = true, .row_maps = true, .column_maps = true, .layers = (int64_t[]){0, -1}, .nlayers = 2};
    attn_msa_cost cost;
    CHECK(attn_msa_estimate(msa, 1, family.rows, family.cols, &options, &cost) == ATTN_OK);
    CHECK(cost.smallest > 0 && cost.smallest <= cost.bytes);
    attn_msa_result result;
    CHECK(attn_msa_run(msa, family.tokens, 1, family.rows, family.cols, &options, &result) == ATTN_OK);
    CHECK(!result.contacts && attn_tensor_size(result.logits) == 3 * 6 * 33);
    CHECK(attn_tensor_size(result.representations[1]) == 3 * 6 * DIM);
    CHECK(attn_tensor_size(result.row_maps) == LAYERS * HEADS * 6 * 6);
    CHECK(attn_tensor_size(result.column_maps) == LAYERS * HEADS * 6 * 3 * 3);
    const float *maps[] = {attn_tensor_data(result.row_maps), attn_tensor_data(result.column_maps)};
    for (int m = 0; m < 2; m++)
        for (int i = 0, keys = m ? 3 : 6; i < LAYERS * HEADS * 6 * (m ? 3 : 1); i++) {
            double sum = 0;
            for (int j = 0; j < keys; j++)
                sum += maps[m][i * keys + j];
            CHECK(fabs(sum - 1) < 1e-5);
        }
    float logit = *(const float *)attn_tensor_data(result.logits);
    options.memory = cost.smallest;
    CHECK(attn_msa_run(msa, family.tokens, 1, family.rows, family.cols, &options, &result) == ATTN_OK);
    CHECK(fabs(*(const float *)attn_tensor_data(result.logits) - logit) < 1e-5);

    /* A token that is none, and a text that is no alignment. */
    const int32_t wrong[] = {0, 33};
    CHECK(attn_msa_run(msa, wrong, 1, 1, 2, &options, &result) == ATTN_ERROR_ARGUMENT);
    attn_msa_family none;
    CHECK(attn_msa_family_parse(&none, context, ">a\nMK\n>b\nMKL\n", 13, "bad.a3m", NULL) == ATTN_ERROR_FORMAT);
    printf("msa: %s\n", attn_context_error(context));
    attn_msa_family_free(context, &family);
    attn_msa_destroy(msa);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
