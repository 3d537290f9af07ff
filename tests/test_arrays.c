/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests what the readers of all formats of arrays have in common (.npy, .npz, PyTorch's .pt, safetensors): good files are
 * read, wrong files are refused with a message, damaged files are read or refused, written files are read back, and each
 * allocation may fail. What only one format has is in test_pt.c and test_safetensors.c.
 */
#include "support/fixture.h"
#include "support/array_files.h"
#include "support/faults.h"
#include "support/guard.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "attn/io.h"
#include "io/tensors/formats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LENGTH(table) (sizeof(table) / sizeof *(table))

/* ------------------------------------------------------------------------------------------------ formats */

typedef attn_status reader(attn_named_list *list, const void *data, size_t size, const char *file,
                           const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads a .npy file as a list of one tensor, which is named as in attn_weights_parse. */
static attn_status parse_npy(attn_named_list *list, const void *data, size_t size, const char *file,
                             const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    attn_tensor *t;
    attn_status status = attn_npy_parse(&t, list->context, data, size, file);
    assert_true((status == ATTN_OK) == (t != NULL));
    *report = (attn_bytes){0};
    return status == ATTN_OK ? attn_named_add(list, "array", t) : status;
}

/* NPY_WEIGHTS is a .npy file that is given as weights. */
typedef enum format { NPY, NPY_WEIGHTS, NPZ, PT, SAFETENSORS, FORMATS } format;
static reader *const readers[FORMATS] = {parse_npy, attn_weights_parse, attn_npz_parse, attn_pt_parse,
                                         attn_safetensors_parse};

/* A file of a format. `text` is the dict of a .npy file, the header of a safetensors file or the pickle of an object, and
 * `data` the bytes of the elements, or the keys of the storages and the storages. For a .npz file and for a .pt file whose
 * name is given, `text` is the path; if `data` is then not NULL, data[0] is a place in the first entry of the archive's
 * directory, and data[1] the byte to store there. */
typedef struct file {
    format format;
    const char *text;
    size_t text_size;
    const void *data;
    size_t data_size;
} file;

static array_file read_bytes(const char *path, const uint8_t *patch)
{
    array_file f;
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    f.size = fread(f.bytes, 1, sizeof f.bytes, stream);
    assert_true(f.size < sizeof f.bytes);
    fclose(stream);
    size_t entry = 0;
    while (patch && memcmp(f.bytes + entry, "PK\1\2", 4) != 0)
        entry++;
    if (patch)
        f.bytes[entry + patch[0]] = patch[1];
    return f;
}

static array_file make(const file *of, int version)
{
    if (of->format == NPY || of->format == NPY_WEIGHTS)
        return array_file_npy(version, of->text, of->data, of->data_size);
    if (of->format == SAFETENSORS)
        return array_file_safetensors(of->text, of->data, of->data_size);
    return of->format == PT && of->text[0] == '\x80' ? array_file_pt(of->text, of->text_size, of->data, of->data_size)
                                                     : read_bytes(of->text, of->data);
}

#define DICT(type, order, shape) "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape ", }   \n"
#define TENSOR(name, dtype, shape, offsets)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{" TENSOR("a", dtype, shape, offsets) "}"
/* A tensor of the storage "0". The numbers are opcodes: of the storage's elements, and of lengths and strides, which end
 * with a parenthesis or "t". */
#define CALLED "ctorch._utils\n_rebuild_tensor_v2\n("
#define STORED(kind, numel)                                                                                            \
    "(X\x07\x00\x00\x00storagectorch\n" kind "Storage\nX\x01\x00\x00\x00"                                              \
    "0X\x03\x00\x00\x00"                                                                                               \
    "cpu" numel "tQK\x00"
#define PICKLED(kind, numel, shape, strides, metadata)                                                                 \
    "\x80\x02" CALLED STORED(kind, numel)                                                                              \
    shape strides "\x89N" metadata "tR."
/* The storage "0", of up to 255 elements. */
#define STORAGE(numel, elements)                                                                                       \
    "\x80\x02]X\x01\x00\x00\x00"                                                                                       \
    "0a." numel "\0\0\0\0\0\0\0" elements

/* What a `file` holds. */
#define NPY_(dict, data)     NPY, BYTES(dict), BYTES(data)
#define WEIGHTS_(dict, data) NPY_WEIGHTS, BYTES(dict), BYTES(data)
#define NPZ_(path)           NPZ, BYTES("tests/data/npz/" path), NULL, 0
#define PT_(path)            PT, BYTES("tests/data/pt/" path), NULL, 0
#define PT_OF(object, data)  PT, BYTES(object), BYTES(data)
#define SAFE_(header, bytes) SAFETENSORS, BYTES(header), BYTES(bytes)

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
    "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]},"
    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[20,20]}}   ";
