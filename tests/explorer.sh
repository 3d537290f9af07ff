#!/bin/sh
# SPDX-License-Identifier: MIT
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
# A user at the keys: the first head, the fourth query, the matrix, dark, another map.
cat > "$dir/user.js" <<'JS'
const press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const wait = () => new Promise(done => setTimeout(done, 150));
const told = () => document.getElementById("told").textContent;
const best = () => [...document.querySelectorAll("#list tr")].map(r => r.cells[0].textContent + " " + r.cells[1].textContent);
(async () => {
  const seen = [];
  await wait();
  seen.push("start: " + document.querySelectorAll("#stage svg line").length + " lines");
  press("]"); await wait();
  for (let i = 0; i < 4; i++) press("ArrowDown");
  seen.push("head " + (document.getElementById("head").selectedIndex + 1) + ": " + told() + ": " + best()[0] + ", " + best()[1]);
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
  const note = document.createElement("pre");
  note.id = "seen"; note.textContent = seen.join("\n");
  document.body.append(note);
})();
JS
sed "/^<\/body>/e echo '<script>'; cat '$dir/user.js'; echo '</script>'" "$dir/maps.html" > "$dir/driven.html"
timeout 60 "$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=8000 --user-data-dir="$dir/profile" \
    --dump-dom "file://$dir/driven.html" > "$dir/dom.html" 2> "$dir/log" || fail "the browser failed: $(tail -1 "$dir/log")"
sed -n '/<pre id="seen">/,/<\/pre>/p' "$dir/dom.html" | sed 's/<[^>]*>//g' > "$dir/seen"
# At the start 36 lines less the three whose mean weight is below 0.4 %: queries 1 and 2 to the last keys.
# Head 1 of the first map has weight exp(-(q - k - 3)^2 / 2): query 4 of 1 looks at key 1 with 1, at key 2 with 0.607.
# Head 4 of the causal map, exp(-(q - k + 4)^2 / 2): query 1 sees key 1 alone.
cat > "$dir/expected" <<'TEXT'
start: 33 lines
head 1: moi attends to: i'm 100 %, home 61 %
matrix: 1
dark: true
causal: 1 keys: je 0.0 %
svg: true
TEXT
diff "$dir/expected" "$dir/seen" || fail "the page told something else"
