#!/bin/sh
# Installs the Debian packages of the programs that nodes need and this machine lacks. It looks for the programs, because
# a machine with Docker has containerd from another package, which Debian's would replace.
set -eu
if [ "$(id -u)" != 0 ]; then echo "nodes need root: their tests are skipped"; exit 0; fi
PATH=$PATH:/usr/sbin:/sbin
missing=""
for each in containerd=containerd runc=runc /usr/lib/cni/bridge=containernetworking-plugins iptables=iptables \
    nft=nftables ip=iproute2 unshare=util-linux buildah=buildah mmdebstrap=mmdebstrap; do
  command -v "${each%=*}" >/dev/null || missing="$missing ${each#*=}"
done
[ -z "$missing" ] || exec sh "$(dirname "$0")/system.sh" $missing
