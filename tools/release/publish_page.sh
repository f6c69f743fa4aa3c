#!/usr/bin/env bash
# Create the page of a release with its files, notes, bill of materials and provenance.
#
# Variables: GITHUB_REF_NAME is the tag, GITHUB_REPOSITORY the owner and name of the repository, PROVENANCE the file that
# actions/attest wrote. The files are in dist and build/release.
set -euo pipefail
version=${GITHUB_REF_NAME#v}
cp "$PROVENANCE" "build/release/tpuconvert-$version.intoto.jsonl"
cp build/release/tpuconvert.cdx.json "build/release/tpuconvert-$version.cdx.json"
gh release create "$GITHUB_REF_NAME" dist/* "build/release/tpuconvert-$version.cdx.json" \
  "build/release/tpuconvert-$version.intoto.jsonl" --repo "$GITHUB_REPOSITORY" --verify-tag \
  --notes-file build/release/notes.md