/* f32 1 and -2, f16 1.5 and -infinity, and the i64 7 */
#define GOOD_DATA   "\0\0\x80\x3f\0\0\0\xc0\0\x3e\0\xfc\7\0\0\0\0\0\0\0"
#define GOOD_(more) SAFETENSORS, good_header, sizeof good_header - 1, BYTES(GOOD_DATA more)

/* --------------------------------------------------------------------------------------------- good files */

static void check_tensor(const attn_tensor *t, attn_dtype dtype, const char *shape, const double *numbers)
{
    char found[64] = "";
    for (int i = 0; i < attn_tensor_rank(t); i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%d", i ? "," : "",
                 (int)attn_tensor_length(t, i));
    assert_string_equal(found, shape);
    assert_int_equal(attn_tensor_dtype(t), dtype);
    for (int64_t i = 0; i < attn_tensor_size(t); i++)
        assert_true(test_at(t, i) == numbers[i]);
}

/* Types stay, or reals become f64. */
enum { KEEP = 1, AS_F64 = 2 };

#define COUNTED      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
#define TURNED       0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11
#define TEXT         't', 'y', 'p', 'e', ':', ' ', 't', 'r', 'a', 'n', 0
#define SCALAR(type) DICT(type, "False", "()")
#define TWO_NUMBERS  TENSOR("b", "F32", "[2]", "[0,8]")
#define TWO_DATA     "\0\0\x80\x3f\0\0\0\xc0"

