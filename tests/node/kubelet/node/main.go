// One program for the parts of Kubernetes that a node needs, and the
// scheduler. The program's name or its first argument names the part to run.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func() *cobra.Command{
	"kubelet":        func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":     proxy.NewProxyCommand,
	"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if command, ok := parts[filepath.Base(os.Args[0])]; ok {
		os.Exit(cli.Run(command()))
	}
	fmt.Fprintln(os.Stderr, "call it by a link named kubelet, kube-proxy or kube-scheduler")
	os.Exit(2)
}
