/* SPDX-License-Identifier: MIT
 *
 * image.h: a picture is written, read, resized and converted to planes. The argument is the folder of the files. */
#include <attn/image.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { WIDTH = 12, HEIGHT = 8 };

int main(int argc, char **argv)
{
    char path[4096];
    unsigned char pixels[HEIGHT][WIDTH][3];
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < 3; c++)
                pixels[y][x][c] = (unsigned char)(20 * x + 3 * y + c);
    attn_image drawn = {.width = WIDTH, .height = HEIGHT, .channels = 3, .pixels = &pixels[0][0][0]};
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);

    attn_image image = {0}, grey = {0}, small = {0}, none = {0};
    snprintf(path, sizeof path, "%s/image.png", argc > 1 ? argv[1] : ".");
    CHECK(attn_image_write(context, &drawn, path) == ATTN_OK);
    CHECK(attn_image_read(&image, context, path, NULL) == ATTN_OK);
    CHECK(image.width == WIDTH && image.height == HEIGHT && image.channels == 3);
    CHECK(memcmp(image.pixels, pixels, sizeof pixels) == 0);
    CHECK(attn_image_read(&grey, context, path, &(attn_image_options){.channels = 1}) == ATTN_OK);
    CHECK(grey.channels == 1);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            const unsigned char *p = pixels[y][x];
            CHECK(grey.pixels[y * WIDTH + x] == (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) / 65536);
        }

    /* 12 x 8 to 6 x 6: the height falls to 6, the width to 9, and the middle 6 columns stay. */
    CHECK(attn_image_fit(&small, context, &image, 6, 6, ATTN_IMAGE_FILTER_BILINEAR) == ATTN_OK);
    CHECK(small.width == 6 && small.height == 6 && small.channels == 3);
    for (int x = 1; x < 6; x++)
        CHECK(small.pixels[x * 3] > small.pixels[(x - 1) * 3]); /* still rises to the right */

    float planes[3][HEIGHT][WIDTH];
    const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    attn_image_planes(&image, mean, std, &planes[0][0][0]);
    for (int c = 0; c < 3; c++)
        CHECK(fabs(planes[c][5][7] - (pixels[5][7][c] / 255.0 - mean[c]) / std[c]) < 1e-5);

    /* What is not a picture, or too large, is refused as a whole. */
    CHECK(attn_image_read(&none, context, path, &(attn_image_options){.limit = 95}) == ATTN_ERROR_UNSUPPORTED);
    CHECK(none.pixels == NULL);
    snprintf(path, sizeof path, "%s/image.txt", argc > 1 ? argv[1] : ".");
    CHECK(attn_image_write(context, &drawn, path) == ATTN_ERROR_ARGUMENT);
    CHECK(attn_file_write(context, path, "no picture", 10) == ATTN_OK);
    CHECK(attn_image_read(&none, context, path, NULL) == ATTN_ERROR_FORMAT);
    printf("image: %s\n", attn_context_error(context));

    attn_image_free(context, &image);
    attn_image_free(context, &grey);
    attn_image_free(context, &small);
    attn_context_destroy(context);
    return 0;
}
