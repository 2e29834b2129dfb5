"""Real Kubernetes nodes on this machine, and the chart with its images on them.

`cluster` starts and stops a cluster; `main` is its command line. `layout` has its addresses and directories,
`configuration` the files that its programs read, `components` the commands that start them. A node is a process with
namespaces of its own (`node.sh`), and so is the network between the nodes (`lan.sh`): everything ends with them.
`programs` builds what Debian does not package, `images` the images of Poolhouse. Nothing here replaces a part of
Kubernetes: etcd, the API server, both managers, kubelet, kube-proxy, containerd, runc and CoreDNS are the real ones.
"""
