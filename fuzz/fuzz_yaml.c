/* SPDX-License-Identifier: MIT
 *
 * Tests YAML settings, and the configs that they are converted to.
 */
#include "fuzz.h"
#include "io/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_config *config = NULL;
    json_t *root;
    attn__input input = {.context = context, .name = "fuzz", .data = data, .size = size};
    if (attn__yaml_parse(&root, &input, 8, 1000) == ATTN_OK) {
        if (!json_is_object(root))
            abort();
        if (attn_config_create(&config, context) == ATTN_OK)
            (void)attn__json_to_config(&input, root, config);
        attn_config_destroy(config);
        json_decref(root);
    }
    return fuzz_end(context);
}
