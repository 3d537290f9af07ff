/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests image files of every kind, which are made here byte by byte or by libjpeg. Damaged files must be refused.
 * Resizing is compared with sums in double.
 */
#include "support/fixture.h"
#include "support/tensors.h"
#include "support/faults.h"
#include "support/guard.h"
#include "support/scratch.h"

#include "attn/image.h"
#include "base/hash.h"
#include "io/images/image.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <jpeglib.h>

typedef struct file {
    uint8_t bytes[4096];
    size_t size;
} file;

static void put(file *f, const void *data, size_t size)
{
    assert_true(f->size + size <= sizeof f->bytes);
    memcpy(f->bytes + f->size, data, size);
    f->size += size;
}

static void put_u32(file *f, uint32_t value)
{
    put(f, (uint8_t[]){(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value}, 4);
}

static void put_chunk(file *f, const char *type, const void *data, size_t size)
{
    put_u32(f, (uint32_t)size);
    size_t start = f->size;
    put(f, type, 4);
    put(f, data, size);
    put_u32(f, (uint32_t)crc32(0, f->bytes + start, (uInt)(f->size - start)));
}

/* Size of an EXIF block, whose orientation has the type SHORT (3), BYTE (1) or LONG (4). */
enum { EXIF = 32 };
typedef struct exif {
    bool there, big;
    uint8_t orientation, type;
} exif;

static void make_exif(uint8_t block[EXIF], const exif *e)
{
    static const uint8_t big[EXIF] = "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0";
    static const uint8_t little[EXIF] = "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\0\0\0\0\0\0\0\0";
    /* for each type, the offset of the orientation's last byte in big endian */
    static const int last[] = {0, 24, 0, 25, 27};
    memcpy(block, e->big ? big : little, EXIF);
    uint8_t type = e->type ? e->type : 3;
    block[e->big ? 19 : 18] = type;
    block[e->big ? last[type] : 24] = e->orientation;
}

enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

typedef struct png {
    uint32_t width, height;
    uint8_t depth, type, interlaced;
    uint8_t data[64]; /* rows of pixels, each after its filter byte */
    size_t size;
    uint8_t palette[12], transparent[6];
    size_t npalette, ntransparent;
} png;

/* Where the EXIF block is: before the pixels, after the pixels, or in a text chunk as ImageMagick writes it. */
enum { BEFORE, BEHIND, AS_TEXT };

static void put_png_exif(file *f, const exif *e, int where)
{
    uint8_t block[EXIF];
    char text[200] = "Raw profile type exif";
    make_exif(block, e);
    if (where != AS_TEXT) {
        put_chunk(f, "eXIf", block + 6, EXIF - 6);
        return;
    }
    size_t n = strlen(text) + 1;
    n += (size_t)sprintf(text + n, "\nexif\n      %d\n", EXIF);
    for (int i = 0; i < EXIF; i++)
        n += (size_t)sprintf(text + n, i % 16 == 15 ? "%02x\n" : "%02x", block[i]);
    put_chunk(f, "tEXt", text, n);
}

static file png_file_with(const png *p, const exif *e, int where)
{
    file f = {0}, head = {0};
    uint8_t packed[256];
    uLongf size = sizeof packed;
    put(&f, "\x89PNG\r\n\x1a\n", 8);
    put_u32(&head, p->width);
    put_u32(&head, p->height);
    put(&head, (uint8_t[]){p->depth, p->type, 0, 0, p->interlaced}, 5);
    put_chunk(&f, "IHDR", head.bytes, head.size);
    if (p->npalette)
        put_chunk(&f, "PLTE", p->palette, p->npalette);
    if (p->ntransparent)
        put_chunk(&f, "tRNS", p->transparent, p->ntransparent);
    if (e && where != BEHIND)
        put_png_exif(&f, e, where);
    assert_int_equal(compress(packed, &size, p->data, p->size), Z_OK);
    put_chunk(&f, "IDAT", packed, size);
    if (e && where == BEHIND)
        put_png_exif(&f, e, where);
    put_chunk(&f, "IEND", NULL, 0);
    return f;
}

static file png_file(const png *p)
{
    return png_file_with(p, NULL, BEFORE);
}

static attn_status parse(attn_image *image, attn_context *c, const file *f, int channels)
{
    uint8_t *bytes = guard_alloc(f->size + 1);
    memcpy(bytes + 1, f->bytes, f->size);
    attn_image_options options = {.channels = channels};
    attn_status status = attn_image_parse(image, c, bytes + 1, f->size, "f", &options);
    guard_free(bytes, f->size + 1);
    return status;
}

static void check_pixels(const file *f, int channels, int64_t width, int64_t height, const uint8_t *pixels)
{
    attn_context *c = test_context();
    attn_image image;
    attn_status status = parse(&image, c, f, channels);
    assert_string_equal(attn_context_error(c), "");
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(image.width, width);
    assert_int_equal(image.height, height);
    assert_memory_equal(image.pixels, pixels, (size_t)(width * height * image.channels));
    attn_image_free(c, &image);
    end_context(c);
}

static void check_refused(const file *f, attn_status wanted, const char *message)
{
    attn_context *c = test_context();
    attn_image image;
    assert_refused(c, parse(&image, c, f, 0), wanted, message);
    assert_null(image.pixels);
    end_context(c);
}

/* ------------------------------------------------------------------------------------------------- png */

static void every_kind_of_png_is_read(void **state)
{
    static const struct {
        png p;
        int channels;
        uint8_t pixels[16];
    } cases[] = {
        {{2, 1, 8, GREY, 0, {0, 10, 200}, 3, {0}, {0}, 0, 0}, 0, {10, 200}},
        {{2, 1, 8, GREY, 0, {0, 10, 200}, 3, {0}, {0}, 0, 0}, 3, {10, 10, 10, 200, 200, 200}},
        {{2, 1, 16, GREY, 0, {0, 0x80, 0x7f, 0xff, 0xff}, 5, {0}, {0}, 0, 0},
         0,
         {128, 255}}, /* 32895 / 257 = 127.996 is rounded to 128 */
        {{8, 1, 1, GREY, 0, {0, 0xa5}, 2, {0}, {0}, 0, 0}, 0, {255, 0, 255, 0, 0, 255, 0, 255}},
        {{4, 1, 2, GREY, 0, {0, 0x1b}, 2, {0}, {0}, 0, 0}, 0, {0, 85, 170, 255}},
        {{1, 2, 8, RGB, 0, {0, 1, 2, 3, 2, 4, 5, 6}, 8, {0}, {0}, 0, 0},
         0,
         {1, 2, 3, 5, 7, 9}}, /* the second row has the filter "up" */
        {{1, 1, 8, RGB, 0, {0, 100, 150, 200}, 4, {0}, {0}, 0, 0},
         1,
         {141}}, /* (1959500 + 5770500 + 1494200) / 65536 = 140.75, which is rounded to 141 */
        {{2, 1, 8, PALETTE, 0, {0, 1, 0}, 3, {1, 2, 3, 7, 8, 9}, {0}, 6, 0}, 0, {7, 8, 9, 1, 2, 3}},
        {{2, 1, 8, PALETTE, 0, {0, 1, 0}, 3, {1, 2, 3, 7, 8, 9}, {255, 0}, 6, 2}, 0, {255, 255, 255, 1, 2, 3}},
        {{2, 1, 8, GREY, 0, {0, 10, 200}, 3, {0}, {0, 200}, 0, 2}, 0, {10, 255}},
        /* 0.2 * 100 + 0.8 * 255 = 224, where 0.2 is the pixel's alpha */
        {{1, 1, 8, GREY_ALPHA, 0, {0, 100, 51}, 3, {0}, {0}, 0, 0}, 0, {224}},
        {{1, 1, 8, RGB_ALPHA, 0, {0, 0, 100, 255, 51}, 5, {0}, {0}, 0, 0}, 0, {204, 224, 255}},
        {{2, 2, 8, GREY, 1, {0, 1, 0, 2, 0, 3, 4}, 7, {0}, {0}, 0, 0},
         0,
         {1, 2, 3, 4}}, /* the pixels are in passes 1, 6 and 7 of Adam7 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file f = png_file(&cases[i].p);
        check_pixels(&f, cases[i].channels, cases[i].p.width, cases[i].p.height, cases[i].pixels);
    }
}

static void a_damaged_png_is_refused(void **state)
{
    png small = {.width = 2, .height = 1, .depth = 8, .type = GREY, .data = {0, 10, 200}, .size = 3}, huge = small,
        wide = small;
    file f = png_file(&small);
    for (size_t size = 0; size < f.size; size++) {
        file cut = f;
        cut.size = size;
        check_refused(&cut, ATTN_ERROR_FORMAT, size < 8 ? "f: " : "the file is cut off");
    }
    for (size_t at = 8; at < f.size - 12; at++) {
        file damaged = f;
        damaged.bytes[at] ^= 0x10;
        check_refused(&damaged, ATTN_ERROR_FORMAT, "f: byte ");
    }
    huge.width = huge.height = 900000;
    f = png_file(&huge);
    check_refused(&f, ATTN_ERROR_UNSUPPORTED, "900000 x 900000 = 810000000000 pixels; at most 67108864");
    wide.width = wide.height = 8000;
    f = png_file(&wide);
    check_refused(&f, ATTN_ERROR_FORMAT, "cut off");
    small.size = 2;
    f = png_file(&small);
    check_refused(&f, ATTN_ERROR_FORMAT, "png: ");
}

/* ------------------------------------------------------------------------------------------------ jpeg */

static void put_exif(struct jpeg_compress_struct *j, const exif *e)
{
    uint8_t block[EXIF];
    make_exif(block, e);
    jpeg_write_marker(j, JPEG_APP0 + 1, block, sizeof block);
}

/* Makes a JPEG of 16 x 8 pixels with a left half and a right half. */
static file jpeg_file(J_COLOR_SPACE space, int components, const uint8_t *left, const uint8_t *right, const exif *e)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL, line[64], *lines = line;
    unsigned long size = 0;
    file f = {0};
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &out, &size);
    j.image_width = 16;
    j.image_height = 8;
    j.input_components = components;
    j.in_color_space = space;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 100, TRUE);
    jpeg_start_compress(&j, TRUE);
    if (e && e->there)
        put_exif(&j, e);
    for (int x = 0; x < 16; x++)
        memcpy(line + x * components, x < 8 ? left : right, (size_t)components);
    while (j.next_scanline < 8)
        jpeg_write_scanlines(&j, &lines, 1);
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    put(&f, out, size);
    free(out);
    return f;
}

