/* SPDX-License-Identifier: MIT
 *
 * Implements `attn eval` for a generator: bits per dimension.
 */
#include "eval_images.h"
#include "foreign.h"

#include "attn/generate.h"
#include "apps/generator/generator.h"

static void print_score(const char *part, const attn_generator_score *s, bool videos)
{
    const char *things = videos ? "videos" : "images";
    char images[32];
    printf("part          %s, %s %s of %lld numbers\n", part, cli_count(s->images, images), things, (long long)s->dims);
    printf("model         %.4f bits per dimension\n", s->bits);
    printf("baseline      %.4f bits per dimension, independent pixels: each one's histogram in training, add-one\n",
           s->baseline);
    printf("speed         %.1f %s a second\n", s->images_per_second, things);
}

static int print_json(const cli_call *cli, const char *part, const attn_generator_score *s)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "part", part);
    attn_json_int(&json, "images", s->images);
    attn_json_int(&json, "dimensions", s->dims);
    attn_json_real(&json, "bits_per_dimension", s->bits);
    attn_json_real(&json, "baseline_bits_per_dimension", s->baseline);
    attn_json_real(&json, "images_per_second", s->images_per_second);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

int cli_eval_generator(const cli_call *cli, const char *data, attn_split part, const char *part_name)
{
    attn_generator *generator;
    attn_generator_score score;
    if (attn_generator_load(&generator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    if (attn_generator_evaluate(generator, data, part, &score) != ATTN_OK)
        code = cli_failed(cli, NULL);
    else if (cli->json)
        code = print_json(cli, part_name, &score);
    else
        print_score(part_name, &score, attn_generator_shape(generator).frames > 1);
    attn_generator_destroy(generator);
    return code;
}
