#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The page to explore in a browser: it opens, choices and keys work, and it tells the weights that it was given.
# Passed over where there is no Chromium.
set -eu
build=${ATTN_BUILD:-build}
browser=$(command -v chromium || command -v chromium-browser || true)
[ -n "$browser" ] || { echo "no Chromium: passed over"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "explorer: $1" >&2; exit 1; }

ATTN_PLOT_DIR="$dir" "$build/tests/test_plot" >/dev/null 2>&1
[ -s "$dir/maps.html" ] || fail "no page"
window=800,900
# drive PAGE SCRIPT: what the script noted while the page was open, in $dir/seen.
drive() {
    sed "/^<\/body>/e echo '<script>'; cat '$dir/keys.js' '$2'; echo '</script>'" "$1" > "$dir/driven.html"
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=8000 --allow-file-access-from-files \
        --user-data-dir="$dir/profile" --window-size="$window" --dump-dom "file://$dir/driven.html" > "$dir/dom.html" \
        2> "$dir/log" || fail "the browser failed: $(tail -1 "$dir/log")"
    sed -n '/<pre id="seen">/,/<\/pre>/p' "$dir/dom.html" | sed 's/<[^>]*>//g' > "$dir/seen"
}
cat > "$dir/keys.js" <<'JS'
const press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const wait = () => new Promise(done => setTimeout(done, 150));
const told = () => document.getElementById("told").textContent;
const best = () => [...document.querySelectorAll("#list tr")].map(r => r.cells[0].textContent + " " + r.cells[1].textContent);
const seen = [];
function leave() {
  const note = document.createElement("pre");
  note.id = "seen"; note.textContent = seen.join("\n");
  document.body.append(note);
}
JS
# A user at the keys: the first head, the fourth query, the matrix, dark, another map.
cat > "$dir/user.js" <<'JS'
(async () => {
  await wait();
  seen.push("start: " + document.querySelectorAll("#stage svg line").length + " lines");
  press("]"); await wait();
  for (let i = 0; i < 4; i++) press("ArrowDown");
  seen.push("head " + (document.getElementById("head").selectedIndex + 1) + ": " + told() + ": " + best()[0] + ", " + best()[1]);
  seen.push("scale: " + document.getElementById("peak").textContent);
  document.getElementById("head").selectedIndex = document.getElementById("head").length - 1;
  document.getElementById("head").dispatchEvent(new Event("change")); await wait();
  press("t"); await wait();
  seen.push("stretched: " + document.getElementById("peak").textContent);
  press("t"); await wait();
  seen.push("words: " + [...document.querySelectorAll("#stage svg text")].slice(0, 2).map(t => t.textContent).join(", "));
  press("v"); await wait();
  seen.push("matrix: " + document.querySelectorAll("#stage canvas").length);
  press("d");
  seen.push("dark: " + document.documentElement.classList.contains("dark"));
  const map = document.getElementById("map");
  map.selectedIndex = 1; map.dispatchEvent(new Event("change")); await wait();
  document.getElementById("head").selectedIndex = 3;
  document.getElementById("head").dispatchEvent(new Event("change")); await wait();
  press("ArrowDown");
  seen.push("causal: " + best().length + " keys: " + best()[0]);
  seen.push("svg: " + drawingAsSvg().startsWith("<svg xmlns="));
  leave();
})();
JS
drive "$dir/maps.html" "$dir/user.js"
# At the start 36 lines less the six whose mean weight is below 0.4 % of the scale: queries 1 to 3 to the last keys.
# Head 1 of the first map has weight exp(-(q - k - 3)^2 / 2): query 4 of 1 looks at key 1 with 1, at key 2 with 0.607.
# Head 4 of the causal map, exp(-(q - k + 4)^2 / 2): query 1 sees key 1 alone.
cat > "$dir/expected" <<'TEXT'
start: 30 lines
head 1: Query moi attends to: i'm 100 %, home 61 %
scale: 100 %, the largest of all heads
stretched: 59 %, the largest of this map
words: Queries, Keys
matrix: 1
dark: true
causal: 1 keys: je 0.0 %
svg: true
TEXT
diff "$dir/expected" "$dir/seen" || fail "the page told something else"