/* The tolerance allows for the losses of quality 100. */
static void check_corners(const file *f, int64_t width, int64_t height, const uint8_t *first, const uint8_t *last)
{
    attn_context *c = test_context();
    attn_image image;
    assert_int_equal(parse(&image, c, f, 0), ATTN_OK);
    assert_int_equal(image.width, width);
    assert_int_equal(image.height, height);
    const uint8_t *end = image.pixels + (width * height - 1) * image.channels;
    for (int i = 0; i < image.channels; i++) {
        assert_true(abs(image.pixels[i] - first[i]) <= 2);
        assert_true(abs(end[i] - last[i]) <= 2);
    }
    attn_image_free(c, &image);
    end_context(c);
}

static void every_kind_of_jpeg_is_read(void **state)
{
    static const uint8_t red[] = {200, 30, 30}, blue[] = {20, 40, 220}, dark[] = {40}, light[] = {220};
    file f = jpeg_file(JCS_RGB, 3, red, blue, NULL);
    check_corners(&f, 16, 8, red, blue);
    f = jpeg_file(JCS_GRAYSCALE, 1, dark, light, NULL);
    check_corners(&f, 16, 8, dark, light);
    /* libjpeg writes Adobe's marker. It means that inks are inverted, so that 255 is no ink. */
    static const uint8_t inks[] = {255, 128, 0, 255}, black[] = {255, 255, 255, 51};
    f = jpeg_file(JCS_CMYK, 4, inks, black, NULL);
    check_corners(&f, 16, 8, (uint8_t[]){255, 128, 0}, (uint8_t[]){51, 51, 51});
}

