package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func adminClient(c *config.Config) (*kubernetes.Clientset, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", c.Path("kubeconfig"))
	if err != nil {
		return nil, err
	}
	rest.Timeout = 5 * time.Second
	return kubernetes.NewForConfig(rest)
}

// waitForAPIServer waits until the API server says that it is ready.
func waitForAPIServer(ctx context.Context, c *config.Config) error {
	client, err := adminClient(c)
	if err != nil {
		return err
	}
	return poll(ctx, "the API server is not ready", func() bool {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
	})
}

// waitForNode waits until pods can be created and will be run: the node is
// ready and short of nothing, and the namespace "default" has its service account.
func waitForNode(ctx context.Context, c *config.Config) error {
	client, err := adminClient(c)
	if err != nil {
		return err
	}
	return poll(ctx, "the node is not ready", func() bool {
		if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false
		}
		node, err := client.CoreV1().Nodes().Get(ctx, config.Address, metav1.GetOptions{})
		return err == nil && len(node.Spec.Taints) == 0 && answers(c, node) &&
			condition(node, corev1.NodeReady) == corev1.ConditionTrue &&
			condition(node, corev1.NodeMemoryPressure) == corev1.ConditionFalse
	})
}

// answers says whether the node object is that of the kubelet that runs now, and
// it listens: the object may be older.
func answers(c *config.Config, node *corev1.Node) bool {
	if int(node.Status.DaemonEndpoints.KubeletEndpoint.Port) != c.Ports.Kubelet {
		return false
	}
	connection, err := net.Dial("tcp", net.JoinHostPort(config.Address, strconv.Itoa(c.Ports.Kubelet)))
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

// waitForEviction waits until the kubelet has evicted the pod and the node says
// that it is short of memory, which it does a moment later.
func waitForEviction(ctx context.Context, c *config.Config, namespace, pod string) error {
	client, err := adminClient(c)
	if err != nil {
		return err
	}
	err = poll(ctx, fmt.Sprintf("pod %s/%s is not evicted", namespace, pod), func() bool {
		found, err := client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && found.Status.Phase == corev1.PodFailed
	})
	if err != nil {
		return err
	}
	return poll(ctx, "the node is not short of memory", func() bool {
		node, err := client.CoreV1().Nodes().Get(ctx, config.Address, metav1.GetOptions{})
		return err == nil && condition(node, corev1.NodeMemoryPressure) == corev1.ConditionTrue
	})
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func poll(ctx context.Context, failure string, done func() bool) error {
	deadline := time.Now().Add(120 * time.Second)
	for !done() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after 120 seconds", failure)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
