package main

import (
	"fmt"
	"os"
	"strings"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API client
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const (
	apiserverName   = "kube-apiserver"
	controllersName = "kube-controller-manager"
	schedulerName   = "kube-scheduler"
	nodeName        = "node"

	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// runComponent becomes one Kubernetes program and ends with it. Only that
// program's command is made: each of them installs the handler of the process's
// signals, and the second one would panic.
func runComponent(name string, arguments []string) {
	os.Args = append([]string{name}, arguments...)
	switch name {
	case apiserverName:
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case controllersName:
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case schedulerName:
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	}
}

// componentArguments is the command line of a component: ours, then the user's,
// which therefore wins.
func componentArguments(c *config.Config, name string) []string {
	pki := func(file string) string { return c.Path("pki", file) }
	var arguments []string
	switch name {
	case apiserverName:
		arguments = []string{
			"--etcd-servers=" + urlString(c.Ports.EtcdClient),
			"--etcd-cafile=" + pki("ca.crt"),
			"--etcd-certfile=" + pki("server.crt"),
			"--etcd-keyfile=" + pki("server.key"),
			"--bind-address=" + config.Address,
			"--advertise-address=" + config.Address,
			// A loopback address is no valid endpoint of the service "kubernetes".
			"--endpoint-reconciler-type=none",
			fmt.Sprintf("--secure-port=%d", c.Ports.APIServer),
			"--tls-cert-file=" + pki("server.crt"),
			"--tls-private-key-file=" + pki("server.key"),
			"--client-ca-file=" + pki("ca.crt"),
			"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("service-account.pub"),
			"--service-account-signing-key-file=" + pki("service-account.key"),
			"--service-cluster-ip-range=" + serviceRange,
			"--authorization-mode=Node,RBAC",
			"--allow-privileged=true",
			// A real cluster waits 300 seconds before it gives up a lost node's pods.
			"--default-not-ready-toleration-seconds=5",
			"--default-unreachable-toleration-seconds=5",
			"--shutdown-delay-duration=0s",
		}
	case controllersName:
		arguments = []string{
			"--kubeconfig=" + pki(controllersName+".kubeconfig"),
			"--secure-port=0",
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + pki("service-account.key"),
			"--root-ca-file=" + pki("ca.crt"),
			"--controllers=" + strings.Join(controllerNames, ","),
			"--node-monitor-period=1s",
			// A real cluster declares a node lost after 50 seconds.
			"--node-monitor-grace-period=6s",
			"--node-eviction-rate=10",
			"--concurrent-namespace-syncs=10",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		}
	case schedulerName:
		arguments = []string{
			"--kubeconfig=" + pki(schedulerName+".kubeconfig"),
			"--secure-port=0",
			"--leader-elect=false",
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
		}
	case nodeName:
		arguments = []string{c.State}
	}
	return append(arguments, c.Arguments[name]...)
}

// controllerNames are the controllers that have a say in what happens to pods.
// The others would only take memory.
var controllerNames = []string{
	"disruption-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"taint-eviction-controller",
	"ttl-after-finished-controller",
}

func urlString(port int) string {
	u := etcdURL(port)
	return u.String()
}
