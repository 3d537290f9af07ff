/* SPDX-License-Identifier: MIT
 *
 * Tests low-rank adapters. Their tensors are read and applied to weights. The first byte selects the config.
 */
#include "fuzz.h"
#include "io/tensors/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const configs[] = {"{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":2}",
                                          "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":1e30,\"use_rslora\":true}"};
    static const char head[] = "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                               "\"a.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[24,28]},"
                               "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[28,36]}}";
    uint8_t base[8 + sizeof head - 1 + 36] = {(uint8_t)(sizeof head - 1)};
    if (size == 0)
        return 0;
    for (size_t i = 0; i < sizeof head - 1; i++)
        base[8 + i] = (uint8_t)head[i];
    attn_context *context = fuzz_context();
    attn__findings findings = {.arrays = {.context = context, .file = "base", .backing = sizeof base}};
    attn__input whole = {.context = context, .name = "base", .data = base, .size = sizeof base};
    char path[] = "adapter";
    attn__adapter adapter = {context, NULL, path, {context, path, data + 1, size - 1}};
    const char *config = configs[data[0] % 2];
    attn_named_list list = {.context = context, .owns = true};
    size_t length = 0;
    while (config[length])
        length++;
    if (attn_config_parse(&adapter.config, context, config, length, "config") != ATTN_OK ||
        attn__safetensors_find(&findings, &whole) != ATTN_OK)
        __builtin_trap();
    if (attn__adapter_merge(&adapter, &findings) == ATTN_OK)
        (void)attn__arrays_to_list(&findings.arrays, &list, NULL);
    attn_named_clear(&list);
    attn__findings_clear(&findings);
    attn_config_destroy(adapter.config);
    return fuzz_end(context);
}
