#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# bench/pair compares two builds. The commands here print times as `attn bench attend --json` does.
. tests/support/cli.sh
command -v python3 > /dev/null || { echo "skipped: needs python3"; exit 77; }
pair="$root/bench/pair"

# build NAME FACTOR: a command whose times for the problem "slow" are multiplied by FACTOR, and whose other times vary.
build() {
    cat > "$1" << EOT
#!/bin/sh
for problem; do :; done
turn=\$(cat turns 2> /dev/null || echo 0)
echo \$((turn + 1)) > turns
[ "\$problem" = broken ] && { echo "there is no such problem" >&2; exit 2; }
awk -v turn="\$turn" -v problem="\$problem" 'BEGIN {
    ms = problem == "slow" ? $2 * (1 + turn % 3 / 1000) : problem == "noisy" ? 1 + turn * 7 % 5 / 10 : 1 + turn % 2 / 1000
    printf "[{\"direction\": \"forward\", \"ms\": %.6f, \"solver\": \"%s\"}]\n", ms, problem == "slow" ? "$1" : "flash"
}'
EOT
    chmod +x "$1"
}
build before 1
build after 1.1

code=0
"$pair" ./before ./after --most 12 slow same noisy > out.txt || code=$?
[ $code = 1 ] || fail "a slower build: exit status $code: $(cat out.txt)"
grep -qE '^slow +forward +8 +1\.1[0-9]+ +1\.(09|10)[0-9]\.\.1\.10[0-9] +before -> after slower$' out.txt || fail "slow: $(cat out.txt)"
grep -qE '^same +forward +8 +(1\.00|0\.99)[0-9] +[0-9.]+ +flash$' out.txt || fail "same: $(cat out.txt)"
grep -qE '^noisy +forward +12 .* undecided$' out.txt || fail "noisy: $(cat out.txt)"
grep -qE '^slower by more than 2 %:$' out.txt && grep -qE '^  slow forward: 1\.10' out.txt || fail "the summary: $(cat out.txt)"

"$pair" ./before ./after --percent 20 slow > out.txt || fail "slower by less than the limit: $(cat out.txt)"
"$pair" ./after ./before slow > out.txt || fail "a faster build: $(cat out.txt)"
"$pair" ./before ./after broken > out.txt 2>&1 && fail "a problem that no build can run: $(cat out.txt)"
grep -q 'there is no such problem' out.txt || fail "the error: $(cat out.txt)"

# The real command's output is read, and its problems are found.
cp "$ATTN_BUILD/attn-bench" . && cp "$ATTN_BUILD/attn" real && "$pair" "$ATTN_BUILD/attn" ./real --seconds 0 --most 8 b1h1q8k8d8 > out.txt || [ $? = 1 ] || fail "$(cat out.txt)"
grep -qE '^b1h1q8k8d8 +backward ' out.txt || fail "the real command: $(cat out.txt)"
python3 -c 'import runpy, sys
problems = runpy.run_path(sys.argv[1])["all_problems"]()
assert {"b1h8q1024k1024d64", "addb1h4q128k128d32:pad"} <= set(problems), problems' "$pair" || fail "the list of problems"
exit $failed
