package main

import (
	"context"
	"fmt"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	corev1 "k8s.io/api/core/v1"
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
// ready and the namespace "default" has its service account.
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
		if err != nil || len(node.Spec.Taints) > 0 {
			return false
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue
			}
		}
		return false
	})
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
