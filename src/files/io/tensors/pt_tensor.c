/* SPDX-License-Identifier: MIT
 *
 * Interprets the calls in a PyTorch pickle. A call is recognized by the name of its function. */
#include "io/tensors/pt_tensor.h"

#include <inttypes.h>
#include <string.h>

static attn_status fail(const attn__pt *pt, const char *name, const char *what)
{
    return attn__fail(pt->input->context, ATTN_ERROR_FORMAT, "%s: tensor \"%.100s\": %s", pt->input->name, name, what);
}

/* ------------------------------------------------------------------------------------------- resolving */

typedef enum meaning {
    UNKNOWN,
    DICT,  /* the result is an empty dict; the pickle adds its items later */
    STATE, /* the result is an object; its attributes are read as a dict */
    TENSOR,
    FIRST, /* the result is the first argument */
    /* the first argument is a function, and the third holds its arguments; the result is a tensor with attributes */
    TYPED
} meaning;

static meaning meaning_of(const attn__pickle_node *function)
{
    static const struct {
        const char *module, *name;
        meaning meaning;
    } known[] = {
        {"collections", "OrderedDict", DICT},
        {"collections", "defaultdict", DICT},
        {"argparse", "Namespace", STATE},
        {"types", "SimpleNamespace", STATE},
        {"torch._utils", "_rebuild_tensor", TENSOR},
        {"torch._utils", "_rebuild_tensor_v2", TENSOR},
        {"torch._utils", "_rebuild_tensor_v3", TENSOR},
        {"torch._utils", "_rebuild_parameter", FIRST},
        {"torch._utils", "_rebuild_parameter_with_state", FIRST},
        {"torch", "Size", FIRST},
        {"torch._tensor", "_rebuild_from_type_v2", TYPED},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (attn__node_is_global(function, known[i].module, known[i].name))
            return known[i].meaning;
    return UNKNOWN;
}

const attn__pickle_node *attn__pt_resolve(const attn__pt *pt, const attn__pickle_node *node, bool *tensor)
{
    enum { MOST = 8 }; /* maximum depth of nested calls; no known program nests more */
    *tensor = false;
    for (int i = 0; i < MOST && node; i++) {
        if (node->type == ATTN__NODE_PERSISTENT || node->type == ATTN__NODE_GLOBAL)
            return NULL;
        if (node->type != ATTN__NODE_CALL)
            return node;
        const attn__pickle_node *function = &pt->pickle->nodes[node->function];
        const attn__pickle_node *arguments = &pt->pickle->nodes[node->arguments];
        if (meaning_of(function) == TYPED && arguments->count > 2) {
            function = attn__pickle_item(pt->pickle, arguments, 0);
            arguments = attn__pickle_item(pt->pickle, arguments, 2);
        }
        switch (meaning_of(function)) {
        case DICT:
            return node;
        case STATE:
            return &pt->pickle->nodes[node->state];
        case TENSOR:
            *tensor = true;
            return arguments;
        case FIRST:
            node = attn__pickle_item(pt->pickle, arguments, 0);
            break;
        case TYPED:
        case UNKNOWN:
            return NULL;
        }
    }
    return NULL;
}

/* --------------------------------------------------------------------------------------------- storages */

static bool storage_element(const attn__pickle_node *class, attn__element *element)
{
    static const struct {
        const char *name;
        attn__element element;
    } classes[] = {
        {"FloatStorage", ATTN__F32},     {"DoubleStorage", ATTN__F64}, {"HalfStorage", ATTN__F16},
        {"BFloat16Storage", ATTN__BF16}, {"LongStorage", ATTN__I64},   {"IntStorage", ATTN__I32},
        {"ShortStorage", ATTN__I16},     {"CharStorage", ATTN__I8},    {"ByteStorage", ATTN__U8},
        {"BoolStorage", ATTN__BOOL},
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (attn__node_is_global(class, "torch", classes[i].name)) {
            *element = classes[i].element;
            return true;
        }
    }
    return false;
}

/* Finds the element type among the arguments of the call. An untyped storage needs this, because its persistent id has
 * no element type. */
static bool dtype_element(const attn__pickle_node *dtype, attn__element *element)
{
    static const struct {
        const char *name;
        attn__element element;
    } dtypes[] = {
        {"float32", ATTN__F32}, {"float64", ATTN__F64}, {"float16", ATTN__F16}, {"bfloat16", ATTN__BF16},
        {"int64", ATTN__I64},   {"int32", ATTN__I32},   {"int16", ATTN__I16},   {"int8", ATTN__I8},
        {"uint8", ATTN__U8},    {"uint16", ATTN__U16},  {"uint32", ATTN__U32},  {"uint64", ATTN__U64},
        {"bool", ATTN__BOOL},
    };
    for (size_t i = 0; dtype && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (attn__node_is_global(dtype, "torch", dtypes[i].name)) {
            *element = dtypes[i].element;
            return true;
        }
    }
    return false;
}

size_t attn__pt_storage_unit(const attn__pickle_node *class)
{
    static const struct {
        const char *name;
        size_t size;
    } others[] = {
        {"ComplexFloatStorage", 8}, {"ComplexDoubleStorage", 16}, {"QInt8Storage", 1},
        {"QUInt8Storage", 1},       {"QInt32Storage", 4},         {"UntypedStorage", 1},
    };
    attn__element element;
    if (storage_element(class, &element))
        return attn__element_size(element);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (attn__node_is_global(class, "torch", others[i].name))
            return others[i].size;
    return attn__node_is_global(class, "torch.storage", "UntypedStorage") ? 1 : 0;
}

/* Restricts `bytes` to the view in a persistent id: (key of the view, offset in the storage, number of elements). */
static attn_status take_view(const attn__pt *pt, const attn__pickle_node *view, const char *name, size_t unit,
                             attn__storage_bytes *bytes)
{
    const attn__pickle_node *offset = attn__pickle_item(pt->pickle, view, 1),
                            *size = attn__pickle_item(pt->pickle, view, 2);
    if (view->type != ATTN__NODE_TUPLE || !size || offset->type != ATTN__NODE_INT || size->type != ATTN__NODE_INT ||
        offset->integer < 0 || size->integer < 0)
        return fail(pt, name, "its view of a storage is not in the form that PyTorch writes");
    uint64_t held = bytes->size / unit, begin = (uint64_t)offset->integer;
    if (begin > held || (uint64_t)size->integer > held - begin)
        return fail(pt, name, "its view reaches past the end of its storage");
    bytes->data += begin * unit;
    bytes->size = (size_t)size->integer * unit;
    return ATTN_OK;
}

/* `node` is the persistent id ('storage', class, key, device, elements[, view]). */
static attn_status find_storage(const attn__pt *pt, const attn__pickle_node *node, const attn__pickle_node *dtype,
                                const char *name, attn__array *array, attn__storage_bytes *bytes)
{
    const attn__pickle *p = pt->pickle;
    if (!node || node->type != ATTN__NODE_PERSISTENT || p->nodes[node->arguments].type != ATTN__NODE_TUPLE)
        return fail(pt, name, "has no storage");
    const attn__pickle_node *id = &p->nodes[node->arguments];
    const attn__pickle_node *kind = attn__pickle_item(p, id, 0), *class = attn__pickle_item(p, id, 1);
    const attn__pickle_node *key = attn__pickle_item(p, id, 2), *numel = attn__pickle_item(p, id, 4);
    const attn__pickle_node *view = attn__pickle_item(p, id, 5);
    if (!numel || !attn__node_is_text(kind, "storage") || key->type != ATTN__NODE_TEXT ||
        numel->type != ATTN__NODE_INT || numel->integer < 0)
        return fail(pt, name, "its storage is not in the form that PyTorch writes");
    size_t unit = 1; /* bytes per element that `numel` counts; 1 for an untyped storage */
    if (storage_element(class, &array->element))
        unit = attn__element_size(array->element);
    else if (!dtype_element(dtype, &array->element)) {
        const attn__pickle_node *type = dtype && dtype->type == ATTN__NODE_GLOBAL ? dtype : class;
        return attn__fail(pt->input->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: tensor \"%.100s\": elements of type \"%.*s\" are not supported; "
                          "supported: bool, integers, and reals of 16, 32 or 64 bits",
                          pt->input->name, name, type->name_size < 64 ? (int)type->name_size : 64,
                          type->name ? type->name : "");
    }
    attn_status status = pt->find(pt->user, key->text, key->size, (uint64_t)numel->integer, unit, bytes);
    if (status != ATTN_OK || !view || view->type == ATTN__NODE_NONE)
        return status;
    return take_view(pt, view, name, unit, bytes);
}

/* ---------------------------------------------------------------------------------------------- tensors */

/* `what` names the lengths in messages. */
static attn_status read_lengths(const attn__pt *pt, const attn__pickle_node *tuple, const char *name, const char *what,
                                int64_t *lengths, int *rank)
{
    bool tensor;
    tuple = tuple ? attn__pt_resolve(pt, tuple, &tensor) : NULL;
    if (!tuple || (tuple->type != ATTN__NODE_TUPLE && tuple->type != ATTN__NODE_LIST))
        return attn__fail(pt->input->context, ATTN_ERROR_FORMAT, "%s: tensor \"%.100s\": the %s must be a tuple",
                          pt->input->name, name, what);
    if (tuple->count > ATTN_MAX_RANK)
        return attn__fail(pt->input->context, ATTN_ERROR_UNSUPPORTED, "%s: tensor \"%.100s\" has more than %d axes",
                          pt->input->name, name, ATTN_MAX_RANK);
    *rank = (int)tuple->count;
    for (uint32_t i = 0; i < tuple->count; i++) {
        const attn__pickle_node *length = attn__pickle_item(pt->pickle, tuple, i);
        if (length->type != ATTN__NODE_INT || length->integer < 0)
            return attn__fail(pt->input->context, ATTN_ERROR_FORMAT,
                              "%s: tensor \"%.100s\": the %s must hold integers of at least 0", pt->input->name, name,
                              what);
        lengths[i] = length->integer;
    }
    return ATTN_OK;
}

/* Checks that all elements of an array are inside its storage. The array may still be huge, because strides of 0 repeat
 * elements. The size is only checked for overflow here, and limited by the file's size later. */
static attn_status check_reach(const attn__pt *pt, const attn__array *array, int64_t offset, size_t size,
                               const char *name)
{
    size_t reach = (size_t)offset, count = 1, element = attn__element_size(array->element);
    bool empty = false;
    for (int i = 0; i < array->rank; i++) {
        /* axes of length 0 count as length 1, so that the strides of empty arrays cannot overflow */
        count = attn__size_mul(count, array->shape[i] ? (size_t)array->shape[i] : 1);
        empty |= array->shape[i] == 0;
        if (array->shape[i] > 0)
            reach = attn__size_add(reach, attn__size_mul((size_t)array->shape[i] - 1, (size_t)array->stride[i]));
    }
    if (count > INT64_MAX / 16)
        return fail(pt, name, "its size overflows");
    if (!empty && reach >= size / element)
        return attn__fail(pt->input->context, ATTN_ERROR_FORMAT,
                          "%s: tensor \"%.100s\": offset, shape and strides reach element %zu, counted from 0, but the "
                          "storage has %zu elements",
                          pt->input->name, name, reach, size / element);
    return ATTN_OK;
}

/* Returns whether the tensor's elements are the storage's elements with the opposite sign, as for x.conj().imag. The
 * call's last argument, the metadata, contains this. */
static bool is_negated(const attn__pickle *p, const attn__pickle_node *arguments)
{
    const attn__pickle_node *metadata = attn__pickle_item(p, arguments, arguments->count - 1);
    bool negated = false;
    for (uint32_t i = 0; metadata && metadata->type == ATTN__NODE_DICT && i < metadata->count; i++)
        negated |= attn__node_is_text(attn__pickle_item(p, metadata, i), "neg");
    return negated;
}

attn_status attn__pt_tensor(const attn__pt *pt, const attn__pickle_node *arguments, const char *name,
                            attn__array *array)
{
    const attn__pickle *p = pt->pickle;
    const attn__pickle_node *storage = attn__pickle_item(p, arguments, 0), *offset = attn__pickle_item(p, arguments, 1);
    attn__storage_bytes bytes = {0};
    int rank = 0, strides = 0;
    attn_status status = ATTN_OK;
    if (arguments->type != ATTN__NODE_TUPLE || !offset || offset->type != ATTN__NODE_INT || offset->integer < 0)
        return fail(pt, name, "the call that rebuilds the tensor is not in the form that PyTorch writes");
    if (is_negated(p, arguments))
        return attn__fail(pt->input->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: tensor \"%.100s\" is saved negated lazily (call resolve_neg() before saving)",
                          pt->input->name, name);
    const attn__pickle_node *dtype = attn__pickle_item(p, arguments, 6);
    status = find_storage(pt, storage, dtype, name, array, &bytes);
    if (status == ATTN_OK)
        status = read_lengths(pt, attn__pickle_item(p, arguments, 2), name, "shape", array->shape, &rank);
    if (status == ATTN_OK)
        status = read_lengths(pt, attn__pickle_item(p, arguments, 3), name, "strides", array->stride, &strides);
    if (status != ATTN_OK)
        return status;
    if (rank != strides)
        return attn__fail(pt->input->context, ATTN_ERROR_FORMAT, "%s: tensor \"%.100s\" has %d axes, but %d strides",
                          pt->input->name, name, rank, strides);
    array->rank = rank;
    array->swapped = pt->swapped;
    status = check_reach(pt, array, offset->integer, bytes.size, name);
    if (status == ATTN_OK && bytes.data && attn__array_count(array) > 0)
        array->data = bytes.data + (size_t)offset->integer * attn__element_size(array->element);
    return status;
}
