/* SPDX-License-Identifier: MIT
 *
 * classify.h: a classifier with random weights classifies a picture. The argument is the folder of the model.
 *
 * trainer.h trains a classifier; here models.h, which classify.h includes, makes one. */
#include <attn/classify.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { SIZE = 8, CLASSES = 5 };

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    static const struct {
        const char *key;
        int64_t value;
    } settings[] = {{"img_size", SIZE},      {"patch_size", 4}, {"num_hiddens", 16}, {"num_heads", 2},
                    {"mlp_num_hiddens", 32}, {"num_blks", 2},   {"in_channels", 1},  {"num_classes", CLASSES}};
    attn_config *config;
    attn_model *model;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        CHECK(attn_config_set_int(config, settings[i].key, settings[i].value) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "vit", config, NULL) == ATTN_OK);
    CHECK(attn_model_save(model, folder) == ATTN_OK);

    attn_classifier *classifier;
    CHECK(attn_classifier_load(&classifier, context, folder, NULL) == ATTN_OK);
    CHECK(strcmp(attn_classifier_class_name(classifier, CLASSES - 1), "4") == 0);
    CHECK(attn_classifier_class_name(classifier, CLASSES) == NULL);

    /* A picture of the model's size, which needs no fit, and the probabilities of all classes. */
    unsigned char pixels[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++)
        pixels[i] = (unsigned char)(5 * i % 256);
    attn_image image = {.width = SIZE, .height = SIZE, .channels = 1, .pixels = pixels};
    attn_prediction guesses[CLASSES];
    CHECK(attn_classifier_classify(classifier, &image, 1, CLASSES, guesses) == ATTN_OK);

    /* The same from the model itself: pixels from -1 to 1, and the softmax of the logits. */
    float planes[SIZE * SIZE];
    attn_image_planes(&image, (float[]){0.5f}, (float[]){0.5f}, planes);
    attn_tape *tape;
    CHECK(attn_tape_create(&tape, context) == ATTN_OK);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    CHECK(attn_named_add(&inputs, "x", attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){1, 1, SIZE, SIZE}, planes)) ==
          ATTN_OK);
    CHECK(attn_model_forward(model, tape, &inputs, &outputs) == ATTN_OK);
    const float *logits = attn_tensor_data(attn_named_find(&outputs, "logits"));
    double sum = 0, total = 0;
    for (int i = 0; i < CLASSES; i++)
        sum += exp(logits[i]);
    for (int i = 0; i < CLASSES; i++) {
        CHECK(fabs(guesses[i].probability - exp(logits[guesses[i].label]) / sum) < 1e-5);
        CHECK(i == 0 || guesses[i].probability <= guesses[i - 1].probability);
        total += guesses[i].probability;
    }
    CHECK(fabs(total - 1) < 1e-6);

    attn_bytes picture = {0};
    attn_prediction guess;
    CHECK(attn_classifier_render_attention(classifier, &image, NULL, ATTN_PLOT_HTML, &picture, &guess) == ATTN_OK);
    CHECK(strstr(picture.data, "<html") && guess.label == guesses[0].label);
    CHECK(attn_classifier_classify(classifier, &image, 1, CLASSES + 1, guesses) == ATTN_ERROR_ARGUMENT);
    printf("classify: class %d at %.3f; %s\n", (int)guess.label, guess.probability, attn_context_error(context));

    attn_bytes_free(context, &picture);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    attn_tape_destroy(tape);
    attn_classifier_destroy(classifier);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
