#!/bin/sh
# Holds the network of a cluster: a bridge that connects the control plane, the nodes and this machine. It runs in a
# network namespace of its own, as a child of a process in the machine's. Everything ends with this process.
#
#   lan.sh PID-FILE LINK CONTROL-PLANE MACHINE [NETWORK=NODE-ADDRESS]...
set -eu
record=$1 link=$2 control_plane=$3 machine=$4
shift 4
ip link set lo up
ip link add lan0 type bridge
ip address add "$control_plane/24" dev lan0
ip link set lan0 up
ip link add "$link" type veth peer name machine
ip link set machine master lan0 up
ip link set "$link" netns "/proc/$PPID/ns/net"
nsenter --net="/proc/$PPID/ns/net" sh -ec 'ip address add "$2/24" dev "$1"; ip link set "$1" up' sh "$link" "$machine"
for route in "$@"; do ip route add "${route%=*}" via "${route#*=}" dev lan0 onlink; done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo $$ > "$record.new"
mv "$record.new" "$record"
exec sleep infinity
