/* SPDX-License-Identifier: MIT */
#include "support/small_models.h"

#include "support/cmocka.h"
#include "apps/run/run.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- configs */

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

static int64_t small_value(const attn_setting *key)
{
    int64_t value = key->default_text ? strtoll(key->default_text, NULL, 10) : 0;
    bool dims = has(key->name, "dim_heads") || has(key->name, "d_head");
    if (!dims && (has(key->name, "heads") || has(key->name, "groups") || strcmp(key->name, "M") == 0))
        return 2;
    if (key->choices)
        return value;
    if (has(key->name, "kernel"))
        return 3;
    if (has(key->name, "patch"))
        return SMALL_WIDTH / 2;
    /* Images stay at 32 pixels, because some networks halve an image five times. */
    if (strcmp(key->name, "img_size") == 0 && value >= 224)
        return 32;
    if (has(key->name, "layers") || has(key->name, "depth") || has(key->name, "blks"))
        return 1;
    return value == 0 || (value > 16 && strncmp(key->name, "max", 3) != 0) ? SMALL_WIDTH : value;
}

attn_config *small_model_config(attn_context *context, const attn_architecture *a)
{
    static const int64_t lengths[] = {SMALL_WIDTH, SMALL_WIDTH};
    attn_config *config;
    assert_int_equal(attn_config_create(&config, context), ATTN_OK);
    for (int i = 0; i < a->nkeys; i++) {
        const attn_setting *key = &a->keys[i];
        bool open = key->default_text && !key->default_text[0];
        if (key->type == ATTN_CONFIG_TYPE_INTS && !key->default_text)
            assert_int_equal(
                attn_config_set(config, key->name,
                                &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = lengths}),
                ATTN_OK);
        bool number = key->type == ATTN_CONFIG_TYPE_INT || (key->type == ATTN_CONFIG_TYPE_INTS && key->min < key->max);
        if (number && (!open || strcmp(key->name, "vocab_size") == 0))
            assert_int_equal(attn_config_set_int(config, key->name, small_value(key)), ATTN_OK);
    }
    return config;
}

/* ----------------------------------------------------------------------------------------------- shapes */

static int64_t letter_value(small_filling *f, const char *name)
{
    const attn_config_value *key = attn_config_get(f->config, name);
    if (isdigit((unsigned char)*name)) { /* a number, or a multiple such as 2*dim */
        char *end;
        int64_t number = strtoll(name, &end, 10);
        return *end == '*' ? number * letter_value(f, end + 1) : number;
    }
    if (strcmp(name, "b") == 0 || strcmp(name, "batch") == 0)
        return f->batch;
    if (key && key->type == ATTN_CONFIG_TYPE_INT)
        return key->integer;
    if (strcmp(name, "embed_dim") == 0 || (f->channels && name[0] == 'd'))
        return SMALL_WIDTH;
    int i = 0;
    while (i < f->letters && strcmp(f->names[i], name) != 0)
        i++;
    if (i == f->letters && i < SMALL_LETTERS)
        snprintf(f->names[f->letters++], sizeof f->names[0], "%s", name);
    return i == 0 ? f->first : f->others;
}

int small_model_shape(small_filling *f, const char *text, int64_t shape[ATTN_MAX_RANK])
{
    int rank = 0;
    if (*text != '(') {
        const bool last = has(text, "num_dimensions");
        const int64_t axes[] = {f->batch, last ? f->first : SMALL_WIDTH, last ? f->others : f->first,
                                last ? SMALL_WIDTH : f->others};
        memcpy(shape, axes, sizeof axes);
        return 4;
    }
    for (const char *at = text + 1; at[-1] != ')' && rank < ATTN_MAX_RANK; at += strcspn(at, ",)") + 1) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ",)"), at);
        if (!has(name, "...")) {
            shape[rank++] = letter_value(f, name);
            continue;
        }
        for (int64_t i = 0, n = attn_config_int(f->config, "dimension", 3); i < n; i++)
            /* The third axis is short, because a model with three long axes would run for minutes. */
            shape[rank++] = i == 0 ? f->first : i == 1 ? f->others : f->batch;
    }
    return rank;
}
