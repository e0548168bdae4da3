package node

import (
	"context"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// kubeletSettings are the kubelet's defaults but for what needs root, other
// programs or much time.
func kubeletSettings(c *config.Config) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	flags := options.NewKubeletFlags()
	flags.RootDirectory = c.Path("kubelet")
	flags.CertDirectory = c.Path("pki")
	flags.HostnameOverride = config.Address

	s, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, err
	}
	s.PodLogsDir = c.Path("pods")
	s.StaticPodPath = ""
	s.Address = config.Address
	s.Port = int32(c.Ports.Kubelet)
	s.ReadOnlyPort = 0
	s.HealthzPort = 0
	s.TLSCertFile = c.Path("pki", "server.crt")
	s.TLSPrivateKeyFile = c.Path("pki", "server.key")
	s.Authentication.Anonymous.Enabled = false
	s.Authentication.Webhook.Enabled = false
	s.Authentication.X509.ClientCAFile = c.Path("pki", "ca.crt")
	s.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow

	// Only said, never asked: there is no DNS server.
	s.ClusterDNS = []string{"10.96.0.10"}
	s.ClusterDomain = "cluster.local"
	s.ResolverConfig = ""
	s.MakeIPTablesUtilChains = false
	s.CgroupsPerQOS = false
	s.EnforceNodeAllocatable = nil
	s.FailSwapOn = false
	s.ProtectKernelDefaults = false
	s.EnableControllerAttachDetach = false
	s.LocalStorageCapacityIsolation = true
	s.MaxOpenFiles = 1 << 16

	s.MaxPods = int32(c.Capacity.Pods)
	s.SerializeImagePulls = false
	s.RegistryPullQPS = 0
	qps := c.KubeletQPS
	if qps == 0 {
		qps = 500
	}
	s.KubeAPIQPS, s.KubeAPIBurst = int32(qps), int32(2*qps)
	s.EventRecordQPS, s.EventBurst = 0, 0

	s.NodeLeaseDurationSeconds = 4
	s.NodeStatusUpdateFrequency = metav1.Duration{Duration: 2 * time.Second}
	s.VolumeStatsAggPeriod = metav1.Duration{Duration: 5 * time.Second}
	// The size of the machine's disk is no matter of the cluster.
	s.EvictionHard = map[string]string{"memory.available": "100Mi"}
	s.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Second}
	return flags, s, nil
}

// newRecorder writes events as the kubelet does.
func newRecorder(ctx context.Context, client typedcorev1.EventsGetter) record.EventRecorderLogger {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartStructuredLogging(3)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(legacyscheme.Scheme, corev1.EventSource{Component: "kubelet", Host: config.Address})
}