/* A file, how many tensors it has, and one of them. */
static const struct {
    file file;
    int64_t tensors;
    int options;
    const char *name;
    attn_dtype dtype;
    const char *shape;
    double numbers[12];
} tensors[] = {
    {{NPY_(SCALAR("<f4"), "\0\0\xc0\x3f")}, 1, 0, "array", ATTN_F32, "", {1.5}},
    {{NPY_(SCALAR(">f4"), "\x3f\xc0\0\0")}, 1, 0, "array", ATTN_F32, "", {1.5}},
    {{NPY_(SCALAR("<f8"), "\0\0\0\0\0\0\xf8\x3f")}, 1, 0, "array", ATTN_F64, "", {1.5}},
    {{NPY_(SCALAR("<f2"), "\0\x3e")}, 1, 0, "array", ATTN_F32, "", {1.5}},
    {{NPY_(SCALAR("|i1"), "\xfe")}, 1, 0, "array", ATTN_I32, "", {-2}},
    {{NPY_(SCALAR("<i2"), "\xfe\xff")}, 1, 0, "array", ATTN_I32, "", {-2}},
    {{NPY_(SCALAR(">i4"), "\xff\xff\xff\xfe")}, 1, 0, "array", ATTN_I32, "", {-2}},
    {{NPY_(SCALAR("<i8"), "\xfe\xff\xff\xff\xff\xff\xff\xff")}, 1, 0, "array", ATTN_I64, "", {-2}},
    {{NPY_(SCALAR("|u1"), "\xc8")}, 1, 0, "array", ATTN_U8, "", {200}},
    {{NPY_(SCALAR("<u2"), "\0\xff")}, 1, 0, "array", ATTN_I32, "", {0xff00}},
    {{NPY_(SCALAR("<u4"), "\0\0\0\xff")}, 1, 0, "array", ATTN_I64, "", {4278190080.0}},
    {{NPY_(SCALAR("|b1"), "\x02")}, 1, 0, "array", ATTN_BOOL, "", {1}},
    {{NPY_(DICT("|u1", "True", "(2, 3)"), "\1\4\2\5\3\6")}, 1, 0, "array", ATTN_U8, "2,3", {1, 2, 3, 4, 5, 6}},
    {{WEIGHTS_(DICT("<f4", "False", "(2,)"), TWO_DATA)}, 1, 0, "array", ATTN_F32, "2", {1, -2}},
    {{NPZ_("stored.npz")}, 4, 0, "encoder_l1_self_Wq", ATTN_F32, "2,3", {COUNTED}},
    {{NPZ_("stored.npz")}, 4, 0, "half", ATTN_F32, "2", {1.5, -2}},
    {{NPZ_("stored.npz")}, 4, 0, "columns", ATTN_F32, "2,3", {COUNTED}},
    {{NPZ_("stored.npz")}, 4, 0, "special:model.yml", ATTN_I32, "11", {TEXT}},
    {{NPZ_("deflated.npz")}, 4, 0, "encoder_l1_self_Wq", ATTN_F32, "2,3", {COUNTED}},
    {{NPZ_("deflated.npz")}, 4, 0, "half", ATTN_F32, "2", {1.5, -2}},
    {{NPZ_("deflated.npz")}, 4, 0, "columns", ATTN_F32, "2,3", {COUNTED}},
    {{NPZ_("deflated.npz")}, 4, 0, "special:model.yml", ATTN_I32, "11", {TEXT}},
    {{PT_("nested.pt")}, 15, 0, "model.weight", ATTN_F32, "4,3", {COUNTED}},
    {{PT_("nested.pt")}, 15, 0, "model.transposed", ATTN_F32, "3,4", {TURNED}},
    {{PT_("nested.pt")}, 15, 0, "model.column", ATTN_F32, "4", {1, 4, 7, 10}},
    {{PT_("nested.pt")}, 15, 0, "model.rows", ATTN_F32, "2,3", {3, 4, 5, 6, 7, 8}},
    {{PT_("nested.pt")}, 15, 0, "model.bias", ATTN_F32, "2", {0.5, -1.5}},
    {{PT_("nested.pt")}, 15, 0, "model.half", ATTN_F32, "2", {1.5, -2}},
    {{PT_("nested.pt")}, 15, 0, "model.brain", ATTN_F32, "2", {1.5, -2}},
    {{PT_("nested.pt")}, 15, 0, "model.double", ATTN_F32, "1", {(double)0.1f}},
    {{PT_("nested.pt")}, 15, 0, "model.expanded", ATTN_F32, "2,2", {3, 3, 3, 3}},
    {{PT_("nested.pt")}, 15, 0, "model.empty", ATTN_F32, "0,3", {0}},
    {{PT_("nested.pt")}, 15, 0, "model.steps", ATTN_I32, "", {7}},
    {{PT_("nested.pt")}, 15, 0, "model.mask", ATTN_BOOL, "2", {1, 0}},
    {{PT_("nested.pt")}, 15, 0, "model.bytes", ATTN_U8, "2", {1, 255}},
    {{PT_("nested.pt")}, 15, 0, "states.1", ATTN_F32, "1", {2}},
    {{PT_("legacy.pt")}, 2, 0, "weight", ATTN_F32, "4,3", {COUNTED}},
    {{PT_("legacy.pt")}, 2, 0, "transposed", ATTN_F32, "3,4", {TURNED}},
    {{PT_("old.pth")}, 5, 0, "model.embed.weight", ATTN_F32, "2,3", {COUNTED}},
    {{PT_("old.pth")}, 5, 0, "model.head.weight", ATTN_F32, "2,3", {COUNTED}},
    {{PT_("old.pth")}, 5, 0, "model.view", ATTN_F32, "2,2", {2, 3, 4, 5}},
    {{PT_("old.pth")}, 5, 0, "model.bias", ATTN_F32, "2", {1.5, -2}},
    {{PT_("old.pth")}, 5, 0, "optimizer.state.0.exp_avg", ATTN_F32, "2", {0.25, 0.5}},
    /* dicts made from a dict or from pairs in lists and tuples (Python 2), tensors with attributes, files without
     * checksums, and files of the older form with another protocol than 2 */
    {{PT_("python2.pt")}, 6, 0, "net.w", ATTN_F32, "2", {0, 1}},
    {{PT_("python2.pt")}, 6, 0, "net.b", ATTN_F32, "3", {2, 3, 4}},
    {{PT_("python2.pt")}, 6, 0, "ema.a", ATTN_F32, "1", {6}},
    {{PT_("python2.pt")}, 6, 0, "ema.inner.x", ATTN_F32, "2", {7, 8}},
    {{PT_("python2.pt")}, 6, 0, "given.y", ATTN_F32, "2", {9, 10}},
    {{PT_("python2.pt")}, 6, 0, "last", ATTN_F32, "1", {5}},
    {{PT_("typed.pt")}, 2, 0, "typed", ATTN_F32, "3", {0, 1, 2}},
    {{PT_("typed.pt")}, 2, 0, "plain", ATTN_F32, "2", {3, 4}},
    {{PT_("no_crc.pt")}, 1, 0, "x", ATTN_F32, "4", {0, 1, 2, 3}},
    {{PT_("protocol4.pt")}, 1, 0, "x", ATTN_F32, "4", {0, 1, 2, 3}},
    {{GOOD_("")}, 4, 0, "a", ATTN_F32, "1,2", {1, -2}},
    {{GOOD_("")}, 4, 0, "b", ATTN_F32, "2", {1.5, -INFINITY}},
    {{GOOD_("")}, 4, 0, "s", ATTN_I32, "", {7}},
    {{GOOD_("")}, 4, 0, "e", ATTN_F32, "0,3", {0}},
    {{GOOD_("")}, 4, KEEP, "b", ATTN_F16, "2", {0x3e00, 0xfc00}},
    {{GOOD_("")}, 4, KEEP, "s", ATTN_I64, "", {7}},
    {{GOOD_("")}, 4, AS_F64, "b", ATTN_F64, "2", {1.5, -INFINITY}},
    /* An empty tensor may begin where another tensor begins or ends, and may come before or after it. */
    {{SAFE_("{" TENSOR("e", "F32", "[0]", "[0,0]") "," TWO_NUMBERS "}", TWO_DATA)}, 2, 0, "b", ATTN_F32, "2", {1, -2}},
    {{SAFE_("{" TENSOR("e", "F32", "[0]", "[0,0]") "," TWO_NUMBERS "}", TWO_DATA)}, 2, 0, "e", ATTN_F32, "0", {0}},
    {{SAFE_("{" TWO_NUMBERS "," TENSOR("e", "F32", "[0]", "[0,0]") "}", TWO_DATA)}, 2, 0, "b", ATTN_F32, "2", {1, -2}},
    {{SAFE_("{" TWO_NUMBERS "," TENSOR("e", "F32", "[0]", "[0,0]") "}", TWO_DATA)}, 2, 0, "e", ATTN_F32, "0", {0}},
    {{SAFE_("{" TWO_NUMBERS "," TENSOR("e", "F32", "[0]", "[8,8]") "}", TWO_DATA)}, 2, 0, "b", ATTN_F32, "2", {1, -2}},
    {{SAFE_("{" TWO_NUMBERS "," TENSOR("e", "F32", "[0]", "[8,8]") "}", TWO_DATA)}, 2, 0, "e", ATTN_F32, "0", {0}},
};

