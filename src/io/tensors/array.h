/* SPDX-License-Identifier: MIT
 *
 * array.h - an array stored in a file: a view with strides, not yet a tensor.
 *
 * Readers of weights only find the arrays. The functions here convert arrays of all formats to tensors, or fill the
 * tensors of a model, directly from the file's bytes. */
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
    bool swapped; /* bytes are big endian */
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    int64_t stride[ATTN_MAX_RANK]; /* strides in elements */
    const uint8_t *data;
    const char *origin; /* name in the file if a rule renamed the array, else NULL */
    /* Scales of int8 weights (io/tensors/quantized.h). `data` points into rows of `row` elements that begin at `whole`,
     * and row i is multiplied by the F32 scale i. NULL: the array has no scales. */
    const uint8_t *scales, *whole;
    int64_t row;
    size_t stored; /* bytes in the file of an array with scales, including the scales; else 0 */
} attn__array;

typedef struct attn__arrays {
    attn_context *context;
    const char *file; /* name of the file, for messages */
    attn__array *items;
    int64_t n;
    size_t backing; /* bytes of the file after decompression, which limit the size of its tensors */
    /* Called after an array has been copied, with its bytes, which may then be removed from memory. May be NULL. */
    void (*copied)(const void *user, const uint8_t *data, size_t size);
    const void *user;
} attn__arrays;

/* Adds an array. Takes ownership of `array->name`, also on failure. */
attn_status attn__arrays_add(attn__arrays *arrays, const attn__array *array);
void attn__arrays_clear(attn__arrays *arrays);
/* Returns pointers to the arrays sorted by name, so that models with many parameters are matched quickly. The caller
 * frees the pointers. */
const attn__array **attn__arrays_sorted(const attn__arrays *arrays);
int attn__array_by_name(const void *a, const void *b); /* compares two such pointers */
/* Checks that names are unique. ATTN_ERROR_FORMAT: two arrays have the same name, of which readers by name would get
 * only one. */
attn_status attn__arrays_check_names(const attn__arrays *arrays);

/* Returns whether the array holds real numbers. */
static inline bool attn__array_is_real(const attn__array *array)
{
    return array->element <= ATTN__BF16 || array->scales;
}
int64_t attn__array_count(const attn__array *array); /* number of elements, which was checked for overflow before */
/* Sets row-major strides. Returns the bytes of the array, or SIZE_MAX on overflow or a negative length. */
size_t attn__array_set_rows(attn__array *array);
/* Returns the type of the tensor that an array becomes. */
attn_dtype attn__array_dtype(const attn__array *array, const attn_weights_options *options);
/* writes a shape in the form "[2,3]" */
void attn__array_shape_text(char text[128], int rank, const int64_t *shape);

/* Returns whether an array of this shape fits the tensor. It fits if the shapes are equal, or if [out,in,1,...] of a 1
 * x 1 convolution is read for [out,in] of a linear layer. */
bool attn__array_fits(int rank, const int64_t *shape, const attn_tensor *tensor);

/* Finds the array of a .npy file. The array has no name. */
attn_status attn__npy_find(attn__array *array, const attn__input *input);

bool attn__array_converts(const attn__array *array, attn_dtype dtype);
/* Writes the elements, row-major, converted to `dtype`. ATTN_ERROR_UNSUPPORTED: reals to integers. ATTN_ERROR_FORMAT:
 * an integer that does not fit. The error names file and array. */
attn_status attn__array_copy(const attn__arrays *arrays, const attn__array *array, attn_dtype dtype, void *out);
/* Makes a new tensor from one array. */
attn_status attn__array_to_tensor(attn_tensor **tensor, const attn__arrays *arrays, const attn__array *array,
                                  attn_dtype dtype);

/* Checks the memory of the tensors. ATTN_ERROR_FORMAT: they would take more than the limit by the file's size or the
 * options' limit. */
attn_status attn__arrays_check_total(const attn__arrays *arrays, const attn_weights_options *options);
/* Appends all arrays as new tensors to `list`. On failure the list is unchanged. */
attn_status attn__arrays_to_list(const attn__arrays *arrays, attn_named_list *list,
                                 const attn_weights_options *options);
/* Copies all arrays to the tensors of `parameters`; see attn_weights_load. */
attn_status attn__arrays_into(const attn__arrays *arrays, attn_named_list *parameters,
                              const attn_weights_options *options, attn_bytes *report);

#endif
