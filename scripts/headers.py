# SPDX-License-Identifier: MIT
"""The public headers, read: which comment speaks of which function.

A header is made of paragraphs, parted by empty lines.  A comment speaks of the declarations under it to the next
comment or the paragraph's end; one behind a declaration speaks of that one.  Lines of dashes name sections.
"""
import re

COMMENT = re.compile(r"/\*.*?\*/", re.S)
SECTION = re.compile(r"^/\* -{10,} (.+?) \*/$")


def plain(comment):
    """The text of a comment without its stars."""
    inner = comment[2:-2]
    return "\n".join(re.sub(r"^ ?\* ?", "", line) if i else line.strip() for i, line in
                     enumerate(inner.split("\n"))).strip("\n ")


def statements(text):
    """Pieces of a header: ("comment", text), ("section", name), ("blank", ""), ("code", declaration)."""
    i = 0
    while i < len(text):
        if text[i] == "\n":
            if text[i + 1:i + 2] == "\n":
                yield "blank", ""
            i += 1
        elif text.startswith("/*", i):
            comment = COMMENT.match(text, i).group()
            section = SECTION.match(comment)
            behind = text.rfind("\n", 0, i) + 1 != i and text[text.rfind("\n", 0, i) + 1:i].strip() != ""
            yield ("section", section.group(1)) if section else ("behind" if behind else "comment", comment)
            i += len(comment)
        elif text[i] == "#":
            end = i
            while True:  # a directive, with the lines that it continues on
                end = text.find("\n", end)
                if text[end - 1] != "\\":
                    break
                end += 1
            yield "directive", text[i:end]
            i = end
        elif text[i] in " \t":
            i += 1
        else:
            end, depth = i, 0
            while depth or text[end] != ";":  # to the semicolon outside of braces and comments
                if text.startswith("/*", end):
                    end = text.find("*/", end) + 1
                elif text.startswith('extern "C" {', end):
                    end += len('extern "C" {') - 1
                    break
                elif text[end] == "}" and depth == 0:
                    break
                else:
                    depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            yield "code", text[i:end + 1]
            i = end + 1


class Function:
    def __init__(self, code, line, header, section, comments):
        self.code, self.line, self.header, self.section, self.comments = code, line, header, section, comments
        self.name = re.search(r"(attn_\w+)\(", code).group(1)
        self.returns = re.sub(r"ATTN_API|\s+", " ", code[:code.index(self.name)]).strip()

    @property
    def doc(self):
        return "\n".join(plain(c) for c in self.comments)


def functions(path):
    """Every public function of a header, and the header's own comment."""
    text = open(path, encoding="utf-8").read()
    found, spoken, section, head, at = [], [], "", None, 0
    for kind, piece in statements(text):
        if piece and kind != "section":
            at = text.index(piece, at)
        if kind == "blank":
            spoken = []
        elif kind == "section":
            section, spoken = piece, []
        elif kind == "comment":
            head = head or piece
            spoken = [piece]
        elif kind == "behind" and found:
            found[-1].comments.append(piece)
        elif kind == "code" and piece.startswith("ATTN_API"):
            found.append(Function(piece, text[:at].count("\n") + 1, path, section, list(spoken)))
    return found, plain(head)