/* Files with a name are also read by this name. */
static void good_files_are_read(void **state)
{
    attn_context *c = *state;
    for (size_t i = 0; i < LENGTH(tensors); i++) {
        const format of = tensors[i].file.format;
        const attn_weights_options options = {.keep_types = tensors[i].options == KEEP,
                                              .reals = tensors[i].options == AS_F64 ? ATTN_F64 : ATTN_F32};
        const bool named = of == NPZ || of == PT;
        for (int way = 1; way <= (named ? 2 : of == NPY ? 3 : 1); way++) {
            array_file f = named && way == 2 ? (array_file){.size = 0} : make(&tensors[i].file, way);
            attn_named_list list = {.context = c, .owns = true};
            attn_bytes report = {0};
            assert_ok(c, named && way == 2 ? attn_weights_read(&list, tensors[i].file.text, &options, NULL, &report)
                                           : readers[of](&list, f.bytes, f.size, "f", &options, NULL, &report));
            assert_int_equal(list.n, tensors[i].tensors);
            const attn_tensor *t = attn_named_find(&list, tensors[i].name);
            if (!t)
                fail_msg("case %zu: no tensor %s", i, tensors[i].name);
            check_tensor(t, tensors[i].dtype, tensors[i].shape, tensors[i].numbers);
            attn_bytes_free(c, &report);
            attn_named_clear(&list);
        }
    }
}

/* -------------------------------------------------------------------------------------------- wrong files */

#define WRONG(file, status, error)                                                                                     \
    {                                                                                                                  \
        {file}, status, error                                                                                          \
    }
#define A_DICT(dict)   NPY, BYTES(dict), BYTES("1234")
#define HEADER(header) SAFETENSORS, BYTES(header), BYTES("\0\0\0\0\0\0\0\0")
#define PATCHED(patch) NPZ, BYTES("tests/data/npz/stored.npz"), patch, 2
#define OBJECT(object) PT, BYTES("\x80\x02" object), NULL, 0
#define BAD            ATTN_ERROR_FORMAT
#define OTHER          ATTN_ERROR_UNSUPPORTED
#define HELP           ", but no tensors by name; save the tensors with torch.save("

