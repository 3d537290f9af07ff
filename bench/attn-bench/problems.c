/* SPDX-License-Identifier: MIT
 *
 * The default problems of `attn bench attend`.
 */
#include "problems.h"

#include "attn/attn.h"

#include <stddef.h>

const char *const bench_problems_all[] = {
    "b1h8q1024k1024d64",
    "b1h8q2048k2048d64",
    "b1h8q4096k4096d64",
    "b1h8q1024k1024d128",
    "b1h8q2048k2048d128",
    "b1h8q4096k4096d128",
    /* ViT, causal attention, a single query, small problems of translators, and grouped-query attention */
    "b8h12q197k197d64",
    "b1h8q2048k2048d64:causal",
    "b8h8q1k2048d64",
    "b128h4q10k10d64",
    "b64h8q32k32d64",
    "b1h32q1024k1024d128g8",
    "b1h8q1024k1024d64:bf16",
    "b1h8q2048k2048d64:bf16",
    "b1h8q4096k4096d64:bf16",
    "b8h12q197k197d64:bf16",
    "axis256x256c64h8:row",
    "axis256x256c64h8:col",
    "window256x256w7h8d8",
    "window256x256w7h8d8:zero,rel",
    "tied128x256h12d64",
    /* bias, masks, dropout and softcap in each solver: short sequences, a single query, many queries, windows, tied
     * rows, f64 and additive scores */
    "b8h8q128k128d8:bias",
    "b8h8q128k128d8:dropout=0.1",
    "b8h8q128k128d8:pad,softcap=30",
    "b64h8q32k32d64:bias",
    "b64h8q32k32d64:pad",
    "b64h8q32k32d64:dropout=0.1",
    "b8h8q1k2048d64:mask,bias",
    "b8h8q1k2048d64:dropout=0.1",
    "b2h32q1k2048d128g8:pad",
    "b1h8q512k512d64:bias",
    "b1h8q512k512d64:mask",
    "b1h8q512k512d64:dropout=0.1",
    "b1h8q512k512d64:softcap=30",
    "b1h8q512k512d64:pad,bias,dropout=0.1",
    "b1h8q512k512d64:rel",
    "b1h8q512k512d64:bf16,bias",
    "window128x128w7h8d8:pad",
    "window128x128w7h8d8:bias",
    "tied64x128h8d32:bias",
    "b1h8q256k256d64:f64,bias",
    "addb1h4q128k128d32:pad",
    NULL,
};

const char *const bench_problems_quick[] = {
    "b1h8q256k256d64",
    "b2h4q197k197d64:causal",
    "b16h4q10k10d64:lens",
    "b1h4q128k128d64:bf16",
    "axis32x32c64h8:col",
    "window32x32w5h2d8",
    "tied8x32h4d16",
#define ATTN_X(NAME, name) "b1h2q64k64d16:" #name,
    ATTN_SCORES(ATTN_X) /* every kind of score in ATTN_SCORES */
#undef ATTN_X
    NULL,
};
