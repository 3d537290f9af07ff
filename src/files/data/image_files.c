/* SPDX-License-Identifier: MIT
 * Reads the files of MNIST (IDX) and of CIFAR-10 (binary records). */
#include "data/images.h"

#include "base/context.h"

/* ------------------------------------------------------------------------------------------------ IDX */

enum { TYPE_U8 = 8 };

static const char *type_name(int type)
{
    static const char *const names[] = {[9] = "signed bytes",
                                        [11] = "16-bit integers",
                                        [12] = "32-bit integers",
                                        [13] = "32-bit floats",
                                        [14] = "64-bit floats"};
    bool known = type >= 0 && type < (int)(sizeof names / sizeof *names) && names[type];
    return known ? names[type] : "unknown";
}

static int64_t big_endian(const unsigned char *p)
{
    return (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
}

static attn_status check_head(attn_context *context, const attn_named_bytes *file, const unsigned char *p)
{
    if (file->size < 4 || p[0] != 0 || p[1] != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: byte 0: expected an IDX file, which begins with two zero bytes", file->name);
    if (p[2] != TYPE_U8)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "%s: byte 2: elements of type %d (%s) are not supported; expected type %d (unsigned bytes)",
                          file->name, p[2], type_name(p[2]), (int)TYPE_U8);
    if (p[3] < 1 || p[3] > 4)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "%s: byte 3: the array has %d dimensions; 1 to 4 are supported", file->name, p[3]);
    if (file->size < 4 + 4 * (size_t)p[3])
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: byte %zu: the header is cut off", file->name, file->size);
    return ATTN_OK;
}

attn_status attn_idx_parse(attn_idx *idx, attn_context *context, const attn_named_bytes *file)
{
    ATTN__CALL(context);
    const unsigned char *p = file->data;
    *idx = (attn_idx){0};
    attn_status status = check_head(context, file, p);
    if (status != ATTN_OK)
        return status;
    size_t head = 4 + 4 * (size_t)p[3], n = 1;
    idx->rank = p[3];
    for (int i = 0; i < idx->rank; i++) {
        idx->dims[i] = big_endian(p + 4 + 4 * i);
        n = attn__size_mul(n, (size_t)idx->dims[i]);
    }
    if (n != file->size - head)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: byte %zu: the header gives %zu elements of one byte, but %zu bytes follow the header",
                          file->name, head, n, file->size - head);
    idx->elements = p + head;
    idx->n = (int64_t)n;
    return ATTN_OK;
}

static attn_status check_pair(attn_context *context, const attn_named_bytes *images, const attn_idx *i,
                              const attn_named_bytes *labels, const attn_idx *l)
{
    if (i->rank < 3)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: byte 3: the images have %d dimensions; expected 3 (number, rows, columns) or 4 (number, "
                          "rows, columns, channels)",
                          images->name, i->rank);
    if (l->rank != 1)
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: byte 3: the labels have %d dimensions; expected 1",
                          labels->name, l->rank);
    if (i->dims[0] != l->dims[0])
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s has %lld images, but %s has %lld labels", images->name,
                          (long long)i->dims[0], labels->name, (long long)l->dims[0]);
    return ATTN_OK;
}

static attn_status check_label(attn_context *context, const attn_named_bytes *file, size_t offset, int label,
                               int64_t classes)
{
    return classes <= 0 || label < classes
               ? ATTN_OK
               : attn__fail(context, ATTN_ERROR_FORMAT,
                            "%s: byte %zu: the label is %d; it must be less than %lld, the number of classes",
                            file->name, offset, label, (long long)classes);
}

attn_status attn_image_set_of_idx(attn_image_set **set, attn_context *context, const attn_named_bytes *images,
                                  const attn_named_bytes *labels, int64_t classes)
{
    ATTN__CALL(context);
    attn_idx i = {0}, l = {0};
    *set = NULL;
    attn_status status = attn_idx_parse(&i, context, images);
    if (status == ATTN_OK)
        status = attn_idx_parse(&l, context, labels);
    if (status == ATTN_OK)
        status = check_pair(context, images, &i, labels, &l);
    if (status != ATTN_OK)
        return status;
    attn_image_shape shape = {.height = i.dims[1], .width = i.dims[2], .channels = i.rank == 4 ? i.dims[3] : 1};
    status = attn_image_set_create(set, context, shape);
    size_t size = (size_t)(shape.height * shape.width * shape.channels);
    for (int64_t k = 0; status == ATTN_OK && k < i.dims[0]; k++) {
        uint8_t label = l.elements[k]; /* NOLINT: the parsed header guarantees that the element exists */
        status = check_label(context, labels, labels->size - (size_t)(l.n - k), label, classes);
        if (status == ATTN_OK)
            status = attn_image_set_add(*set, i.elements + (size_t)k * size, label, (uint64_t)k);
    }
    if (status != ATTN_OK) {
        attn_image_set_destroy(*set);
        *set = NULL;
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------- CIFAR */

enum { PLANE = 32 * 32, RECORD = 1 + 3 * PLANE, CIFAR_CLASSES = 10 };

attn_status attn_image_set_add_cifar(attn_image_set *set, attn_context *context, const attn_named_bytes *file,
                                     int64_t classes)
{
    ATTN__CALL(context);
    attn_image_shape shape = attn_image_set_shape(set);
    unsigned char pixels[3 * PLANE];
    if (shape.width != 32 || shape.height != 32 || shape.channels != 3)
        return attn__fail(
            context, ATTN_ERROR_ARGUMENT,
            "%s: a file of CIFAR has images of 32 x 32 pixels and 3 channels, but the images of the set have %lld x "
            "%lld pixels and %lld channels",
            file->name, (long long)shape.width, (long long)shape.height, (long long)shape.channels);
    if (file->size == 0 || file->size % RECORD != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: the file has %zu bytes; expected a positive multiple of %d, the size of a record",
                          file->name, file->size, (int)RECORD);
    attn_status status = ATTN_OK;
    for (size_t at = 0; status == ATTN_OK && at < file->size; at += RECORD) {
        const unsigned char *record = (const unsigned char *)file->data + at;
        for (int i = 0; i < PLANE; i++)
            for (int c = 0; c < 3; c++)
                pixels[3 * i + c] = record[1 + c * PLANE + i];
        status = check_label(context, file, at, record[0], classes > 0 ? classes : CIFAR_CLASSES);
        if (status == ATTN_OK)
            status = attn_image_set_add(set, pixels, record[0], (uint64_t)attn_image_set_size(set));
    }
    return status;
}
