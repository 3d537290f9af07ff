/* SPDX-License-Identifier: MIT
 *
 * encode.h: an encoder with random weights and a tokenizer of eight words turns texts into vectors. The argument is the
 * folder of the files.
 *
 * attn_encoder_load reads a published encoder; here models.h, which encode.h includes, makes one. */
#include <attn/encode.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { DIM = 16, WORDS = 8 };

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    attn_config *config;
    attn_model *model;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    CHECK(attn_config_set_int(config, "vocab_size", WORDS) == ATTN_OK);
    CHECK(attn_config_set_int(config, "num_hiddens", DIM) == ATTN_OK);
    CHECK(attn_config_set_int(config, "max_len", 12) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "transformer-encoder", config, NULL) == ATTN_OK);

    /* BERT's list of words: line i, from 0, is token i. */
    char path[4096];
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\nsleeps\n", file) >= 0 && fclose(file) == 0);
    attn_encoder *encoder;
    CHECK(attn_encoder_wrap(&encoder, model, folder) == ATTN_OK);
    const attn_encoder_info *about = attn_encoder_about(encoder);
    CHECK(about->dim == DIM && about->vocabulary == WORDS && about->tokenizer && !about->protein);

    attn_encoder_text texts[2] = {{0}};
    CHECK(attn_encoder_tokens(encoder, "The cat sleeps", 14, &texts[0]) == ATTN_OK);
    CHECK(attn_encoder_tokens(encoder, "the dog", 7, &texts[1]) == ATTN_OK);
    static const int32_t expected[2][5] = {{2, 5, 6, 7, 3}, {2, 5, 1, 3}}; /* [CLS] ... [SEP]; dog: [UNK] */
    CHECK(texts[0].n == 5 && memcmp(texts[0].ids, expected[0], 5 * sizeof(int32_t)) == 0 && !texts[0].cut);
    CHECK(texts[1].n == 4 && memcmp(texts[1].ids, expected[1], 4 * sizeof(int32_t)) == 0);

    /* A vector for each token, and the mean for each text, which does not depend on the other text. */
    attn_encoder_options each = {.pool = ATTN_POOL_NONE, .normalize = ATTN_NORMALIZE_NO}, mean = each, unit = {0};
    mean.pool = ATTN_POOL_MEAN;
    unit.normalize = ATTN_NORMALIZE_YES;
    CHECK(attn_encoder_rows(encoder, &texts[0], &each) == 5 && attn_encoder_rows(encoder, &texts[0], NULL) == 1);
    float tokens[5][DIM], means[2][DIM], alone[DIM], ones[2][DIM];
    CHECK(attn_encoder_run(encoder, texts, 1, &each, &tokens[0][0]) == ATTN_OK);
    CHECK(attn_encoder_run(encoder, texts, 2, &mean, &means[0][0]) == ATTN_OK);
    CHECK(attn_encoder_run(encoder, &texts[1], 1, &mean, alone) == ATTN_OK);
    CHECK(attn_encoder_run(encoder, texts, 2, &unit, &ones[0][0]) == ATTN_OK);
    double length = 0;
    for (int c = 0; c < DIM; c++) {
        double sum = 0;
        for (int i = 0; i < 5; i++)
            sum += tokens[i][c];
        CHECK(fabs(means[0][c] - sum / 5) < 1e-5);
        CHECK(fabs(means[1][c] - alone[c]) < 1e-5);
        length += (double)ones[0][c] * ones[0][c];
    }
    CHECK(fabs(length - 1) < 1e-5);

    /* This model has no head for masked words. */
    float logits[WORDS];
    CHECK(attn_encoder_logits(encoder, &texts[0], (int64_t[]){2}, 1, logits) == ATTN_ERROR_UNSUPPORTED);
    printf("encode: %s\n", attn_context_error(context));
    for (int i = 0; i < 2; i++)
        attn_encoder_text_free(encoder, &texts[i]);
    attn_encoder_destroy(encoder);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