/* By the question that is asked of all formats, then what only one of them can ask. */
static const struct {
    file file;
    attn_status status;
    const char *error;
} wrong[] = {
    /* elements of a type that is not supported */
    WRONG(A_DICT(DICT("<c8", "False", "()")), OTHER, "\"<c8\" are not supported"),
    WRONG(A_DICT("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}"), OTHER,
          "structured types are not supported"),
    WRONG(NPZ_("objects.npz"), OTHER, "f(objects.npy): byte 24: header: elements of type \"|O\" are not supported"),
    WRONG(PT_OF(PICKLED("ComplexFloat", "K\x01", ")", ")", ""), STORAGE("\x01", "12345678")), OTHER,
          "elements of type \"ComplexFloatStorage\" are not supported"),
    WRONG(HEADER(ONE("F8_E5M2", "[8]", "[0,8]")), OTHER, "\"F8_E5M2\" is not supported"),
    /* shapes */
    WRONG(A_DICT(DICT("<f4", "False", "(1,1,1,1,1,1,1,1,1)")), OTHER, "more than 8 axes"),
    WRONG(PT_OF(PICKLED("Float", "K\x01", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", ")", ""), STORAGE("\x01", "1234")), OTHER,
          "more than 8 axes"),
    WRONG(HEADER(ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]")), OTHER, "more than 8 axes"),
    WRONG(A_DICT(DICT("<f4", "False", "(-1,)")), BAD, "expected a length"),
    WRONG(PT_OF(PICKLED("Float", "K\x01", "(J\xff\xff\xff\xfft", "(K\x01t", ""), STORAGE("\x01", "1234")), BAD,
          "the shape must hold integers of at least 0"),
    WRONG(PT_OF(PICKLED("Float", "K\x01", "(K\x01t", "(J\xff\xff\xff\xfft", ""), STORAGE("\x01", "1234")), BAD,
          "the strides must hold integers of at least 0"),
    WRONG(HEADER(ONE("F32", "[-1]", "[0,4]")), BAD, "must hold integers"),
    WRONG(HEADER(ONE("F32", "[1.5]", "[0,4]")), BAD, "must hold integers"),
    WRONG(A_DICT(DICT("<f4", "False", "(99999999999999999999,)")), BAD, "overflows"),
    WRONG(HEADER(ONE("F32", "[99999999999999999999]", "[0,0]")), BAD, "must hold integers of at least 0"),
    WRONG(A_DICT(DICT("<f4", "False", "(4611686018427387904, 4)")), BAD, "need 18446744073709551615 bytes"),
    WRONG(HEADER(ONE("F32", "[4294967296,4294967296,16]", "[0,8]")), BAD, "overflows"),
    /* no elements, but strides that overflow */
    WRONG(A_DICT(DICT("<f4", "False", "(4294967296, 4294967296, 0)")), BAD, "need 18446744073709551615 bytes"),
    WRONG(PT_OF(PICKLED("Float", "K\x00",
                        "(\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40K\x00t",
                        "(K\x00K\x00K\x01t", ""),
                STORAGE("\x00", "")),
          BAD, "its size overflows"),
    WRONG(HEADER(ONE("F32", "[0,9223372036854775807,9]", "[0,0]")), BAD, "overflows"),
    /* too few bytes for the shape, or too many */
    WRONG(A_DICT(DICT("<f4", "False", "(2,)")), BAD, "need 8 bytes of data, but the file has 4"),
    WRONG(NPZ_("huge.npz"), BAD,
          "f(huge.npy): byte 128: the shape and the type need 4398046511104 bytes of data, but the file has 0"),
    WRONG(PT_OF(PICKLED("Float", "K\x01", "(K\x02t", "(K\x01t", ""), STORAGE("\x01", "1234")), BAD,
          "reach element 1, counted from 0, but the storage has 1 elements"),
    WRONG(PT_OF(PICKLED("Float", "K\x02", ")", ")", ""), STORAGE("\x01", "1234")), BAD, "should have 2 elements"),
    WRONG(PT_OF(PICKLED("Float", "K\x02", ")", ")", ""), STORAGE("\x02", "1234")), BAD, "the file ends after 4"),
    WRONG(PT_OF(PICKLED("Float", "K\1(X\1\0\0\0vK\5K\1t", ")", ")", ""), STORAGE("\x01", "1234")), BAD,
          "its view reaches past the end of its storage"),
    WRONG(HEADER(ONE("F32", "[2]", "[0,4]")), BAD, "need 8 bytes, but the offsets give 4 bytes"),
    WRONG(HEADER(ONE("F32", "[9]", "[0,36]")), BAD, "offsets 0 to 36 do not lie in the 8 bytes"),
    WRONG(A_DICT(DICT("|u1", "False", "(2,)")), BAD, "2 bytes follow the last element"),
    WRONG(GOOD_("1234"), BAD, "4 bytes follow the last tensor; expected the end of the file"),
    /* headers */
    WRONG(A_DICT(""), BAD, "expected {"),
    WRONG(A_DICT("{'descr: '<f4'"), BAD, "expected"),
    WRONG(A_DICT("{'descr': '<f4', 'shape': (1,)}"), BAD, "the key 'fortran_order' is missing"),
    WRONG(A_DICT("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x"), BAD, "found text behind the dict"),
    WRONG(A_DICT(DICT("<f4", "Maybe", "()")), BAD, "True or False"),
    WRONG(HEADER(""), BAD, "header does not begin with {"),
    WRONG(HEADER(" {}"), BAD, "header does not begin with {"),
    WRONG(HEADER("{\"a\":1}"), BAD, "expected an object with \"dtype\""),
    WRONG(HEADER("{\"a\":[[[[[1]]]]]}"), BAD, "nested too deep"),
    WRONG(HEADER("{" TENSOR("a", "F32", "[1]", "[0,4]")), BAD, "'}' expected"),
    WRONG(HEADER("{\"__metadata__\":{\"a\":1}}"), BAD, "the value of \"a\" in __metadata__ is not a text"),
    /* offsets */
    WRONG(HEADER("{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("a", "F32", "[1]", "[4,8]") "}"), BAD,
          "duplicate object key"),
    WRONG(HEADER(ONE("F32", "[1]", "[4,8]")), BAD, "begins at byte 4 of the data; expected byte 0"),
    WRONG(HEADER("{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("b", "F32", "[1]", "[0,4]") "}"), BAD,
          "begins at byte 0 of the data; expected byte 4"),
    WRONG(HEADER(ONE("F32", "[1]", "[4,0]")), BAD, "offsets 4 to 0"),
    /* archives */
    WRONG(PATCHED("\x08\x01"), OTHER, "is encrypted, which is not supported"),
    WRONG(PATCHED("\x0a\x09"), OTHER, "has compression method 9, which is not supported"),
    WRONG(PATCHED("\x18\x07"), BAD, "is stored as it is, but its two sizes differ"),
    /* pickles */
    WRONG(OBJECT("]q\0h\0a."), BAD, "contains itself"),
    WRONG(OBJECT("}q\0X\1\0\0\0ah\0s."), BAD, "contains itself"),
    WRONG(OBJECT("\xff."), BAD, "f: byte 27: pickle: unknown opcode 0xff"),
    WRONG(OBJECT("0."), BAD, "f: byte 27: pickle: the opcode takes an object from an empty stack"),
    WRONG(OBJECT("(."), BAD, "f: byte 28: pickle: the opcode ends the pickle while a mark is on the stack"),
    WRONG(OBJECT("h\x05."), BAD,
          "f: byte 27: pickle: the opcode takes an object from the memo that was never put there"),
    WRONG(OBJECT("Nr\xff\xff\xff\x7f."), BAD, "too large a number"),
    WRONG(OBJECT("X\377\377\377\377a."), BAD, "cut off"),
    WRONG(OBJECT("\x8d\377\377\377\377\377\377\377\377a."), BAD, "cut off"),
    WRONG(OBJECT("\x8d\x01\0\0\0\0\0\0\0a\xff."), BAD, "f: byte 37: pickle: unknown opcode 0xff"),
    WRONG(OBJECT("\x8e\x02\0\0\0\0\0\0\0ab\xff."), BAD, "f: byte 38: pickle: unknown opcode 0xff"),
    WRONG(OBJECT("K\1K\2a."), BAD, "cannot hold them"),
    WRONG(OBJECT("ccollections\nOrderedDict\n](]X\1\0\0\0aae\x85R."), BAD, "not a pair"),
    WRONG(OBJECT("ccollections\nOrderedDict\n]K\1a\x85R."), BAD, "not a pair"),
    WRONG(OBJECT("(K\1d."), BAD, "key without a value"),
    WRONG(OBJECT("K\x01K\x02\x93."), BAD, "name of a class"),
    WRONG(OBJECT("t."), BAD, "needs a mark on the stack, but there is none"),
    WRONG(OBJECT("ctorch._utils\n_rebuild_tensor_v2\n)R."), BAD,
          "the call that rebuilds the tensor is not in the form that PyTorch writes"),
    WRONG(OBJECT(CALLED "NK\x00))\x89NtR."), BAD, "has no storage"),
    WRONG(OBJECT(CALLED STORED("Float", "K\x09") "))\x89NtR."), BAD, "the storage \"0\" is missing"),
    /* torch.save stores x.conj().imag as x's storage with {"neg": True}. */
    WRONG(OBJECT(CALLED STORED("Float", "K\x01") "))\x89N}X\x03\x00\x00\x00neg\x88stR."), OTHER, "resolve_neg()"),
    /* a module in the older form, a module in a persistent id, a module in a dict, and a TorchScript program */
    WRONG(OBJECT("cshop\nNet\n)\x81}(X\x08\x00\x00\x00_modules}ub."), OTHER,
          "(shop.Net)" HELP "model.state_dict(), FILE)"),
    WRONG(OBJECT("(X\x06\x00\x00\x00modulecshop\nNet\nNNtQ)\x81}(X\x08\x00\x00\x00_modules}ub."), OTHER,
          "(shop.Net)" HELP "model.state_dict(), FILE)"),
    WRONG(OBJECT("}X\x05\x00\x00\x00modelcshop\nNet\n)\x81}(X\x08\x00\x00\x00_modules}ubs."), OTHER,
          "(shop.Net)" HELP "model.state_dict(), FILE)"),
    WRONG(OBJECT("c__torch__.shop\nNet\n)\x81}b."), OTHER,
          "a TorchScript program (__torch__.shop.Net)" HELP "torch.jit.load(THIS).state_dict(), FILE)"),
};

static void refuse(attn_context *c, reader *parse, const array_file *f, const char *begin, attn_status status,
                   const char *error)
{
    attn_named_list list = {.context = c, .owns = true};
    attn_bytes report;
    const attn_status found = parse(&list, f->bytes, f->size, "f", NULL, NULL, &report);
    assert_memory_equal(attn_context_error(c), begin, strlen(begin));
    assert_refused(c, found, status, error);
    assert_int_equal(list.n, 0);
    assert_null(report.data);
}

/* The reader that recognizes formats says the same as the format's reader. */
static void wrong_files_are_refused(void **state)
{
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        const format of = wrong[i].file.format;
        const char *begin = of == NPY || of == SAFETENSORS ? "f: byte " : "f";
        const array_file f = make(&wrong[i].file, 1);
        refuse(*state, readers[of], &f, begin, wrong[i].status, wrong[i].error);
        refuse(*state, attn_weights_parse, &f, begin, wrong[i].status, wrong[i].error);
    }
}

/* Bytes that do not begin as the format does. */
static void other_files_are_refused(void **state)
{
    static const struct {
        format format;
        const char *bytes;
        size_t size;
        attn_status status;
        const char *error;
    } cases[] = {
        {NPY, BYTES("nothing of NumPy"), BAD, "not a .npy file"},
        {NPY, BYTES("\x93NUMPY\x01\0\0"), BAD, "not a .npy file"},
        {NPY, BYTES("\x93NUMPY\x04\0\0\0\0\0"), OTHER, "version 4 of the format is not supported"},
        {NPY, BYTES("\x93NUMPY\x02\0\0\0\0"), BAD, "the file ends within its header"},
        {NPY, BYTES("\x93NUMPY\x01\0\x02\0{"), BAD, "the header needs 2 bytes, but the file ends after 1"},
        {NPZ, BYTES("nothing of a zip"), BAD, "not a .npz file"},
        {PT, BYTES("nothing of PyTorch"), BAD, "not a PyTorch file"},
        {SAFETENSORS, BYTES("1234567"), BAD, "shorter than 8 bytes"},
        {SAFETENSORS, BYTES("\x01\xe1\xf5\x05\0\0\0\0"), BAD, "has at most 100000000 bytes"},
        {SAFETENSORS, BYTES("\x02\0\0\0\0\0\0\0{"), BAD, "should have 2 bytes, but the file ends after 1"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        array_file f = {.size = cases[i].size};
        memcpy(f.bytes, cases[i].bytes, cases[i].size);
        refuse(*state, readers[cases[i].format], &f, "f: byte ", cases[i].status, cases[i].error);
    }
}

/* ------------------------------------------------------------------------------------------------- damage */

/* An error must be a format error with a message, and no memory may stay allocated. */
static attn_status read_damaged(reader *parse, const uint8_t *data, size_t size)
{
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 1}), ATTN_OK);
    attn_named_list list = {.context = c, .owns = true};
    attn_bytes report = {0};
    attn_status status = parse(&list, data, size, "f", NULL, NULL, &report);
    assert_true(status == ATTN_OK || status == ATTN_ERROR_FORMAT || status == ATTN_ERROR_UNSUPPORTED);
    assert_true(status == ATTN_OK || (*attn_context_error(c) && list.n == 0 && !report.data));
    attn_bytes_free(c, &report);
    attn_named_clear(&list);
    end_context(c);
    return status;
}

