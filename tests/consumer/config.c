/* SPDX-License-Identifier: MIT
 *
 * config.h: settings of a model by name, in the order in which they were set. */
#include <attn/config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

int main(void)
{
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    attn_config *config;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    CHECK(attn_config_set_text(config, "architecture", "vit") == ATTN_OK);
    CHECK(attn_config_set_int(config, "num_heads", 4) == ATTN_OK);
    CHECK(attn_config_set_real(config, "dropout", 0.1) == ATTN_OK);
    CHECK(attn_config_set_bool(config, "use_bias", true) == ATTN_OK);
    const int64_t size[] = {24, 32};
    const char *const classes[] = {"cat", "dog", "owl"};
    const double widths[] = {0.5, 1, 2};
    CHECK(attn_config_set(config, "img_size",
                          &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = size}) == ATTN_OK);
    CHECK(attn_config_set(config, "class_names",
                          &(attn_config_value){.type = ATTN_CONFIG_TYPE_TEXTS, .n = 3, .texts = classes}) == ATTN_OK);
    CHECK(attn_config_set(config, "widths",
                          &(attn_config_value){.type = ATTN_CONFIG_TYPE_REALS, .n = 3, .reals = widths}) == ATTN_OK);
    CHECK(attn_config_set_int(config, "num_heads", 8) == ATTN_OK); /* keeps its place */

    static const char *const order[] = {"architecture", "num_heads",   "dropout", "use_bias",
                                        "img_size",     "class_names", "widths"};
    CHECK(attn_config_size(config) == 7);
    for (int64_t i = 0; i < 7; i++)
        CHECK(strcmp(attn_config_key(config, i), order[i]) == 0);
    CHECK(attn_config_key(config, 7) == NULL);

    CHECK(attn_config_int(config, "num_heads", 0) == 8);
    CHECK(attn_config_real(config, "num_heads", 0) == 8); /* an integer is a real number, too */
    CHECK(attn_config_real(config, "dropout", 0) == 0.1);
    CHECK(attn_config_bool(config, "use_bias", false));
    CHECK(strcmp(attn_config_text(config, "architecture", ""), "vit") == 0);
    const attn_config_value *value = attn_config_get(config, "class_names");
    CHECK(value && value->type == ATTN_CONFIG_TYPE_TEXTS && value->n == 3 && strcmp(value->texts[2], "owl") == 0);
    CHECK(value->texts[2] != classes[2]); /* a copy */
    value = attn_config_get(config, "img_size");
    CHECK(value && value->type == ATTN_CONFIG_TYPE_INTS && value->n == 2 && value->integers[1] == 32);
    value = attn_config_get(config, "widths");
    CHECK(value && value->type == ATTN_CONFIG_TYPE_REALS && value->n == 3 && value->reals[0] == 0.5);

    /* A missing key and a key of another type give the fallback. */
    CHECK(attn_config_get(config, "num_blks") == NULL);
    CHECK(attn_config_int(config, "num_blks", 2) == 2);
    CHECK(attn_config_int(config, "dropout", -1) == -1);
    CHECK(attn_config_text(config, "num_heads", NULL) == NULL);
    printf("config: %d settings\n", (int)attn_config_size(config));
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
