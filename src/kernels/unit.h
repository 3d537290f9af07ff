/* SPDX-License-Identifier: MIT
 *
 * unit.h - the state of the matrix unit (AMX) for eight tiles of 16 rows of 64 bytes.  Include within a region of the
 * instruction set.  The state belongs to the thread: other code that uses the unit, oneDNN's for instance, must not come
 * between.
 */
#ifndef ATTN_KERNELS_UNIT_H
#define ATTN_KERNELS_UNIT_H

static void begin(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

static void end(void)
{
    _tile_release();
}

#endif
