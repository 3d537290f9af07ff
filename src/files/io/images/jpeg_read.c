/* SPDX-License-Identifier: MIT
 *
 * Reads JPEG with libjpeg-turbo. Like libpng, it reports errors by longjmp. If a file is damaged, for example cut off,
 * libjpeg only warns and fills the missing pixels with grey. Here this is an error, so that no training uses half-grey
 * pictures. */
#include "io/images/image.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

/* Maximum number of scans. Each scan is a pass over the picture, so a small progressive file with very many scans could
 * take hours to decode. */
enum { MOST_SCANS = 200 };

typedef struct reader {
    const attn__input *input;
    attn__raster *raster;
    int64_t limit;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    unsigned char *line; /* buffer for one row of CMYK pixels */
    int orientation;
    attn_status status;
    jmp_buf jump;
} reader;

bool attn__jpeg_matches(const attn__input *input)
{
    return input->size >= 3 && input->data[0] == 0xff && input->data[1] == 0xd8 && input->data[2] == 0xff;
}

/* ---------------------------------------------------------------------------------- what libjpeg calls */

static reader *reader_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

static size_t position(const reader *r)
{
    return r->jpeg.src ? r->input->size - r->jpeg.src->bytes_in_buffer : 0;
}

static void refuse(reader *r, attn_status status, const char *message)
{
    r->status = attn__fail(r->input->context, status, "%s: byte %zu: jpeg: %s", r->input->name, position(r), message);
    longjmp(r->jump, 1);
}

static void on_error(j_common_ptr jpeg)
{
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    refuse(reader_of(jpeg), jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? ATTN_ERROR_MEMORY : ATTN_ERROR_FORMAT, message);
}

/* Messages of level -1 are warnings, which count as errors. Only warnings that do not affect pixels are ignored: bytes
 * between markers, versions of the JFIF and Adobe markers, and progressive parameters of 0 in a sequential picture,
 * which some phones write. */
static void on_message(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
        code == JWRN_NOT_SEQUENTIAL)
        return;
    if (code == JWRN_JPEG_EOF)
        refuse(reader_of(jpeg), ATTN_ERROR_FORMAT, "the file is cut off");
    on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    reader *r = reader_of(jpeg);
    if (r->jpeg.input_scan_number > MOST_SCANS)
        refuse(r, ATTN_ERROR_UNSUPPORTED, "the file has more than 200 scans, the limit");
}

/* ---------------------------------------------------------------------------------------------- reading */

static int orientation(const reader *r)
{
    /* six bytes, because the constant has an explicit zero and a terminating zero */
    static const char head[6] = "Exif\0";
    for (jpeg_saved_marker_ptr m = r->jpeg.marker_list; m; m = m->next)
        if (m->data_length > sizeof head && memcmp(m->data, head, sizeof head) == 0)
            return attn__exif_orientation(m->data, m->data_length);
    return 1;
}

static void read_header(reader *r)
{
    jpeg_save_markers(&r->jpeg, JPEG_APP0 + 1, 0xffff); /* keep APP1 markers, which contain EXIF */
    jpeg_mem_src(&r->jpeg, r->input->data, r->input->size);
    (void)jpeg_read_header(&r->jpeg, TRUE);
    r->orientation = orientation(r); /* must be read now, because libjpeg frees the markers when decoding ends */
    r->status = attn__raster_check(r->input, r->jpeg.image_width, r->jpeg.image_height, r->limit);
    if (r->status != ATTN_OK)
        longjmp(r->jump, 1);
    J_COLOR_SPACE from = r->jpeg.jpeg_color_space;
    r->jpeg.out_color_space = from == JCS_GRAYSCALE                  ? JCS_GRAYSCALE
                              : from == JCS_CMYK || from == JCS_YCCK ? JCS_CMYK
                                                                     : JCS_RGB;
    (void)jpeg_start_decompress(&r->jpeg);
}

/* Converts CMYK to RGB. If `inverted` is true, the samples are inverted, as Adobe's programs write them in files with
 * an Adobe marker. */
static void light_of_ink(const unsigned char *cmyk, unsigned char *rgb, int64_t width, bool inverted)
{
    for (int64_t x = 0; x < width; x++, cmyk += 4, rgb += 3) {
        unsigned flip = inverted ? 0 : 255, black = cmyk[3] ^ flip;
        for (int c = 0; c < 3; c++)
            rgb[c] = (unsigned char)(((cmyk[c] ^ flip) * black + 127) / 255);
    }
}

static void read_pixels(reader *r)
{
    bool cmyk = r->jpeg.out_color_space == JCS_CMYK;
    int channels = cmyk ? 3 : r->jpeg.output_components;
    attn__raster *raster = r->raster;
    r->status = attn__raster_begin(raster, r->input, r->jpeg.output_width, r->jpeg.output_height, channels, r->limit);
    if (r->status == ATTN_OK && cmyk) {
        r->line = attn__alloc(r->input->context, 4 * (size_t)raster->width);
        r->status = r->line ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    if (r->status != ATTN_OK)
        longjmp(r->jump, 1);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        unsigned char *to = raster->pixels + (size_t)r->jpeg.output_scanline * (size_t)(raster->width * channels);
        JSAMPROW line = cmyk ? r->line : to;
        (void)jpeg_read_scanlines(&r->jpeg, &line, 1);
        if (cmyk)
            light_of_ink(r->line, to, raster->width, r->jpeg.saw_Adobe_marker);
    }
    (void)jpeg_finish_decompress(&r->jpeg);
}

/* Reads the file. An error in libjpeg calls longjmp, which returns to this function. */
static attn_status guarded(reader *r)
{
    if (setjmp(r->jump))
        return r->status;
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.client_data = r;
    r->jpeg.progress = &r->progress;
    read_header(r);
    read_pixels(r);
    return ATTN_OK;
}

attn_status attn__jpeg_read(attn__raster *raster, const attn__input *input, int64_t limit)
{
    reader r = {.input = input, .raster = raster, .limit = limit};
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.jpeg.client_data = &r;
    r.errors.error_exit = on_error;
    r.errors.emit_message = on_message;
    r.progress.progress_monitor = on_progress;
    attn_status status = guarded(&r);
    jpeg_destroy_decompress(&r.jpeg);
    attn__free(input->context, r.line);
    return status == ATTN_OK ? attn__raster_orient(raster, input->context, r.orientation) : status;
}
