#!/bin/sh
# A shell script that asks before each step and reports what came of it.
#   flyball run --no-tty --budget 0.10 --name sh-worker -- sh examples/report/worker.sh
# Without flyball around it, it just works: no NOTIFY_SOCKET, no reports.

report() {
    [ -z "$NOTIFY_SOCKET" ] || flyball report "$@"
}

for file in one two three four five six; do
    report ask --pattern summarise --call "$file" --cost 0.03
    case $? in
        0) ;;
        10) continue ;;                        # not this step: make another one
        *) echo "told to wrap up"; exit 0 ;;   # 11 finish, 12 stop, 2 nobody answered
    esac
    summary="summary of $file"                 # here the work is done
    report step --pattern summarise --call "$file" --result "$summary" --spent 0.02
    case $? in 0) ;; *) echo "told to wrap up after $file"; exit 0 ;; esac
    report progress "$file done"
    echo "$summary"
done