static void exif_turns_a_jpeg(void **state)
{
    static const uint8_t a[] = {40}, b[] = {220};
    /* For each orientation, true if the dark half, which is stored on the left, comes out on the left or at the top. */
    static const bool dark_first[9] = {true, true, false, false, true, true, true, false, false};
    static const uint8_t types[] = {1, 3, 4}; /* the types are BYTE, SHORT and LONG */
    for (uint8_t o = 0; o <= 9; o++) {
        for (int way = 0; way < 6; way++) {
            exif e = {true, way % 2, o, types[way / 2]};
            file f = jpeg_file(JCS_GRAYSCALE, 1, a, b, &e);
            bool turned = o >= 5 && o <= 8, first = o > 8 || dark_first[o];
            check_corners(&f, turned ? 8 : 16, turned ? 16 : 8, first ? a : b, first ? b : a);
        }
    }
}

static void exif_turns_a_png(void **state)
{
    for (int where = BEFORE; where <= AS_TEXT; where++) {
        exif e = {.big = where == BEHIND, .orientation = 6};
        png p = {.width = 3, .height = 1, .depth = 8, .data = {0, 1, 2, 3}, .size = 4};
        file f = png_file_with(&p, &e, where);
        check_pixels(&f, 0, 1, 3, (const uint8_t[]){1, 2, 3});
        e.orientation = 3;
        f = png_file_with(&p, &e, where);
        check_pixels(&f, 0, 3, 1, (const uint8_t[]){3, 2, 1});
    }
}