/* Reads a file cut at each byte, which must be refused, and with each bit flipped. The bytes end at a guard page. Returns
 * how many files with a flipped bit were accepted. */
static int damage(reader *parse, const array_file *f)
{
    int accepted = 0;
    for (size_t n = 0; n < f->size; n++) {
        uint8_t *part = guard_alloc(n ? n : 1);
        memcpy(part, f->bytes, n);
        assert_int_not_equal(read_damaged(parse, part, n), ATTN_OK);
        guard_free(part, n ? n : 1);
    }
    uint8_t *all = guard_alloc(f->size);
    memcpy(all, f->bytes, f->size);
    for (size_t bit = 0; bit < f->size * 8; bit++) {
        all[bit / 8] ^= (uint8_t)(1 << bit % 8);
        accepted += read_damaged(parse, all, f->size) == ATTN_OK;
        all[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    guard_free(all, f->size);
    return accepted;
}

static void damaged_files_are_read_or_refused(void **state)
{
    static const struct {
        file file;
        int accepted; /* at least */
    } cases[] = {{{NPY_(DICT("<f4", "True", "(1, 1)"), "1234")}, 32},
                 {{NPZ_("deflated.npz")}, 1},
                 {{PT_("linear.pt")}, 1},
                 {{PT_("legacy.pt")}, 1},
                 {{GOOD_("")}, 101}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const array_file f = make(&cases[i].file, 1);
        assert_true(damage(readers[cases[i].file.format], &f) >= cases[i].accepted);
    }
}

/* --------------------------------------------------------------------------------------- writing, allocations */

static attn_status write_npy(attn_named_list *list, const char *path)
{
    return attn_npy_write(list->items[0].tensor, list->context, path);
}

static attn_status read_npy(attn_named_list *list, const char *path)
{
    attn_tensor *t;
    attn_status status = attn_npy_read(&t, list->context, path);
    if (status == ATTN_OK && (status = attn_named_add(list, "x", t)) != ATTN_OK)
        attn_tensor_destroy(t);
    return status;
}

static attn_status write_safetensors(attn_named_list *list, const char *path)
{
    attn_config *metadata = NULL;
    attn_status status = attn_config_create(&metadata, list->context);
    if (status == ATTN_OK)
        status = attn_config_set_text(metadata, "format", "pt");
    if (status == ATTN_OK)
        status = attn_safetensors_write(list, path, metadata);
    attn_config_destroy(metadata);
    return status;
}

static attn_status read_safetensors(attn_named_list *list, const char *path)
{
    attn_config *metadata = NULL;
    attn_status status = attn_config_create(&metadata, list->context);
    if (status == ATTN_OK)
        status = attn_weights_read(list, path, &(attn_weights_options){.keep_types = true}, metadata, NULL);
    if (status == ATTN_OK)
        assert_string_equal(attn_config_text(metadata, "format", ""), "pt");
    attn_config_destroy(metadata);
    return status;
}

static attn_status load_safetensors(attn_named_list *list, const char *path)
{
    return attn_weights_load(list, path, NULL, NULL, NULL);
}

typedef struct round_trip {
    attn_status (*write)(attn_named_list *list, const char *path);
    attn_status (*read)(attn_named_list *list, const char *path);
    attn_status (*load)(attn_named_list *list, const char *path); /* into the tensors that were written; or NULL */
    bool widens;                                                  /* bf16 is written as f32 */
    long allocations;                                             /* at least */
    attn_dtype dtype;
    const char *path;
} round_trip;

/* Each byte of the elements is 0 or 1, which is a number of every type. */
static attn_status write_and_read(attn_context *c, void *user)
{
    const round_trip *by = user;
    attn_named_list list = {.context = c, .owns = true}, again = {.context = c, .owns = true};
    attn_tensor *t;
    attn_status status = attn_tensor_create(&t, c, by->dtype, 3, (const int64_t[]){2, 1, 3});
    if (status == ATTN_OK && (status = attn_named_add(&list, "x", t)) != ATTN_OK)
        attn_tensor_destroy(t);
    for (size_t i = 0; status == ATTN_OK && i < 6 * attn_dtype_size(by->dtype); i++)
        ((uint8_t *)attn_tensor_data(t))[i] = i % 3 == 1;
    if (status == ATTN_OK)
        status = by->write(&list, by->path);
    if (status == ATTN_OK)
        status = by->read(&again, by->path);
    if (status == ATTN_OK) {
        double expected[6];
        bool wide = by->widens && by->dtype == ATTN_BF16;
        assert_int_equal(again.n, 1);
        for (int i = 0; i < 6; i++) {
            uint32_t bits = wide ? (uint32_t)((const uint16_t *)attn_tensor_data(t))[i] << 16 : 0;
            float real;
            memcpy(&real, &bits, sizeof real);
            expected[i] = wide ? (double)real : test_at(t, i);
        }
        check_tensor(attn_named_find(&again, "x"), wide ? ATTN_F32 : by->dtype, "2,1,3", expected);
    }
    if (status == ATTN_OK && by->load)
        status = by->load(&list, by->path);
    attn_named_clear(&list);
    attn_named_clear(&again);
    return status;
}

static void written_files_are_read_back(void **state)
{
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F64, ATTN_I32, ATTN_I64, ATTN_U8, ATTN_BOOL};
    round_trip formats[] = {{write_npy, read_npy, NULL, true, 3, 0, NULL},
                            {write_safetensors, read_safetensors, load_safetensors, false, 20, 0, NULL}};
    char folder[64], path[128];
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/x", folder);
    for (size_t i = 0; i < LENGTH(formats) * LENGTH(dtypes); i++) {
        round_trip *by = &formats[i / LENGTH(dtypes)];
        by->dtype = dtypes[i % LENGTH(dtypes)];
        by->path = path;
        assert_true(faults_try_all(write_and_read, by) > by->allocations);
    }
    assert_int_equal(scratch_close(folder), 1);
}

static attn_status read_file(attn_context *c, void *user)
{
    attn_named_list list = {.context = c, .owns = true};
    attn_config *metadata = NULL;
    attn_bytes report = {0};
    attn_status status = attn_config_create(&metadata, c);
    if (status == ATTN_OK)
        status = attn_weights_read(&list, user, NULL, metadata, &report);
    attn_bytes_free(c, &report);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    static const struct {
        const char *path;
        long allocations; /* at least */
    } cases[] = {{"tests/data/npz/deflated.npz", 10},
                 {"tests/data/pt/nested.pt", 50},
                 {"tests/data/pt/legacy.pt", 10},
                 {"tests/data/pt/old.pth", 10},
                 {"tests/data/pt/python2.pt", 10}};
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_true(faults_try_all(read_file, (void *)(uintptr_t)cases[i].path) > cases[i].allocations);
}

RUN_TESTS(TEST_WITH_CONTEXT(good_files_are_read), TEST_WITH_CONTEXT(wrong_files_are_refused),
          TEST_WITH_CONTEXT(other_files_are_refused), TEST(damaged_files_are_read_or_refused),
          TEST(written_files_are_read_back), TEST(every_allocation_may_fail))