# Over a picture, whose middle is the first query: a window at the corner, of which part is outside; the token as a
# button, a cell by a click; a cross.  Colours of cells are read back from the canvas: that of the largest weight is
# redder.
cat > "$dir/user.js" <<'JS'
const choose_ = i => { const map = document.getElementById("map"); map.selectedIndex = i; map.dispatchEvent(new Event("change")); };
const canvas = () => document.querySelector("#stage canvas");
function redness(rows, columns, row, column) {
  const c = canvas(), x = (column + 0.3) * c.width / columns, y = (row + 0.3) * c.height / rows;
  const p = c.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data;
  return p[0] - p[1];
}
function tap(rows, columns, row, column) {
  const box = canvas().getBoundingClientRect();
  canvas().dispatchEvent(new MouseEvent("click", { bubbles: true, clientX: box.left + (column + 0.5) * box.width / columns,
    clientY: box.top + (row + 0.5) * box.height / rows }));
}
(async () => {
  await wait(); await wait();
  seen.push("start: " + told() + ": " + best()[0] + ", layer " + document.getElementById("layer").selectedOptions[0].textContent);
  for (const key of ["ArrowUp", "ArrowLeft", "ArrowLeft"]) press(key);
  seen.push("corner: " + told() + ": " + best()[0] + ", " + best()[2]);
  seen.push("redder: " + (redness(3, 4, 1, 1) > redness(3, 4, 0, 1) + 20) + ", outside: " + (redness(3, 4, 2, 3) < 8));
  choose_(1); await wait();
  seen.push("chip: " + told() + ": " + best()[0] + ", " + document.querySelector(".chips button").textContent);
  tap(2, 2, 1, 0);
  seen.push("tap: " + told() + ": " + best()[0]);
  choose_(2); await wait();
  seen.push("cross: " + told() + ": " + best()[0] + ", " + best()[1]);
  leave();
})();
JS
drive "$dir/picture.html" "$dir/user.js"
# Window 3 x 3, tap k with weight k / 36: from (1,1) of 3 x 4 cells taps 4, 5, 7, 8 are inside.  Cross from (2,3): second
# cell of the row, third of the column.
cat > "$dir/expected" <<'TEXT'
start: Query row 2, col 3 attends to: row 3, col 4 22 %, layer 3
corner: Query row 1, col 1 attends to: row 2, col 2 22 %, outside 17 %
redder: true, outside: true
chip: Query class token attends to: class token 60 %, class token
tap: Query row 2, col 1 attends to: row 2, col 1 60 %
cross: Query row 2, col 3 attends to: row 2, col 2 ↔ 90 %, row 3, col 3 ↕ 80 %
TEXT
diff "$dir/expected" "$dir/seen" || fail "the page over a picture told something else"

# A matrix of 140 x 140 has names along both of its sides, with a tick for each: every fourth, as there
# is room for.
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (140, 140), }"
    awk 'BEGIN { for (i = 0; i < 4 * 140 * 140; i++) printf "%c", i % 4 == 3 ? 60 : 1 }'
} > "$dir/large.npy"
"$build/attn" show "$dir/large.npy" -o "$dir/large.html" > /dev/null || fail "no page of a large matrix"
cat > "$dir/user.js" <<'JS'
(async () => {
  await wait();
  const pen = CanvasRenderingContext2D.prototype, write = pen.fillText, fill = pen.fillRect;
  let names = 0, ticks = 0;
  pen.fillText = function (text) {
    if (text === "Keys") names = ticks = 0;  // drawn anew
    else if (text !== "Queries") names++;
    write.apply(this, arguments);
  };
  pen.fillRect = function () { ticks++; fill.apply(this, arguments); };
  press("v"); await wait(); press("v"); await wait();
  if (!document.querySelector("#stage canvas")) { press("v"); await wait(); }
  seen.push(names + " names, " + ticks + " ticks");
  leave();
})();
JS
drive "$dir/large.html" "$dir/user.js"
[ "$(cat "$dir/seen")" = "70 names, 70 ticks" ] || fail "a large matrix: $(cat "$dir/seen")"