/* Sets bytes of a scan that only progressive pictures use. Some phones write zeros instead of 0, 63 and 0. */
static void zeros_in_a_scan_change_no_pixel(void **state)
{
    static const uint8_t red[] = {200, 30, 30}, blue[] = {20, 40, 220};
    file f = jpeg_file(JCS_RGB, 3, red, blue, NULL);
    uint8_t *scan = NULL;
    for (size_t at = 0; at + 9 < f.size && !scan; at++)
        scan = f.bytes[at] == 0xff && f.bytes[at + 1] == 0xda ? f.bytes + at : NULL;
    assert_non_null(scan);
    uint8_t *last = scan + 5 + 2 * scan[4];
    assert_memory_equal(last, "\0\x3f", 3);
    last[1] = 0;
    check_corners(&f, 16, 8, red, blue);
}

static void a_damaged_jpeg_is_refused(void **state)
{
    static const uint8_t red[] = {200, 30, 30}, blue[] = {20, 40, 220};
    file f = jpeg_file(JCS_RGB, 3, red, blue, NULL), wide = f;
    for (size_t size = 3; size < f.size - 2; size++) {
        file cut = f;
        cut.size = size;
        check_refused(&cut, ATTN_ERROR_FORMAT, "f: byte ");
    }
    uint8_t *frame = NULL;
    for (size_t at = 0; at + 9 < wide.size && !frame; at++)
        frame = wide.bytes[at] == 0xff && wide.bytes[at + 1] == 0xc0 ? wide.bytes + at : NULL;
    assert_non_null(frame);
    memcpy(frame + 5, "\xff\xdc\xff\xdc", 4); /* 65500 is the largest side that libjpeg accepts. */
    check_refused(&wide, ATTN_ERROR_UNSUPPORTED, "65500 x 65500 = 4290250000 pixels");
    file none = {.bytes = "GIF89a....", .size = 10}, empty = {.size = 0};
    check_refused(&none, ATTN_ERROR_FORMAT, "not an image in PNG, JPEG, WebP, BMP or PNM format");
    check_refused(&empty, ATTN_ERROR_FORMAT, "the file is empty");
}

/* ------------------------------------------------------------------------------------------------- pnm */

#define PNM(text)                                                                                                      \
    &(file)                                                                                                            \
    {                                                                                                                  \
        .bytes = text, .size = sizeof text - 1                                                                         \
    }

static void pnm_is_read(void **state)
{
    check_pixels(PNM("P5\n# a comment\n2 1 255\n\x01\xff"), 0, 2, 1, (uint8_t[]){1, 255});
    check_pixels(PNM("P6 1 1 100 \x64\x32\x01"), 0, 1, 1, (uint8_t[]){255, 128, 3});
    check_pixels(PNM("P5 1 1 65535\n\x80\x80"), 0, 1, 1, (uint8_t[]){128});
    check_pixels(PNM("P2\n2 2 15\n0 15 # end\n3\t6"), 0, 2, 2, (uint8_t[]){0, 255, 51, 102});
    check_pixels(PNM("P3 1 1 255 7 8 9"), 0, 1, 1, (uint8_t[]){7, 8, 9});
    check_refused(PNM("P5 2 1 255\n\x01"), ATTN_ERROR_FORMAT, "cut off");
    check_refused(PNM("P5 2"), ATTN_ERROR_FORMAT, "cut off");
    check_refused(PNM("P5 0 1 255\n"), ATTN_ERROR_FORMAT, "0 x 1 pixels");
    check_refused(PNM("P5 1 1 0\n\x01"), ATTN_ERROR_FORMAT, "the maximum sample is 0");
    check_refused(PNM("P5 1 x 255\n\x01"), ATTN_ERROR_FORMAT, "expected a number");
    check_refused(PNM("P2 1 1 9\n10"), ATTN_ERROR_FORMAT, "a sample is 10");
    check_refused(PNM("P5 1 1 9\n\x0a"), ATTN_ERROR_FORMAT, "a sample is 10");
    check_refused(PNM("P5 99999 99999 255\n"), ATTN_ERROR_UNSUPPORTED, "99999 x 99999");
    check_refused(PNM("P5 99999999999 1 255\n"), ATTN_ERROR_FORMAT, "a number is above");
}

/* --------------------------------------------------------------------------------------- bmp and webp */

