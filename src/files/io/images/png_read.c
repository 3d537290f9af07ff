/* SPDX-License-Identifier: MIT
 *
 * Reads PNG with libpng, which reports errors by longjmp. Everything that must be freed is in a struct outside of the
 * function that calls setjmp, because local variables of that function may be invalid after a longjmp. */
#include "io/images/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const attn__input *input;
    attn__raster *raster;
    int64_t limit;
    size_t at;
    png_structp png;
    png_infop info;
    png_bytepp rows;
    attn_status status;
    jmp_buf jump;
} reader;

bool attn__png_matches(const attn__input *input)
{
    return input->size >= 8 && png_sig_cmp(input->data, 0, 8) == 0;
}

/* ----------------------------------------------------------------------------------- what libpng calls */

static void on_error(png_structp png, png_const_charp message)
{
    reader *r = png_get_error_ptr(png);
    /* if memory ran out, the allocator has already recorded this error */
    r->status =
        attn__call_status(r->input->context) == ATTN_ERROR_MEMORY
            ? ATTN_ERROR_MEMORY
            : attn__fail(r->input->context, ATTN_ERROR_FORMAT, "%s: byte %zu: png: %s", r->input->name, r->at, message);
    longjmp(r->jump, 1);
}

/* libpng warns of damaged chunks that do not affect the pixels. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep to, size_t size)
{
    reader *r = png_get_io_ptr(png);
    if (size > r->input->size - r->at)
        png_error(png, "the file is cut off");
    memcpy(to, r->input->data + r->at, size);
    r->at += size;
}

/* Large sizes are refused here, because libpng allocates the declared length of a chunk before it reads the chunk, even
 * if png_set_chunk_malloc_max is set. A row of the widest image needs 8 MiB. If this function returns NULL, libpng
 * fails with its own error. */
static png_voidp on_alloc(png_structp png, png_alloc_size_t size)
{
    enum { MOST = 32 << 20 };
    return size <= MOST ? attn__alloc(png_get_mem_ptr(png), size) : NULL;
}

static void on_free(png_structp png, png_voidp memory)
{
    attn__free(png_get_mem_ptr(png), memory);
}

/* ---------------------------------------------------------------------------------------------- reading */

static void fail(reader *r, attn_status status)
{
    r->status = status;
    longjmp(r->jump, 1);
}

/* Checks that the file is large enough for the declared pixels. Deflate compresses at most 1032 to 1. A header that
 * declares more pixels is wrong, and no memory must be allocated for them. */
static void check_promise(reader *r, uint64_t width, uint64_t height)
{
    uint64_t bits = (uint64_t)png_get_bit_depth(r->png, r->info) * png_get_channels(r->png, r->info);
    if ((width * bits + 7) / 8 * height > 1032 * (uint64_t)r->input->size)
        png_error(r->png, "the file is cut off");
}

static void read_header(reader *r)
{
    png_set_user_limits(r->png, ATTN__IMAGE_SIDE, ATTN__IMAGE_SIDE);
    png_set_chunk_malloc_max(r->png, 8u << 20);
    png_set_read_fn(r->png, r, on_read);
    png_read_info(r->png, r->info);
    uint64_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    attn_status status = attn__raster_check(r->input, width, height, r->limit);
    if (status != ATTN_OK)
        fail(r, status);
    check_promise(r, width, height);
    /* converts a palette, samples of 1 to 4 bits, and a transparent colour to samples of 8 bits */
    png_set_expand(r->png);
    png_set_scale_16(r->png); /* reduces 16-bit samples to 8 bits with rounding; png_set_strip_16 would truncate them */
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    status = attn__raster_begin(r->raster, r->input, width, height, png_get_channels(r->png, r->info), r->limit);
    if (status != ATTN_OK)
        fail(r, status);
}

static void read_pixels(reader *r)
{
    size_t stride = (size_t)r->raster->width * (size_t)r->raster->channels;
    r->rows = attn__alloc(r->input->context, attn__size_mul((size_t)r->raster->height, sizeof *r->rows));
    if (!r->rows)
        fail(r, ATTN_ERROR_MEMORY);
    for (int64_t y = 0; y < r->raster->height; y++)
        r->rows[y] = r->raster->pixels + (size_t)y * stride;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, r->info); /* also reads the chunks that come after the pixels */
}

/* ------------------------------------------------------------------------------------------- orientation */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Returns the orientation in ImageMagick's text chunk "Raw profile type exif". The text has a name, then a number of
 * bytes on a line of its own, and then the bytes in hexadecimal digits. The orientation is near the beginning, so only
 * the first bytes are read. */
static int orientation_of_text(const char *text)
{
    uint8_t bytes[1024];
    size_t n = 0;
    const char *at = strstr(text, "exif");
    at = at ? at + 4 : "";
    at += strspn(at, " \r\n");
    at += strspn(at, "0123456789");
    while (n < sizeof bytes) {
        at += strspn(at, " \r\n");
        int high = hex(at[0]), low = high < 0 ? -1 : hex(at[1]);
        if (low < 0)
            break;
        bytes[n++] = (uint8_t)(high * 16 + low);
        at += 2;
    }
    return attn__exif_orientation(bytes, n);
}

static int orientation(const reader *r)
{
    png_uint_32 size = 0;
    png_bytep exif = NULL;
    png_textp texts = NULL;
    if (png_get_eXIf_1(r->png, r->info, &size, &exif) && exif)
        return attn__exif_orientation(exif, size);
    int n = png_get_text(r->png, r->info, &texts, NULL);
    for (int i = 0; i < n; i++)
        if (strcmp(texts[i].key, "Raw profile type exif") == 0 && texts[i].text)
            return orientation_of_text(texts[i].text);
    return 1;
}

/* Reads the file. An error in libpng calls longjmp, which returns to this function. */
static attn_status guarded(reader *r)
{
    if (setjmp(r->jump))
        return r->status;
    attn_context *context = r->input->context;
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, context, on_alloc, on_free);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info)
        return attn__call_status(context) != ATTN_OK
                   ? attn__call_status(context)
                   : attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: libpng does not start", r->input->name);
    read_header(r);
    read_pixels(r);
    return ATTN_OK;
}

attn_status attn__png_read(attn__raster *raster, const attn__input *input, int64_t limit)
{
    reader r = {.input = input, .raster = raster, .limit = limit};
    attn_status status = guarded(&r);
    int turned = status == ATTN_OK ? orientation(&r) : 1;
    png_destroy_read_struct(&r.png, &r.info, NULL);
    attn__free(input->context, r.rows);
    return status == ATTN_OK ? attn__raster_orient(raster, input->context, turned) : status;
}
