/* SPDX-License-Identifier: MIT
 * Reads PDB files, which have fixed columns (wwPDB, "Atomic Coordinate Entry Format" 3.3). */
#include "data/lines.h"
#include "data/structure.h"

#include <inttypes.h>

/* Copies columns [begin, end) of a line without spaces. Columns are counted from 0. If the text is too long, it is
 * cut. */
static void cut(char *out, size_t room, const char *line, size_t length, size_t begin, size_t end)
{
    size_t n = 0;
    for (size_t i = begin; i < end && i < length; i++) {
        if (line[i] != ' ' && n + 1 < room)
            out[n++] = line[i];
    }
    out[n] = 0;
}

/* Fails with the message that columns [begin, end) of the line do not contain a `what`. */
static attn_status fail(const attn__structure_reading *r, const char *line, int begin, int end, const char *what)
{
    return attn__fail(r->structure->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": columns %d to %d are no %s: '%.*s'",
                      r->source, r->line, begin + 1, end, what, end - begin, line + begin);
}

static attn_status take_atom(attn__structure_reading *r, const char *line, size_t length)
{
    attn__atom atom = {.hetero = line[0] == 'H', .insertion = ' '};
    double number;
    if (length < 54)
        return attn__fail(r->structure->context, ATTN_ERROR_FORMAT,
                          "%s:%" PRId64 ": an atom's record of less than 54 columns", r->source, r->line);
    cut(atom.name, sizeof atom.name, line, length, 12, 16);
    cut(atom.residue, sizeof atom.residue, line, length, 17, 20);
    cut(atom.chain, sizeof atom.chain, line, length, 21, 22);
    cut(atom.key, sizeof atom.key, line, length, 21, 22);
    atom.rank = (attn__rank){1, line[16]};
    if (length >= 60 && attn__decimal(line + 54, 6, &number))
        atom.rank.occupancy = number;
    atom.insertion = line[26];
    if (!attn__decimal(line + 22, 4, &number))
        return fail(r, line, 22, 26, "residue number");
    atom.number = (int64_t)number;
    for (size_t i = 0; i < 3; i++) {
        if (!attn__decimal(line + 30 + 8 * i, 8, &atom.at[i]))
            return fail(r, line, 30, 54, "coordinates");
    }
    return attn__structure_add(r, &atom);
}

/* Reads a SEQRES line. It contains up to thirteen residues of the sequence of a chain. */
static attn_status take_sequence(attn__structure_reading *r, const char *line, size_t length)
{
    char chain[ATTN__CHAIN_NAME], residue[8];
    attn_status status = ATTN_OK;
    cut(chain, sizeof chain, line, length, 11, 12);
    for (size_t at = 19; at < 70 && at < length && status == ATTN_OK; at += 4) {
        cut(residue, sizeof residue, line, length, at, at + 3);
        if (residue[0])
            status = attn__structure_add_to_sequence(r, chain, residue);
    }
    return status;
}

static bool is(const char *line, size_t length, const char *record)
{
    size_t n = strlen(record);
    return length >= n && memcmp(line, record, n) == 0;
}

attn_status attn__structure_read_pdb(attn__structure_reading *r, const char *text, size_t size)
{
    const char *line;
    size_t length, at = 0;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && attn__next_line(text, size, &at, &line, &length)) {
        r->line++;
        if (is(line, length, "ENDMDL"))
            break; /* stop at the end of the first model, because other models are not used */
        if (is(line, length, "ATOM  ") || is(line, length, "HETATM"))
            status = take_atom(r, line, length);
        if (is(line, length, "SEQRES"))
            status = take_sequence(r, line, length);
    }
    return status;
}
