/* SPDX-License-Identifier: MIT
 *
 * Tests the index of weights in several files. The directory has two parts with one tensor each.
 */
#include "fuzz.h"

#include <stdio.h>
#include <unistd.h>

static char folder[] = "/tmp/attn-fuzz-XXXXXX";

static void write_file(const char *name, const void *data, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void write_parts(void)
{
    static const char head[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  ";
    char part[8 + sizeof head] = {(char)(sizeof head - 1)};
    if (!mkdtemp(folder))
        abort();
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof head; k++)
            part[8 + k] = head[k];
        part[8 + 2] = (char)('a' + i);
        write_file(i ? "b.safetensors" : "a.safetensors", part, sizeof part);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool written;
    char path[64];
    /* The parts are written once, into a folder that all inputs share. */
    if (!written)
        write_parts();
    written = true;
    write_file("model.safetensors.index.json", data, size);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    attn_context *context = fuzz_context();
    attn_named_list list = {.context = context, .owns = true};
    attn_bytes report = {0};
    (void)attn_weights_read(&list, path, NULL, NULL, &report);
    attn_bytes_free(context, &report);
    attn_named_clear(&list);
    return fuzz_end(context);
}