static file file_at(const char *path)
{
    file f = {.size = 0};
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    f.size = fread(f.bytes, 1, sizeof f.bytes, from);
    fclose(from);
    return f;
}

static void check_cut(const file *whole, const char *message)
{
    for (size_t size = 14; size < whole->size; size++) {
        file cut = *whole;
        cut.size = size;
        check_refused(&cut, ATTN_ERROR_FORMAT, message);
    }
}

static const uint8_t six_colours[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 255, 255, 255, 0, 0, 0};

static void bmp_is_read(void **state)
{
    file f = file_at("fuzz/corpus/bmp/24.bmp"), bits = file_at("fuzz/corpus/bmp/1.bmp");
    check_pixels(&f, 0, 3, 2, six_colours);
    check_cut(&f, "bmp: ");
    /* A height of -2 means that the first row in the file is the top row. */
    f.bytes[22] = 0xfe, f.bytes[23] = f.bytes[24] = f.bytes[25] = 0xff;
    check_pixels(&f, 0, 3, 2, (uint8_t[]){10, 20, 30, 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255});
    f.bytes[30] = 1;
    check_refused(&f, ATTN_ERROR_UNSUPPORTED, "bmp: the compression is 1; supported: 0 (none)");
    check_pixels(&bits, 1, 3, 2, (uint8_t[]){255, 0, 255, 0, 255, 0});
    bits.bytes[46] = 1; /* The palette has one colour, but pixels use a second one. */
    check_refused(&bits, ATTN_ERROR_FORMAT, "bmp: a pixel has colour 1, but the palette has 1 colours");
    bits.bytes[28] = 5;
    check_refused(&bits, ATTN_ERROR_UNSUPPORTED, "bmp: the number of bits a pixel is 5");
}

static void webp_is_read(void **state)
{
    file f = file_at("fuzz/corpus/webp/lossless.webp"), clear = file_at("fuzz/corpus/webp/alpha.webp");
    attn_context *c = NULL;
    attn_image image;
    attn_context_create(&c, NULL);
    attn_status status = attn_image_parse(&image, c, f.bytes, f.size, "f", NULL);
    if (status == ATTN_ERROR_UNSUPPORTED && strstr(attn_context_error(c), "no libwebp")) {
        end_context(c);
        skip();
    }
    attn_image_free(c, &image);
    end_context(c);
    check_pixels(&f, 0, 3, 2, six_colours);
    check_cut(&f, "webp: ");
    /* The alpha values of each row are 255, 128 and 0, over white. */
    check_pixels(&clear, 0, 3, 2,
                 (uint8_t[]){255, 0, 0, 127, 255, 127, 255, 255, 255, 10, 20, 30, 255, 255, 255, 255, 255, 255});
}

/* libwebp refuses a frame of another size. The message has the file's name and the reason that libwebp gives. */
static void failures_of_libwebp_name_the_file(void **state)
{
    attn_context *c = *state;
    uint8_t pixels[12] = {0};
    const attn_image frames[] = {{2, 2, 3, pixels}, {2, 1, 3, pixels}};
    attn_status status = attn__webp_write(c, frames, 2, 100, "a.webp");
    if (status == ATTN_ERROR_UNSUPPORTED)
        skip();
    assert_refused(c, status, ATTN_ERROR_INTERNAL, "a.webp: libwebp: ERROR");
}

/* ------------------------------------------------------------------------------------------- geometry */

static attn_image noise(attn_context *c, int64_t width, int64_t height, int channels)
{
    attn_image image;
    uint32_t x = 12345;
    assert_int_equal(attn_image_alloc(&image, c, width, height, channels), ATTN_OK);
    for (int64_t i = 0; i < width * height * channels; i++) {
        x = x * 1664525 + 1013904223;
        image.pixels[i] = (unsigned char)(x >> 24);
    }
    return image;
}

/* Computes a pixel of the resized image by definition, in double and with no rounding in between. */
static double filtered(const attn_image *from, int64_t width, int64_t height, int64_t x, int64_t y, int c, bool bicubic)
{
    double sx = (double)from->width / (double)width, sy = (double)from->height / (double)height, sum = 0, all = 0;
    double wx = sx > 1 ? sx : 1, wy = sy > 1 ? sy : 1;
    for (int64_t j = 0; j < from->height; j++) {
        for (int64_t i = 0; i < from->width; i++) {
            double d[] = {fabs(((double)i + 0.5 - ((double)x + 0.5) * sx) / wx),
                          fabs(((double)j + 0.5 - ((double)y + 0.5) * sy) / wy)};
            double w = 1;
            for (int k = 0; k < 2; k++) {
                double t = d[k];
                if (!bicubic)
                    w *= t < 1 ? 1 - t : 0;
                else
                    w *= t < 1   ? 1.5 * t * t * t - 2.5 * t * t + 1
                         : t < 2 ? -0.5 * t * t * t + 2.5 * t * t - 4 * t + 2
                                 : 0;
            }
            sum += w * from->pixels[(j * from->width + i) * from->channels + c];
            all += w;
        }
    }
    return sum / all < 0 ? 0 : sum / all > 255 ? 255 : sum / all;
}

