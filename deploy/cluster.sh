#!/bin/sh
# Three stores and two gateways on this machine, in ./weir-cluster, until Ctrl-C: to try a cluster,
# not to run one (docs/cluster.md says how that is done).
set -eu
umask 077
home=${1:-weir-cluster}
mkdir -p "$home"
[ -s "$home/secret" ] || od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$home/secret"
peers=1@127.0.0.1:7401,2@127.0.0.1:7402,3@127.0.0.1:7403

store() {
    echo "--data $home/$1 --set node.cluster.number=$1 --set node.store.port=740$1" \
        "--set node.admin.port=1567$((2 + $1)) --set node.cluster.secret_file=$home/secret" \
        "--set node.cluster.peers=$(echo "$peers" | tr , '\n' | grep -v "^$1@" | paste -sd, -)"
}

# The ports of gateway 1 end as Weir's own do; those of gateway 2 are higher by ten.
gateway() {
    up=$((10 * ($1 - 1)))
    echo "--data $home/gateway$1 --set node.cluster.secret_file=$home/secret" \
        "--set node.cluster.peers=$peers --set node.key_file=$home/secrets.key" \
        "--set node.admin.port=$((15683 + up)) --set sqs.port=$((9324 + up))" \
        "--set sqs.listeners.tls.port=$((9325 + up))" \
        "--set amqp.port=$((5672 + up)) --set amqp.listeners.tls.port=$((5671 + up))" \
        "--set mqtt.port=$((1883 + up)) --set mqtt.listeners.tls.port=$((8883 + up))" \
        "--set mqtt.listeners.websocket.port=$((8083 + up))" \
        "--set rocketmq.port=$((8081 + up)) --set rocketmq.listeners.tls.port=$((8082 + up))"
}

await() {
    until [ -s "$1" ]; do
        # shellcheck disable=SC2086
        kill -0 $pids 2>/dev/null || { cat "$home"/*.log >&2; exit 1; }
        sleep 0.2
    done
}

# shellcheck disable=SC2046 # the flags are words
[ -e "$home/1/cluster.json" ] || weir cluster init $(store 1)
pids=
trap 'kill $pids 2>/dev/null || :; wait' EXIT
trap 'exit 0' INT TERM
for number in 1 2 3; do
    rm -f "$home/$number/admin.url"
    weir store $(store $number) 2>"$home/store$number.log" &
    pids="$pids $!"
done
for number in 1 2 3; do
    await "$home/$number/admin.url"
done
for number in 2 3; do
    weir cluster join --data "$home/$number" --same-host
done
weir cluster rebalance --data "$home/1" -o name >"$home/rebalanced.log"
for number in 1 2; do
    weir gateway $(gateway $number) 2>"$home/gateway$number.log" &
    pids="$pids $!"
done
for number in 1 2; do
    until grep -qs '^  admin ' "$home/gateway$number.log"; do
        # shellcheck disable=SC2086
        kill -0 $pids 2>/dev/null || { cat "$home"/*.log >&2; exit 1; }
        sleep 0.2
    done
done
weir cluster status --data "$home/1"
for number in 1 2; do
    grep -v '^{' "$home/gateway$number.log" >&2
done
echo "Logs: $home/*.log. Ctrl-C ends all five." >&2
wait
