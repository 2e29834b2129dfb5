#!/bin/sh
# A node: a process with namespaces of its own for mounts, processes, the network, the host name and cgroups. It
# connects the node to the LAN, hides what belongs to the machine, and waits. Everything ends with it.
#
#   node.sh NAME DIRECTORY CGROUP PID-FILE LAN-PID-FILE ADDRESS GATEWAY [POD-NETWORK=NODE-ADDRESS]...
set -eu
name=$1 directory=$2 cgroup=$3 pid_file=$4 lan=$5 address=$6 gateway=$7

# The node's cgroup namespace begins at the cgroups of the process that creates it.
if [ -z "${IN_NAMESPACES:-}" ]; then
  rm -rf "$directory/run"
  for hierarchy in /sys/fs/cgroup/*/; do
    mkdir -p "$hierarchy$cgroup"
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$hierarchy$file" ] || cat "$hierarchy$file" > "$hierarchy$cgroup/$file"
    done
    echo $$ > "$hierarchy$cgroup/cgroup.procs"
  done
  echo $$ > "$pid_file"
  export IN_NAMESPACES=yes
  exec unshare --mount --pid --net --uts --cgroup --fork --kill-child sh "$0" "$@"
fi
unset IN_NAMESPACES
shift 7
hostname "$name"

# The other end of the link goes to the LAN while /proc still shows the machine's processes.
lan=/proc/$(cat "$lan")/ns/net
ip link set lo up
ip link add eth0 type veth peer name "$name"
ip link set "$name" netns "$lan"
nsenter --net="$lan" ip link set "$name" master lan0 up
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
for route in "$@"; do ip route add "${route%=*}" via "${route#*=}"; done

mount -t proc proc /proc
for private in run var/lib var/log; do
  mkdir -p "$directory/$private"
  mount --bind "$directory/$private" "/$private"
done
mkdir -p /run/lock /run/dev

# Only devices that a node without KVM has, so that no pod finds the disks of this machine.
mount -t tmpfs -o mode=0755 tmpfs /run/dev
for device in null zero full random urandom tty kmsg fuse loop-control loop0 loop1 loop2 loop3 net/tun vhost-net; do
  [ ! -e "/dev/$device" ] || { mkdir -p "$(dirname "/run/dev/$device")"; cp -a "/dev/$device" "/run/dev/$device"; }
done
chmod 666 /run/dev/null /run/dev/zero /run/dev/full /run/dev/random /run/dev/urandom /run/dev/tty
mkdir -p /run/dev/pts /run/dev/shm /run/dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts /run/dev/pts
ln -s pts/ptmx /run/dev/ptmx
for link in fd= stdin=/0 stdout=/1 stderr=/2; do ln -s "/proc/self/fd${link#*=}" "/run/dev/${link%=*}"; done
mount -t tmpfs -o mode=1777 tmpfs /run/dev/shm
mount --move /run/dev /dev

# sysfs shows the node's network. The cgroup namespace makes the node's own cgroups the root.
hierarchies=$(awk '$3 == "cgroup" { print $2, $4 }' /proc/mounts)
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
echo "$hierarchies" | while read -r path options; do
  controllers=$(echo "$options" | tr ',' '\n' | grep -vx -e rw -e relatime -e nosuid -e nodev -e noexec -e xattr | paste -sd, -)
  case $controllers in name=*) controllers=none,$controllers ;; esac
  mkdir "/sys/fs/cgroup/${path##*/}"
  mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${path##*/}"
done

# The kubelet would set these for the whole machine. It accepts what it finds right.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  shown=/run/sysctl/${setting%=*}
  mkdir -p "$(dirname "$shown")"
  echo "${setting#*=}" > "$shown"
  mount --bind "$shown" "/proc/sys/${setting%=*}"
done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables

mount --make-rshared /
touch /run/node-is-up
trap 'exit 0' TERM INT
# `wait` also reaps the processes whose parents have ended.
while :; do sleep 86400 & wait $! || :; done