static void resizing_is_the_filter_written_out(void **state)
{
    static const int64_t sizes[][4] = {{9, 7, 4, 3}, {5, 6, 12, 13}, {16, 16, 16, 5}, {3, 1, 7, 1}, {11, 13, 1, 1}};
    attn_context *c = *state;
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        const int64_t *s = sizes[k / 2];
        bool bicubic = k % 2;
        attn_image from = noise(c, s[0], s[1], 3), to;
        assert_int_equal(attn_image_resize(&to, c, &from, s[2], s[3],
                                           bicubic ? ATTN_IMAGE_FILTER_BICUBIC : ATTN_IMAGE_FILTER_BILINEAR),
                         ATTN_OK);
        for (int64_t i = 0; i < s[2] * s[3] * 3; i++) {
            double wanted = filtered(&from, s[2], s[3], i / 3 % s[2], i / 3 / s[2], (int)(i % 3), bicubic);
            /* The result is rounded to 8 bits twice. Weights of a bicubic filter sum to at most 1.25 in absolute
             * value. If the first pass is clipped to [0, 255], the result may differ by more. */
            assert_true(fabs(to.pixels[i] - wanted) <= (bicubic ? 24 : 1.01));
        }
        attn_image_free(c, &from);
        attn_image_free(c, &to);
    }
}

/* The expected checksums come from Pillow, for the same noise: resize((width, old height)), then resize((width,
 * height)). */
static void resizing_gives_pillows_bits(void **state)
{
    static const struct {
        int64_t from_width, from_height;
        int channels;
        int64_t width, height;
        uint64_t sums[2];
    } cases[] = {
        {13, 7, 3, 4, 3, {UINT64_C(0x4cda2197a9e530f9), UINT64_C(0x6b131cc3290ba19c)}},
        {13, 7, 3, 29, 17, {UINT64_C(0x91a5a4b4c90d291b), UINT64_C(0xcfd4cee8621157a9)}},
        {13, 7, 3, 13, 2, {UINT64_C(0xb087b971d8d94e35), UINT64_C(0xb654f30edabfe6cc)}},
        {64, 48, 3, 107, 80, {UINT64_C(0xe9f962bbd1e4297c), UINT64_C(0x6fad352f44544e22)}},
        {97, 61, 3, 20, 13, {UINT64_C(0x464538b72ddd34f8), UINT64_C(0x6a6e13e86393db50)}},
        {40, 30, 1, 17, 55, {UINT64_C(0xd084d80ce4c3f0fc), UINT64_C(0xf39e8acfc42f705e)}},
    };
    attn_context *c = *state;
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        attn_image from = noise(c, cases[k / 2].from_width, cases[k / 2].from_height, cases[k / 2].channels), to;
        assert_ok(c, attn_image_resize(&to, c, &from, cases[k / 2].width, cases[k / 2].height,
                                       k % 2 ? ATTN_IMAGE_FILTER_BICUBIC : ATTN_IMAGE_FILTER_BILINEAR));
        size_t size = (size_t)(to.width * to.height * to.channels);
        assert_true(attn__hash_bytes(ATTN__HASH_BEGIN, to.pixels, size) == cases[k / 2].sums[k % 2]);
        attn_image_free(c, &from);
        attn_image_free(c, &to);
    }
}

/* In the middle of the range nothing is clipped, so the results differ only by rounding. */
static void bicubic_is_exact_where_nothing_is_cut(void **state)
{
    attn_context *c = *state;
    attn_image from = noise(c, 10, 9, 1), to;
    for (int i = 0; i < 90; i++)
        from.pixels[i] = (unsigned char)(90 + from.pixels[i] / 4);
    assert_int_equal(attn_image_resize(&to, c, &from, 23, 4, ATTN_IMAGE_FILTER_BICUBIC), ATTN_OK);
    for (int64_t i = 0; i < 23 * 4; i++)
        assert_true(fabs(to.pixels[i] - filtered(&from, 23, 4, i % 23, i / 23, 0, true)) <= 1.2);
    attn_image_free(c, &from);
    attn_image_free(c, &to);
}

