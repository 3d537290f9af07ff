/* SPDX-License-Identifier: MIT
 *
 * array.h - arrays that are stored in a file. An array is a view of the file's bytes, with strides. The readers of the
 * formats only find arrays. The functions of this header then convert the arrays of all formats to tensors, or copy
 * them to the tensors of a model. */
#ifndef ATTN_IO_ARRAY_H
#define ATTN_IO_ARRAY_H

#include "io/input.h"

typedef enum attn__element {
    ATTN__F32,
    ATTN__F64,
    ATTN__F16,
    ATTN__BF16,
    ATTN__I8,
    ATTN__I16,
    ATTN__I32,
    ATTN__I64,
    ATTN__U8,
    ATTN__U16,
    ATTN__U32,
    ATTN__U64,
    ATTN__BOOL,
    ATTN__ELEMENTS
} attn__element;
size_t attn__element_size(attn__element element);

typedef struct attn__array {
    char *name; /* owned name */
    attn__element element;
    bool swapped; /* true: the elements are big endian */
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    int64_t stride[ATTN_MAX_RANK]; /* strides in elements */
    const uint8_t *data;
    const char *origin; /* the array's name in the file if a rule of a names file renamed the array; otherwise NULL */
    /* Scales of an int8 weight, or NULL (io/tensors/quantized.h). This array may be a part of the weight. The whole
     * weight begins at `whole` and has rows of `row` elements, and `data` points into it. scales[i] is the F32 scale of
     * its row i. */
    const uint8_t *scales, *whole;
    int64_t row;
    /* if the array has scales: number of bytes that its integers and scales have in the file; otherwise 0 */
    size_t stored;
} attn__array;

typedef struct attn__arrays {
    attn_context *context;
    const char *file;
    attn__array *items;
    int64_t n;
    /* size of the decompressed file in bytes; the total size of the tensors is limited to a multiple of it */
    size_t backing;
    /* Called after an array was copied. `data` and `size` are the bytes of the array, which are not needed after this.
     * May be NULL. */
    void (*copied)(const void *user, const uint8_t *data, size_t size);
    const void *user;
} attn__arrays;

/* The list owns `array->name` afterwards, even if the function fails. */
attn_status attn__arrays_add(attn__arrays *arrays, const attn__array *array);
void attn__arrays_clear(attn__arrays *arrays);
/* Returns a list of pointers to the arrays, sorted by name, for fast searches. The caller frees the list. */
const attn__array **attn__arrays_sorted(const attn__arrays *arrays);
/* compares two pointers to arrays by the arrays' names; for qsort */
int attn__array_by_name(const void *a, const void *b);
/* ATTN_ERROR_FORMAT: two arrays have the same name. */
attn_status attn__arrays_check_names(const attn__arrays *arrays);

static inline bool attn__array_is_real(const attn__array *array)
{
    return array->element <= ATTN__BF16 || array->scales;
}
/* returns the number of elements; it cannot overflow, because the readers have checked the shape */
int64_t attn__array_count(const attn__array *array);
/* Sets the strides to those of a row-major array, and returns the size of the array in bytes. Returns SIZE_MAX if the
 * size overflows or a length is negative. */
size_t attn__array_set_rows(attn__array *array);
attn_dtype attn__array_dtype(const attn__array *array, const attn_weights_options *options);
/* writes a shape in the form "[2,3]" */
void attn__array_shape_text(char text[128], int rank, const int64_t *shape);

/* Returns whether an array of this shape fits the tensor. It fits if the shapes are equal. A 1 x 1 convolution
 * [out,in,1,...] also fits the weight [out,in] of a linear layer. */
bool attn__array_fits(int rank, const int64_t *shape, const attn_tensor *tensor);

/* Finds the array in a .npy file. The array gets no name. */
attn_status attn__npy_find(attn__array *array, const attn__input *input);

bool attn__array_converts(const attn__array *array, attn_dtype dtype);
/* Writes the elements, row-major, converted to `dtype`. ATTN_ERROR_UNSUPPORTED: reals would have to be converted to
 * integers. ATTN_ERROR_FORMAT: an integer does not fit in `dtype`. The message names the file and the array. */
attn_status attn__array_copy(const attn__arrays *arrays, const attn__array *array, attn_dtype dtype, void *out);
attn_status attn__array_to_tensor(attn_tensor **tensor, const attn__arrays *arrays, const attn__array *array,
                                  attn_dtype dtype);

/* Checks how much memory the tensors would need. ATTN_ERROR_FORMAT: they would need more than the limit in the options,
 * or more than a multiple of the file's size. */
attn_status attn__arrays_check_total(const attn__arrays *arrays, const attn_weights_options *options);
/* Appends all arrays as new tensors to `list`. On failure the list is unchanged. */
attn_status attn__arrays_to_list(const attn__arrays *arrays, attn_named_list *list,
                                 const attn_weights_options *options);
/* Removes and frees the items of a list after the first n. */
void attn__named_shorten(attn_named_list *list, int64_t n);
/* Copies all arrays to the tensors of `parameters`, as attn_weights_load describes. */
attn_status attn__arrays_into(const attn__arrays *arrays, attn_named_list *parameters,
                              const attn_weights_options *options, attn_bytes *report);

#endif
