/* SPDX-License-Identifier: MIT
 *
 * Tests names files by applying them to a checkpoint of a few tensors.
 */
#include "fuzz.h"
#include "io/names/names.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char head[] = "{\"a.0.w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                               "\"a.1.w\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[16,20]},"
                               "\"b\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[20,24]}}";
    uint8_t file[8 + sizeof head - 1 + 24] = {sizeof head - 1};
    memcpy(file + 8, head, sizeof head - 1);
    attn_context *context = fuzz_context();
    attn_named_list list = {.context = context, .owns = true};
    attn_name_map *names = NULL;
    if (attn_name_map_parse(&names, context, (const char *)data, size, "fuzz") == ATTN_OK) {
        attn_weights_options options = {.names = names};
        (void)attn_weights_parse(&list, file, sizeof file, "f", &options, NULL, NULL);
    }
    attn_named_clear(&list);
    attn_name_map_destroy(names);
    return fuzz_end(context);
}
