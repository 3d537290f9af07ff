/* SPDX-License-Identifier: MIT
 *
 * Tests JSON configs. If a config was read, it is written and read again.
 */
#include "fuzz.h"
#include "io/json_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_config *config = NULL;
    if (attn_config_parse(&config, context, (const char *)data, size, "fuzz") == ATTN_OK) {
        attn_json json;
        attn_config *again = NULL;
        const char *text;
        attn_json_begin(&json, context, size & 1);
        attn_json_config(&json, NULL, config);
        if (attn_json_finish(&json, &text) != ATTN_OK ||
            attn_config_parse(&again, context, text, json.out.size, "again") != ATTN_OK ||
            attn_config_size(again) != attn_config_size(config))
            abort();
        attn_config_destroy(again);
        attn_json_free(&json);
    }
    attn_config_destroy(config);
    return fuzz_end(context);
}
