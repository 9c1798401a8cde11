#!/bin/sh
# A session as a shell script: one line of its checkpoint for each source that is read.
#   cd examples/sessions && flyball up
# It pauses after every second source, as if an API had enough of it for now. Without flyball around it, it just works.

report() {
    [ -z "$NOTIFY_SOCKET" ] || flyball report "$@"
}

done_before=0
[ -z "$FLYBALL_CHECKPOINT" ] || done_before=$(wc -l < "$FLYBALL_CHECKPOINT")
[ -z "$FLYBALL_RESUMED" ] || echo "resumed after $done_before sources"

shift "$done_before"
for source in "$@"; do
    sleep "${WORK_SECONDS:-1}"                           # here the work is done
    echo "read $source"
    [ -n "$FLYBALL_CHECKPOINT" ] || continue
    # A new file takes the place of the old one, so that nobody ever sees half of it.
    { cat "$FLYBALL_CHECKPOINT"; echo "$source"; } > "$FLYBALL_CHECKPOINT.part"
    mv "$FLYBALL_CHECKPOINT.part" "$FLYBALL_CHECKPOINT"
    report checkpoint --stage "$source" || exit 1        # told to stop, or it could not be kept
    shift
    if [ $(($(wc -l < "$FLYBALL_CHECKPOINT") % 2)) -eq 0 ] && [ $# -gt 0 ]; then
        report pause rate_limit --after "${PAUSE:-5s}"
        exit 0
    fi
done
echo "done"
