/* SPDX-License-Identifier: MIT
 *
 * amx.h - sets up AMX for eight tiles of 16 rows of 64 bytes.  Include within a region of the instruction set.  The
 * tiles are state of the thread, so other code that uses AMX must not run on the thread until the tiles are released.
 */
#ifndef ATTN_SIMD_AMX_H
#define ATTN_SIMD_AMX_H

static void begin(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

static void end(void) { _tile_release(); }

#endif
