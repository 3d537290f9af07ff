#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints each link of a folder's documents that leads to no file:   tests/support/dead_links.sh FOLDER
# The exit status is 1 if there is one, or if the folder has no documents.
set -eu
cd "$1"
dead=$(find . -name '*.md' | while read -r page; do
    { grep -oE '\]\([^)#]+' "$page" || true; } | sed 's/](//' | { grep -vE '^(https?:|mailto:)' || true; } | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "${page#./} links $link, which is not installed"
    done
done)
[ -z "$dead" ] || { echo "$dead"; exit 1; }
find . -name '*.md' | grep -q . || { echo "$1 has no documents"; exit 1; }
