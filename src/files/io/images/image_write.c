/* SPDX-License-Identifier: MIT */
#include "io/file.h"
#include "io/images/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct writer {
    attn_context *context;
    const attn_image *image;
    attn_bytes out;
    png_structp png;
    png_infop info;
    jmp_buf jump;
} writer;

static void on_error(png_structp png, png_const_charp message)
{
    writer *w = png_get_error_ptr(png);
    if (attn__call_status(w->context) == ATTN_OK)
        attn__fail(w->context, ATTN_ERROR_INTERNAL, "png: %s", message);
    longjmp(w->jump, 1);
}

/* Ignores a warning of libpng, which libpng would print otherwise. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_write(png_structp png, png_bytep data, size_t size)
{
    writer *w = png_get_io_ptr(png);
    if (attn__bytes_append(w->context, &w->out, (const char *)data, size) != ATTN_OK)
        longjmp(w->jump, 1);
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t size)
{
    return attn__alloc(png_get_mem_ptr(png), size);
}

static void on_free(png_structp png, png_voidp memory)
{
    attn__free(png_get_mem_ptr(png), memory);
}

/* Encodes the image. Returns false if libpng fails, with the error in the context. An error in libpng calls longjmp,
 * which returns to this function. */
static bool guarded(writer *w)
{
    const attn_image *image = w->image;
    size_t stride = (size_t)image->width * (size_t)image->channels;
    if (setjmp(w->jump))
        return false;
    w->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, w, on_error, on_warning, w->context, on_alloc, on_free);
    w->info = w->png ? png_create_info_struct(w->png) : NULL;
    if (!w->info)
        return false;
    png_set_write_fn(w->png, w, on_write, NULL);
    png_set_IHDR(w->png, w->info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->png, w->info);
    for (int64_t y = 0; y < image->height; y++)
        png_write_row(w->png, image->pixels + (size_t)y * stride);
    png_write_end(w->png, NULL);
    return true;
}

attn_status attn_image_png(attn_bytes *png, attn_context *context, const attn_image *image)
{
    ATTN__CALL(context);
    writer w = {.context = context, .image = image};
    *png = (attn_bytes){0};
    bool done = guarded(&w);
    png_destroy_write_struct(&w.png, &w.info);
    if (!done) {
        attn_bytes_free(context, &w.out);
        return attn__call_status(context) != ATTN_OK
                   ? attn__call_status(context)
                   : attn__fail(context, ATTN_ERROR_INTERNAL, "png: libpng does not start");
    }
    *png = w.out;
    return ATTN_OK;
}

static attn_status write_pnm(attn_context *context, const attn_image *image, const char *path)
{
    attn__output output;
    char head[64];
    int length = snprintf(head, sizeof head, "P%c\n%lld %lld\n255\n", image->channels == 1 ? '5' : '6',
                          (long long)image->width, (long long)image->height);
    attn__output_begin(&output, context, path);
    attn__output_write(&output, head, (size_t)length);
    attn__output_write(&output, image->pixels, (size_t)image->width * (size_t)image->height * (size_t)image->channels);
    return attn__output_end(&output);
}

attn_status attn_image_write(attn_context *context, const attn_image *image, const char *path)
{
    ATTN__CALL(context);
    if (image->channels != 1 && image->channels != 3)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: the image has %d channels; expected 1 or 3", path,
                          image->channels);
    if (image->width < 1 || image->height < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: the image has %lld x %lld pixels; each side must be at least 1", path,
                          (long long)image->width, (long long)image->height);
    const char *ending = attn__path_extension(path);
    bool pgm = strcasecmp(ending, ".pgm") == 0, ppm = strcasecmp(ending, ".ppm") == 0;
    if (pgm || ppm || strcasecmp(ending, ".pnm") == 0) {
        if (pgm && image->channels != 1)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "%s: the image has colours, but a .pgm file can hold only grey; write .ppm or .png",
                              path);
        if (ppm && image->channels != 3)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "%s: the image is grey, but a .ppm file holds colours; write .pgm or .png", path);
        return write_pnm(context, image, path);
    }
    if (strcasecmp(ending, ".png") != 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: an image's name must end in .png, .ppm, .pgm or .pnm",
                          path);
    attn_bytes png = {0};
    attn_status status = attn_image_png(&png, context, image);
    if (status == ATTN_OK)
        status = attn_file_write(context, path, png.data, png.size);
    attn_bytes_free(context, &png);
    return status;
}
