package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// controlPlaneNode is the cluster's second node. It has no kubelet and takes no
// pods. It is there because a node controller that sees no healthy node at all
// takes itself to be cut off, and gives up no pods:
// https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction
const controlPlaneNode = "control-plane"

// keepControlPlaneNode registers the node and sends its heartbeats.
func keepControlPlaneNode(ctx context.Context, c *config.Config) error {
	client, err := adminClient(c)
	if err != nil {
		return err
	}
	if err := registerControlPlaneNode(ctx, client); err != nil {
		return fmt.Errorf("node %s: %w", controlPlaneNode, err)
	}
	go func() {
		for ctx.Err() == nil {
			// The API server may be down: the next heartbeat is soon.
			if err := renewLease(ctx, client); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "heartbeat of the control plane:", err)
			}
			time.Sleep(time.Second)
		}
	}()
	return nil
}

func registerControlPlaneNode(ctx context.Context, client *kubernetes.Clientset) error {
	role := "node-role.kubernetes.io/control-plane"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: controlPlaneNode, Labels: map[string]string{role: ""}},
		Spec: corev1.NodeSpec{
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}},
		},
	}
	node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return renewLease(ctx, client)
	}
	if err != nil {
		return err
	}
	node.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return renewLease(ctx, client)
}

func renewLease(ctx context.Context, client *kubernetes.Clientset) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	at := metav1.NowMicro()
	lease, err := leases.Get(ctx, controlPlaneNode, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: controlPlaneNode}}
		lease.Spec.RenewTime = &at
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &at
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
