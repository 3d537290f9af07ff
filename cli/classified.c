/* SPDX-License-Identifier: MIT */
#include "classified.h"

static void invert(attn_image *image)
{
    int64_t n = image->width * image->height * image->channels;
    for (int64_t i = 0; i < n; i++)
        image->pixels[i] = (unsigned char)(255 - image->pixels[i]);
}

attn_status cli_classified_read(const cli_call *cli, const char *path, attn_image *image)
{
    attn_image_options how = {.channels = (int)cli_int(cli, "channels")};
    attn_status status = attn_image_read(image, cli->context, path, &how);
    if (status == ATTN_OK && cli_flag(cli, "invert"))
        invert(image);
    return status;
}
