# SPDX-License-Identifier: MIT
"""word_maps.py PIECES.html WORDS.html SENTENCE: the pages of `attn show` without and with --words.  The labels of the second
are whole words, and its weights those of the first: means over the pieces of a query, sums over those of a key."""
import base64
import json
import re
import sys
import zlib

SPACE = "\u2581"


def page(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    parts = dict(re.findall(r'<script type="[^"]*" id="([^"]*)">(.*?)</script>', text, re.S))
    return json.loads(parts["attn-page"])["maps"], parts


def heads(maps, parts, number, layer):
    """Of one map: a list of rows for each head, as parts of 1 and not of the head's peak."""
    m, data = maps[number], zlib.decompress(base64.b64decode(parts[f"w{number}-{layer}"]))
    size = m["rows"] * m["cols"]
    return [[[data[h * size + q * m["cols"] + k] / 255 * m["peaks"][layer][h] for k in range(m["cols"])] for q in range(m["rows"])]
            for h in range(m["heads"])]


def words(pieces):
    """Which word each piece belongs to; <bos> and <eos> are words, and pieces of spaces belong to the word after them."""
    numbers, n = [], -1
    for i, piece in enumerate(pieces):
        begins = i == 0 or piece == "<eos>" or pieces[i - 1] == "<bos>" or piece.startswith(SPACE)
        n += begins and (i == 0 or piece == "<eos>" or set(pieces[i - 1]) != {SPACE})
        numbers.append(n)
    return numbers


def main(of_pieces, of_words, sentence):
    (fine, fine_parts), (coarse, coarse_parts) = page(of_pieces), page(of_words)
    assert coarse[0]["keys"] == [*sentence.split(), "<eos>"], coarse[0]["keys"]
    assert len(fine) == len(coarse)
    joined = 0
    for number, (a, b) in enumerate(zip(fine, coarse)):
        rows, columns = words(a["queries"]), words(a["keys"])
        joined += len(rows) - b["rows"] + len(columns) - b["cols"]
        assert (rows[-1] + 1, columns[-1] + 1) == (b["rows"], b["cols"]), (a["queries"], b["queries"])
        for layer in range(a["layers"]):
            for x, y in zip(heads(fine, fine_parts, number, layer), heads(coarse, coarse_parts, number, layer)):
                for q in range(b["rows"]):
                    mine = [i for i, row in enumerate(rows) if row == q]
                    for k in range(b["cols"]):
                        wanted = sum(x[i][j] for i in mine for j, column in enumerate(columns) if column == k) / len(mine)
                        assert abs(wanted - y[q][k]) < 0.03, (a["name"], layer, q, k, wanted, y[q][k])
    assert joined > 0, "each word is one piece: nothing was tried"


main(*sys.argv[1:])