static void center_crop_is_exact(void **state)
{
    attn_context *c = *state;
    attn_image wide, to;
    assert_int_equal(attn_image_alloc(&wide, c, 30, 10, 1), ATTN_OK);
    for (int i = 0; i < 300; i++)
        wide.pixels[i] = i % 30 < 10 ? 10 : i % 30 < 20 ? 120 : 250;
    assert_int_equal(attn_image_fit(&to, c, &wide, 10, 10, ATTN_IMAGE_FILTER_BILINEAR), ATTN_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(to.pixels[i], 120);
    attn_image_free(c, &to);
    /* A squashed image keeps its whole width. With a side of 20 pixels, its middle 10 x 10 pixels are cut out. */
    attn__image_fitting squash = {.squash = true}, larger = {.squash = true, .side = 20}, less = {.side = 9};
    assert_int_equal(attn__image_fit(&to, c, &wide, 10, 10, &squash), ATTN_OK);
    assert_true(to.pixels[40] < 20 && to.pixels[44] == 120 && to.pixels[49] > 240);
    attn_image_free(c, &to);
    assert_int_equal(attn__image_fit(&to, c, &wide, 10, 10, &larger), ATTN_OK);
    assert_true(to.pixels[40] == 10 && to.pixels[44] == 120 && to.pixels[49] == 250);
    attn_image_free(c, &to);
    assert_int_equal(attn__image_fit(&to, c, &wide, 10, 10, &less), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(c);
    assert_int_equal(attn_image_crop(&to, c, &wide, 25, 0, 6, 1), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(c);
    assert_int_equal(attn_image_resize(&to, c, &wide, 0, 3, ATTN_IMAGE_FILTER_BILINEAR), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(c);
    attn_image two[] = {wide, wide}, sheet;
    assert_int_equal(attn_image_sheet(&sheet, c, two, 2, 1, 3, 2), ATTN_OK);
    assert_int_equal(sheet.width, 66);
    assert_int_equal(sheet.height, 49);
    assert_int_equal(sheet.pixels[2 * 66 + 3], 255);
    assert_int_equal(sheet.pixels[3 * 66 + 3], 10);
    assert_int_equal(sheet.pixels[45 * 66 + 62], 250);
    attn_image_free(c, &sheet);
    for (int64_t columns = 0; columns <= 9; columns += 3) {
        assert_int_equal(attn_image_sheet(&sheet, c, two, 2, columns, 1, 1), ATTN_OK);
        assert_int_equal(sheet.width, 2 * (wide.width + 1) + 1);
        assert_int_equal(sheet.height, wide.height + 2);
        attn_image_free(c, &sheet);
    }
    float planes[2];
    attn_image pixel = {1, 1, 1, (unsigned char[]){51}};
    attn_image_planes(&pixel, (float[]){0.1f}, (float[]){0.5f}, planes);
    assert_true(fabsf(planes[0] - 0.2f) < 1e-6f);
    attn_image_free(c, &wide);
}

static void written_files_are_read_back(void **state)
{
    static const char *const names[] = {"a.png", "a.PPM", "a.pnm"};
    attn_context *c = *state;
    char folder[64], path[128];
    scratch_open(folder);
    attn_image image = noise(c, 37, 11, 3), again;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(attn_image_write(c, &image, path), ATTN_OK);
        assert_int_equal(attn_image_read(&again, c, path, NULL), ATTN_OK);
        assert_memory_equal(again.pixels, image.pixels, 37 * 11 * 3);
        attn_image_free(c, &again);
    }
    snprintf(path, sizeof path, "%s/a.pgm", folder);
    assert_int_equal(attn_image_write(c, &image, path), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(c);
    assert_int_equal(attn_image_write(c, &image, "a.gif"), ATTN_ERROR_ARGUMENT);
    for (int i = 0; i < 3; i++) {
        attn_image two = {37, 11, i == 1 ? 4 : 2, image.pixels}, none = {0, 11, 3, image.pixels};
        snprintf(path, sizeof path, "%s/new-%s", folder, names[i]);
        assert_refused(c, attn_image_write(c, &two, path), ATTN_ERROR_ARGUMENT, "channels");
        assert_refused(c, attn_image_write(c, &none, path), ATTN_ERROR_ARGUMENT, "0 x 11");
    }
    assert_int_equal(scratch_close(folder), 3);
    attn_image_free(c, &image);
}

/* ---------------------------------------------------------------------------------------------- memory */

static attn_status read_all(attn_context *c, void *user)
{
    const file *f = user;
    attn_image image = {0}, small = {0};
    attn_bytes bytes = {0};
    attn_status status = attn_image_parse(&image, c, f->bytes, f->size, "f", &(attn_image_options){.channels = 3});
    if (status == ATTN_OK)
        status = attn_image_fit(&small, c, &image, 5, 3, ATTN_IMAGE_FILTER_BICUBIC);
    if (status == ATTN_OK)
        status = attn_image_png(&bytes, c, &small);
    attn_image_free(c, &image);
    attn_image_free(c, &small);
    attn_bytes_free(c, &bytes);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    exif turned = {.there = true, .big = true, .orientation = 6};
    png p = {.width = 2, .height = 1, .depth = 8, .type = GREY_ALPHA, .data = {0, 10, 200, 10, 100}, .size = 5};
    file files[] = {png_file(&p), jpeg_file(JCS_CMYK, 4, (uint8_t[4]){1}, (uint8_t[4]){2}, &turned),
                    *PNM("P5\n2 1 255\n\x01\xff")};
    for (int i = 0; i < 3; i++)
        assert_true(faults_try_all(read_all, &files[i]) > 3);
}

/* The expected numbers come from torch.nn.functional.interpolate(mode="bicubic", antialias=True). */
static void maps_of_numbers_are_resized(void **state)
{
    static const struct {
        int64_t from[2], to[2];
        float numbers[25];
    } cases[] = {
        {{4, 4}, {3, 3}, {1.08067f, 3.12099f, 3.31509f, 3.46259f, 2.9366f, 4.75857f, 5.60902f, 5.10017f, 4.35584f}},
        {{5, 5}, {2, 2}, {3.00936f, 4.32965f, 5.86742f, 7.1877f}},
        {{3, 5},
         {5, 2},
         {1.84405f, 3.16433f, 2.32085f, 3.64113f, 3.18839f, 4.50867f, 4.05593f, 5.37621f, 4.53273f, 5.85301f}},
        {{2, 6},
         {3, 4},
         {0.444941f, 3.57577f, 2.74667f, 2.18121f, 2.53964f, 3.91845f, 3.42726f, 3.07201f, 4.63435f, 4.26113f, 4.10785f,
          3.9628f}},
        {{2, 2}, {5, 5}, {-0.717693f, -0.265801f, 0.926887f, 2.11957f, 2.57147f, 0.104564f, 0.42098f,
                          1.2561f,    2.09122f,   2.40764f,  2.27476f, 2.23361f, 2.125f,    2.01639f,
                          1.97524f,   4.44496f,   4.04625f,  2.9939f,  1.94155f, 1.54283f,  5.26722f,
                          4.73303f,   3.32311f,   1.9132f,   1.379f}},
    };
    attn_context *c = *state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t *n = cases[k].from, *m = cases[k].to;
        float from[2 * 25], to[2 * 25];
        for (int i = 0; i < n[0] * n[1]; i++)
            for (int channel = 0; channel < 2; channel++)
                from[2 * i + channel] = (float)(channel + 1) * ((float)(i * 7 % 5) + 0.25f * (float)i);
        assert_int_equal(attn__resize_map(c, from, n, to, m, 2), ATTN_OK);
        for (int64_t i = 0; i < 2 * m[0] * m[1]; i++)
            assert_true(fabsf(to[i] / (float)(i % 2 + 1) - cases[k].numbers[i / 2]) < 1e-5f);
    }
}

RUN_TESTS(TEST(every_kind_of_png_is_read), TEST(a_damaged_png_is_refused), TEST(every_kind_of_jpeg_is_read),
          TEST(exif_turns_a_jpeg), TEST(exif_turns_a_png), TEST_WITH_CONTEXT(maps_of_numbers_are_resized),
          TEST_WITH_CONTEXT(resizing_gives_pillows_bits), TEST(zeros_in_a_scan_change_no_pixel),
          TEST(a_damaged_jpeg_is_refused), TEST(pnm_is_read), TEST(bmp_is_read), TEST(webp_is_read),
          TEST_WITH_CONTEXT(failures_of_libwebp_name_the_file), TEST_WITH_CONTEXT(resizing_is_the_filter_written_out),
          TEST_WITH_CONTEXT(bicubic_is_exact_where_nothing_is_cut), TEST_WITH_CONTEXT(center_crop_is_exact),
          TEST_WITH_CONTEXT(written_files_are_read_back), TEST(every_allocation_may_fail))
