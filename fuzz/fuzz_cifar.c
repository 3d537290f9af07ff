/* SPDX-License-Identifier: MIT
 *
 * Tests CIFAR's records. A record is longer than the fuzzer's inputs. So the input is repeated until it fills whole
 * records and some more bytes.
 */
#include "fuzz.h"

#include "data/images.h"

enum { RECORD = 3073, MOST = 3 * RECORD };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t records[MOST + 2];
    if (size < 2)
        return 0;
    attn_context *context = fuzz_context();
    size_t length = (size_t)(data[0] % 4) * RECORD + data[1] % 3;
    for (size_t i = 0; i < length; i += RECORD) /* The loop makes the labels valid. Pixels may have any value. */
        records[i] = data[i / RECORD % (size - 1) + 1];
    attn_named_bytes file = {records, length, "fuzz"};
    attn_image_set *set = NULL;
    if (attn_image_set_create(&set, context, (attn_image_shape){32, 32, 3, 1}) == ATTN_OK &&
        attn_image_set_add_cifar(set, context, &file, 10) == ATTN_OK &&
        attn_image_set_size(set) != (int64_t)(length / RECORD))
        abort();
    attn_image_set_destroy(set);
    return fuzz_end(context);
}