# 1,280 pixels wide: both pages begin with a small map for each head of each layer; a click enlarges one, and shows the
# lines or the picture to the left of the matrix.
cat > "$dir/user.js" <<'JS'
const box = id => document.getElementById(id).getBoundingClientRect();
const fits = () => document.documentElement.scrollWidth <= innerWidth;
(async () => {
  await wait(); await wait();
  const tiles = () => [...document.querySelectorAll(".tile")];
  const drawn = canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(x => x > 0 && x < 255);
  seen.push(tiles().length + " maps, drawn: " + tiles().filter(t => drawn(t.firstChild)).length + ", fit: " + fits());
  seen.push("svg: " + (drawingAsSvg().match(/<image/g) || []).length + " maps");
  const sees = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth; };
  for (const side of [".names:not(.keys)", ".keys"]) {
    const words = document.querySelector(side);
    seen.push("words in sight: " + (words ? [...words.children].filter(sees).map(e => e.textContent).join(" ") : ""));
  }
  seen.push("used: " + (Math.max(...tiles().map(t => t.getBoundingClientRect().right)) > 0.8 * innerWidth));
  tiles()[1].click(); await wait();
  seen.push("head " + (document.getElementById("head").selectedIndex + 1) + ": beside: "
    + (Math.abs(box("stage").top - box("beside").top) < 2 && box("stage").right < box("beside").left) + ", fit: " + fits());
  press("a"); await wait();
  seen.push(tiles().filter(t => t.getAttribute("aria-current") === "true").map(t => t.getAttribute("aria-label")).join());
  leave();
})();
JS
window=1280,900
{ drive "$dir/maps.html" "$dir/user.js"; cat "$dir/seen"; drive "$dir/picture.html" "$dir/user.js"; cat "$dir/seen"; } > "$dir/wide"
cat > "$dir/expected" <<'TEXT'
8 maps, drawn: 8, fit: true
svg: 8 maps
words in sight: je suis chez moi . &lt;eos&gt;
words in sight: i'm home after an extraord… . &lt;eos&gt;
used: true
head 2: beside: true, fit: true
Encoder-decoder attention, Layer 1, head 2
4 maps, drawn: 4, fit: true
svg: 4 maps
words in sight: 
words in sight: 
used: true
head 2: beside: true, fit: true
Windows, Layer 3, head 2
TEXT
diff "$dir/expected" "$dir/wide" || fail "the page in a wide window told something else"
window=800,900

# 420 pixels wide, as a telephone: every view of both pages fits, and no control is outside.  Headless Chromium has no
# such window, so that the page is in a frame.
narrow() {
    cp "$1" "$dir/inner.html"
    cat > "$dir/frame.html" << 'HTML'
<body style="margin:0"><iframe id="f" src="inner.html" style="width:420px;height:900px;border:0"></iframe>
</body>
HTML
    cat > "$dir/user.js" << 'JS'
(async () => {
  await wait(); await wait();
  const page = document.getElementById("f").contentDocument;
  for (const button of page.querySelectorAll("#views button")) {
    button.click(); await wait();
    const wide = Math.max(page.documentElement.scrollWidth, ...[...page.querySelectorAll("button, select, .scale, .stage")]
      .map(e => Math.ceil(e.getBoundingClientRect().right)));
    seen.push(button.textContent + " fits: " + (wide <= 420 || wide));
  }
  leave();
})();
JS
    drive "$dir/frame.html" "$dir/user.js"
    cat "$dir/seen"
}
{ narrow "$dir/maps.html"; narrow "$dir/picture.html"; } > "$dir/fits"
printf '%s\n' "Lines fits: true" "Matrix fits: true" "Matrix fits: true" "Image fits: true" > "$dir/expected"
diff "$dir/expected" "$dir/fits" || fail "the page is wider than 420 pixels"
