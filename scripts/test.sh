#!/usr/bin/env bash
# Builds, runs every test of the workspace, fuzzes for a few seconds, and closes with what was skipped and one line:
#     N passed, N failed, N skipped
# Tests report what they leave out by appending "SKIP: reason" to the file named in PENSTOCK_SKIPS.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PATH=$PATH:/usr/sbin:/sbin

scripts/packages.sh build test || exit 1

mkdir -p target
log=target/test.log
export PENSTOCK_SKIPS=$PWD/target/skips
: >"$log"
: >"$PENSTOCK_SKIPS"
scripts/haproxy-3.0.sh
failed_steps=()

step() { # name, command...: run it, keep what it says, remember whether it failed
    local name=$1 from
    shift
    echo "== $name"
    from=$(($(wc -l <"$log") + 1))
    # Into the file and not through a pipe: a process that a failed test leaves behind would hold a pipe open for ever.
    "$@" >>"$log" 2>&1 &
    running=$!
    tail -n +$from -s 0.2 -f --pid=$running "$log"
    wait $running || failed_steps+=("$name")
}
running=
trap '[ -z "$running" ] || kill $running 2>/dev/null; exit 130' INT TERM

step build cargo build --workspace --all-targets
if [ ${#failed_steps[@]} -gt 0 ]; then
    echo "the build failed; no test ran"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
# The bound is a safety net against a test that never ends, well above what the whole run takes.
step tests timeout --kill-after=10 1800 cargo test --workspace --no-fail-fast
# A test that failed beside others is judged once more, alone, and named below if it passes: with many failures, or after a crash, that
# says nothing. Scenarios are judged again by their own runner.
mapfile -t lost < <(awk '
    /^ +Running / { kind = $3 ~ /lib.rs/ ? "--lib" : $3 ~ /main.rs/ ? "--bins" : ""; name = $2; sub(/\/main\.rs$/, "", name); gsub(/^.*\/|\.rs$/, "", name)
                    target = kind != "" ? kind : "--test " name }
    /^test .* \.\.\. FAILED$/ && target != "--test differential" { print target, $2 }' "$log")
recovered=()
if [ ${#lost[@]} -gt 0 ] && [ ${#lost[@]} -le 5 ]; then
    for test in "${lost[@]}"; do
        # shellcheck disable=SC2086 # the target may be two words
        if cargo test --workspace ${test% *} -- --exact "${test##* }" >target/again.log 2>&1 && grep -q '^test .* \.\.\. ok$' target/again.log; then
            recovered+=("$test")
        fi
    done
fi
[ ! -d fuzz ] || FUZZ_SECONDS=${FUZZ_SECONDS:-3} step fuzz scripts/fuzz.sh

# cargo prints one "test result:" line a test binary; scripts/fuzz.sh and the scenario runner print the same line.
read -r passed failed ignored < <(awk '
    /^test result:/ { for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
    END { print p+0, f+0, s+0 }' "$log")
failed=$((failed - ${#recovered[@]}))
passed=$((passed + ${#recovered[@]}))
if [ ${#recovered[@]} -gt 0 ] && [ "$failed" = 0 ]; then
    mapfile -t failed_steps < <(printf '%s\n' "${failed_steps[@]}" | grep -vx tests)
fi
skips=$(sort "$PENSTOCK_SKIPS" | uniq -c)
skipped=$((ignored + $(grep -c . "$PENSTOCK_SKIPS")))
# A step that dies without counting its failure (a crash, a timeout, a compile error) is a failure all the same.
if [ ${#failed_steps[@]} -gt 0 ] && [ "$failed" = 0 ]; then failed=${#failed_steps[@]}; fi

echo
if [ -n "$skips" ]; then echo "skipped (count, reason):"; echo "$skips"; fi
if [ ${#recovered[@]} -gt 0 ]; then
    echo "failed beside others and passed alone, which is a fault of the test or of the program all the same:"
    printf '    %s\n' "${recovered[@]}"
fi
if [ "$failed" -gt 0 ]; then
    echo "failed:"
    grep -E '^test .* \.\.\. FAILED$' "$log" || true
    [ ${#failed_steps[@]} = 0 ] || printf 'step %s\n' "${failed_steps[@]}"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
