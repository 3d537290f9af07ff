/* SPDX-License-Identifier: MIT
 *
 * io.h: weights, an array and settings, written and read. The argument is the folder of the files. */
#include <attn/io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    char path[4096];
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);

    /* Two tensors to model.safetensors, and back. */
    attn_named_list list = {.context = context, .owns = true}, read = {.context = context, .owns = true};
    attn_tensor *tensor;
    CHECK(attn_tensor_create(&tensor, context, ATTN_F32, 2, (int64_t[]){2, 3}) == ATTN_OK);
    for (int i = 0; i < 6; i++)
        ((float *)attn_tensor_data(tensor))[i] = (float)i / 4;
    CHECK(attn_named_add(&list, "weight", tensor) == ATTN_OK);
    CHECK(attn_tensor_create(&tensor, context, ATTN_F32, 1, (int64_t[]){3}) == ATTN_OK);
    CHECK(attn_named_add(&list, "bias", tensor) == ATTN_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK(attn_safetensors_write(&list, path, NULL) == ATTN_OK);
    CHECK(attn_weights_read(&read, path, NULL, NULL, NULL) == ATTN_OK);
    CHECK(read.n == 2 && strcmp(read.items[1].name, "bias") == 0);
    tensor = attn_named_find(&read, "weight");
    CHECK(tensor && attn_tensor_rank(tensor) == 2 && attn_tensor_length(tensor, 1) == 3);
    for (int i = 0; i < 6; i++)
        CHECK(((float *)attn_tensor_data(tensor))[i] == (float)i / 4);

    /* A file without "bias" fits only if parameters may be missing. */
    attn_named_list part = {.context = context};
    attn_bytes report = {0};
    CHECK(attn_named_add(&part, "weight", tensor) == ATTN_OK);
    CHECK(attn_safetensors_write(&part, path, NULL) == ATTN_OK);
    CHECK(attn_weights_load(&list, path, NULL, NULL, &report) == ATTN_ERROR_SHAPE);
    CHECK(strstr(report.data, "bias"));
    attn_bytes_free(context, &report);
    CHECK(attn_weights_load(&list, path, &(attn_weights_options){.allow_missing = true}, NULL, NULL) == ATTN_OK);

    /* An array of NumPy. */
    attn_tensor *array;
    snprintf(path, sizeof path, "%s/array.npy", folder);
    CHECK(attn_npy_write(tensor, context, path) == ATTN_OK);
    CHECK(attn_npy_read(&array, context, path) == ATTN_OK);
    CHECK(attn_tensor_dtype(array) == ATTN_F32 && attn_tensor_size(array) == 6);
    CHECK(memcmp(attn_tensor_data(array), attn_tensor_data(tensor), 6 * sizeof(float)) == 0);

    /* Settings in JSON. Messages have the name of the file, the line and the column. */
    const char json[] = "{\"layers\": 2, \"id2label\": {\"0\": \"cat\"}, \"size\": [24, 32]}";
    attn_config *config, *none;
    CHECK(attn_config_parse(&config, context, json, strlen(json), "test.json") == ATTN_OK);
    CHECK(attn_config_int(config, "layers", 0) == 2);
    CHECK(strcmp(attn_config_text(config, "id2label.0", ""), "cat") == 0);
    CHECK(attn_config_get(config, "size")->n == 2);
    CHECK(attn_config_parse(&none, context, "{\n\"layers\": }", 13, "bad.json") == ATTN_ERROR_FORMAT);
    CHECK(strstr(attn_context_error(context), "bad.json"));
    printf("io: %s\n", attn_context_error(context));
    snprintf(path, sizeof path, "%s/absent.json", folder);
    CHECK(attn_config_read(&none, context, path) == ATTN_ERROR_NOT_FOUND);

    attn_config_destroy(config);
    attn_tensor_destroy(array);
    attn_named_clear(&part);
    attn_named_clear(&read);
    attn_named_clear(&list);
    attn_context_destroy(context);
    return 0;
}
