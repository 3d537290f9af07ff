/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/plain_settings.h"

#include "base/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Writes a value as a settings file has it. Returns false for null, and for lists, which no setting here is. */
static bool text_of(const attn_config_value *value, char *text, size_t size)
{
    switch (value->type) {
    case ATTN_CONFIG_TYPE_BOOL:
        return snprintf(text, size, "%s", value->boolean ? "true" : "false") > 0;
    case ATTN_CONFIG_TYPE_INT:
        return snprintf(text, size, "%" PRId64, value->integer) > 0;
    case ATTN_CONFIG_TYPE_REAL:
        return snprintf(text, size, "%g", value->real) > 0;
    case ATTN_CONFIG_TYPE_TEXT:
        return snprintf(text, size, "%.60s", value->text) > 0;
    default:
        return false;
    }
}

attn_status attn__plain_check(attn_context *context, const attn_config *config, const char *path, const char *prefix,
                              const attn__plain_setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char key[96], text[64] = "";
        snprintf(key, sizeof key, "%s%s", prefix, settings[i].key);
        const attn_config_value *value = attn_config_get(config, key);
        bool plain = !value || !text_of(value, text, sizeof text) || !text[0];
        for (int k = 0; settings[i].values[k] && !plain; k++) {
            size_t length = strlen(settings[i].values[k]);
            plain = strncmp(text, settings[i].values[k], length) == 0 && (!text[length] || text[length] == '.');
        }
        if (!plain)
            return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\" is \"%s\"; %s", path, key, text,
                              settings[i].what);
    }
    return ATTN_OK;
}

double attn__config_number_at(const attn_config *config, const char *key, int i, double fallback)
{
    char name[64];
    const attn_config_value *list = attn_config_get(config, key);
    if (list && list->type == ATTN_CONFIG_TYPE_INTS && list->n > 0)
        return (double)list->integers[i < list->n ? i : list->n - 1];
    snprintf(name, sizeof name, "%s.%d", key, i);
    if (!attn_config_get(config, name))
        /* if a list has only one element, it holds for all channels, as for grey pictures */
        snprintf(name, sizeof name, "%s.0", key);
    return attn_config_real(config, name, attn_config_real(config, key, fallback));
}

void attn__preparation_read(const attn_config *preparation, float mean[3], float std[3])
{
    bool centred = attn_config_bool(preparation, "do_normalize", true);
    /* the file's factor is for values from 0 to 255; mean and std of this library are for values from 0 to 1 */
    double scale = 255;
    if (attn_config_bool(preparation, "do_rescale", true))
        scale *= attn_config_real(preparation, "rescale_factor", 1.0 / 255);
    for (int i = 0; i < 3; i++) {
        double its = attn__config_number_at(preparation, "image_mean", i, (double)mean[i]);
        mean[i] = (float)(centred ? its / scale : 0);
        its = attn__config_number_at(preparation, "image_std", i, (double)std[i]);
        std[i] = (float)((centred ? its : 1) / scale);
    }
}

const char *attn__preparation_filter(const attn_config *preparation, const char *fallback)
{
    static const char *const numbered[] = {"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};
    int64_t number = attn_config_int(preparation, "resample", -1);
    return !attn_config_get(preparation, "resample") ? fallback
           : number >= 0 && number < 6               ? numbered[number]
                                                     : "an unknown";
}
