/* SPDX-License-Identifier: MIT
 *
 * Tests the files that a resumed training reads. These are the settings, which must be within the limits of the table
 * of settings, and the counters of a checkpoint.
 */
#include "fuzz.h"

#include "apps/run/run.h"
#include "apps/translator/settings.h"
#include "train/loop.h"

/* Checks that the settings are within the table's limits, whatever the file contains. */
static void check_limits(const attn_config *settings)
{
    for (int i = 0; i < attn__translator_keys.n; i++) {
        const attn_setting *key = &attn__translator_keys.keys[i];
        double value = attn_config_real(settings, key->name, key->min);
        bool number = key->type == ATTN_CONFIG_TYPE_INT || key->type == ATTN_CONFIG_TYPE_REAL;
        if (number && !(value >= key->min && value <= key->max))
            abort();
    }
    attn_training_options options = attn__run_options(settings, 3);
    attn_pairs_split_options split = attn__setting_split(settings);
    if (!(options.schedule.peak > 0) || options.epochs < 0 || !(split.valid <= 0.9))
        abort();
}

static void restore(attn_context *context, const attn_config *counters)
{
    attn_training *training = NULL;
    attn_named_list none = {.context = context};
    attn_training_options options = {.epochs = 1, .schedule = {.peak = 0.1}};
    if (attn_training_create(&training, context, &none, &options) != ATTN_OK)
        return;
    if (attn_training_restore(training, counters) == ATTN_OK && attn_training_epoch(training) < 0)
        abort();
    attn_training_destroy(training);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_config *file = NULL, *settings = NULL;
    attn__keys_options of_file = {.name = "fuzz", .refusal = ATTN_ERROR_FORMAT, .select = true};
    if (attn_config_parse(&file, context, (const char *)data, size, "fuzz") == ATTN_OK) {
        if (attn__keys_resolve(&settings, context, &attn__translator_keys, file, &of_file) == ATTN_OK)
            check_limits(settings);
        restore(context, file);
    }
    attn_config_destroy(settings);
    attn_config_destroy(file);
    return fuzz_end(context);
}
