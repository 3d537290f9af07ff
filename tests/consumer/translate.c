/* SPDX-License-Identifier: MIT
 *
 * translate.h: a translator repeats what it has learned. The argument is the folder of the model.
 *
 * trainer.h, which translate.h does not include, makes the model. */
#include <attn/trainer.h>
#include <attn/translate.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { LINES = 8 };

int main(int argc, char **argv)
{
    char directory[4096];
    snprintf(directory, sizeof directory, "%s/translator", argc > 1 ? argv[1] : ".");
    static const char *const source[LINES] = {"the cat sleeps", "the dog sleeps", "the cat eats", "the dog eats",
                                              "a cat sleeps",   "a dog sleeps",   "a cat eats",   "a dog eats"};
    static const char *const target[LINES] = {"le chat dort", "le chien dort", "le chat mange", "le chien mange",
                                              "un chat dort", "un chien dort", "un chat mange", "un chien mange"};
    char text[1024] = "";
    for (int i = 0; i < LINES; i++)
        snprintf(text + strlen(text), 64, "%s\t%s\n", source[i], target[i]);
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    attn_config *settings;
    CHECK(attn_config_create(&settings, context) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "num_hiddens", 32) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "ffn_num_hiddens", 32) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "num_blks", 1) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "epochs", 40) == ATTN_OK);
    CHECK(attn_config_set_real(settings, "rate", 0.01) == ATTN_OK);
    CHECK(attn_config_set_real(settings, "valid", 0) == ATTN_OK);
    CHECK(attn_config_set_real(settings, "test", 0) == ATTN_OK);
    attn_trainer_job job = {.kind = "translate", .text = text, .text_size = strlen(text), .directory = directory};
    job.settings = settings;
    CHECK(attn_train(context, &job) == ATTN_OK);

    attn_translator *translator;
    CHECK(attn_translator_load(&translator, context, directory, NULL) == ATTN_OK);
    attn_translation results[LINES];
    CHECK(attn_translator_translate(translator, source, LINES, NULL, results) == ATTN_OK);
    for (int i = 0; i < LINES; i++) {
        CHECK(strcmp(results[i].text, target[i]) == 0);
        CHECK(results[i].score < 0 && results[i].words == 3 && results[i].unknown == 0 && !results[i].doubtful);
    }
    printf("translate: %s: %s; ", source[1], results[1].text);
    attn_translations_free(context, results, LINES);

    /* A beam gives several translations, the best one first; an unknown word is told. */
    const char *line = "the bird sleeps";
    attn_translator_options options = {.beam = 3, .nbest = 2, .alignments = true};
    CHECK(attn_translator_translate(translator, &line, 1, &options, results) == ATTN_OK);
    CHECK(results[0].score >= results[1].score && results[0].doubtful);
    CHECK(results[0].unknown == 1 && strcmp(results[0].unknown_words, "bird") == 0);
    CHECK(strchr(results[0].alignment, '-'));
    attn_translations_free(context, results, 2);

    /* One kind of attention as a page with the words. */
    attn_bytes page = {0}, words = {0};
    attn_translator_view view = {.kinds = ATTN_SHOW_CROSS};
    CHECK(attn_translator_render_attention(translator, source[0], &view, ATTN_PLOT_HTML, &page, &words) == ATTN_OK);
    CHECK(strstr(page.data, "sleeps") && strcmp(words.data, target[0]) == 0);
    static const char *const wrong[] = {"the cat sleeps", "the \xff sleeps"};
    CHECK(attn_translator_translate(translator, wrong, 2, NULL, results) == ATTN_ERROR_FORMAT);
    CHECK(strstr(attn_context_error(context), "line 2"));
    printf("%s\n", attn_context_error(context));
    attn_bytes_free(context, &page);
    attn_bytes_free(context, &words);
    attn_translator_destroy(translator);
    attn_config_destroy(settings);
    attn_context_destroy(context);
    return 0;
}
