// Package node runs the kubelet of the cluster's node. It is the real kubelet;
// what it would do to the machine is replaced: containers are processes (package
// cri), mounts are left out, and the machine's size is what the configuration
// says. It is put together as kubemark's hollow node is, with fewer fakes.
package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
	"airflow-kubernetes-callbacks.invalid/cluster/internal/cri"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/server"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"k8s.io/klog/v2"
)

// Run runs the node until the process is told to end. It is called on the
// process's main thread, on which it starts the containers.
func Run(c *config.Config) error {
	if err := adoptOrphans(); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	calls := make(chan func())
	spawn := func(cmd *exec.Cmd) error {
		result := make(chan error, 1)
		calls <- func() { result <- cmd.Start() }
		return <-result
	}
	namespaces, err := chooseNamespaces(c)
	if err != nil {
		return err
	}
	runtime, err := cri.New(c, spawn, namespaces)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		if err := serveControl(c, runtime); err != nil {
			failed <- err
			return
		}
		if err := startKubelet(ctx, c, runtime); err != nil {
			failed <- err
		}
	}()
	for {
		select {
		case call := <-calls:
			call()
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// adoptOrphans makes processes that lose their parent children of the node, so
// that it can wait for them.
func adoptOrphans() error {
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	return nil
}

// chooseNamespaces decides how volumes come to their mount paths.
func chooseNamespaces(c *config.Config) (cri.Namespaces, error) {
	if c.Isolation == "none" {
		return nil, nil
	}
	scratch := c.Path("containers", "probe")
	defer os.RemoveAll(scratch)
	namespaces, failures := cri.FindNamespaces(c.Enter, scratch)
	if namespaces == nil {
		if c.Isolation == "namespaces" {
			return nil, fmt.Errorf("this machine allows no mount namespaces: %q", failures)
		}
		klog.InfoS("This machine allows no mount namespaces; mount paths are rewritten", "failures", failures)
	}
	return namespaces, nil
}

// serveControl listens on state/node.sock for what the supervisor hands on.
func serveControl(c *config.Config, runtime *cri.Runtime) error {
	os.Remove("node.sock")
	listener, err := net.Listen("unix", "node.sock")
	if err != nil {
		return err
	}
	http.HandleFunc("POST /evict", func(_ http.ResponseWriter, r *http.Request) {
		runtime.Evict(r.URL.Query().Get("namespace"), r.URL.Query().Get("pod"))
	})
	go http.Serve(listener, nil)
	return nil
}

func startKubelet(ctx context.Context, c *config.Config, runtime *cri.Runtime) error {
	flags, settings, err := kubeletSettings(c)
	if err != nil {
		return err
	}
	rest, err := clientcmd.BuildConfigFromFlags("", c.Path("pki", "node.kubeconfig"))
	if err != nil {
		return err
	}
	rest.UserAgent = "kubelet"
	rest.QPS, rest.Burst = float32(settings.KubeAPIQPS), int(settings.KubeAPIBurst)
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	// As in the kubelet: heartbeats and events are not held up by other calls.
	heartbeat := *rest
	heartbeat.Timeout = time.Duration(settings.NodeLeaseDurationSeconds) * time.Second
	heartbeat.QPS = -1
	heartbeatClient, err := kubernetes.NewForConfig(&heartbeat)
	if err != nil {
		return err
	}
	auth, runCAReload, err := kubeletapp.BuildAuth(config.Address, client, *settings)
	if err != nil {
		return err
	}
	runCAReload(ctx.Done())
	capacity, err := newMachine(c, runtime)
	if err != nil {
		return err
	}
	dependencies := &kubelet.Dependencies{
		Auth:                      auth,
		KubeClient:                client,
		HeartbeatClient:           heartbeatClient,
		EventClient:               heartbeatClient.CoreV1(),
		RemoteRuntimeService:      runtime,
		RemoteImageService:        cri.NewImages(c),
		CAdvisorInterface:         capacity,
		ContainerManager:          newContainerManager(capacity),
		OSInterface:               operatingSystem{},
		HostUtil:                  newHostUtil(),
		Mounter:                   mount.NewFakeMounter(nil),
		Subpather:                 &subpath.FakeSubpath{},
		VolumePlugins:             volumePlugins(),
		OOMAdjuster:               oom.NewFakeOOMAdjuster(),
		PodStartupLatencyTracker:  kubeletutil.NewPodStartupLatencyTracker(),
		NodeStartupLatencyTracker: kubeletutil.NewNodeStartupLatencyTracker(klog.FromContext(ctx)),
		TLSOptions: &server.TLSOptions{
			CertFile: settings.TLSCertFile, KeyFile: settings.TLSPrivateKeyFile,
			ClientCAFile: settings.Authentication.X509.ClientCAFile,
		},
	}
	withoutKernelLog(ctx, dependencies)
	return kubeletapp.RunKubelet(ctx, &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *settings}, dependencies)
}

// withoutKernelLog keeps the kubelet from watching the kernel's log for kills of
// processes, which needs rights that an ordinary user does not have. The kubelet
// does without only for a FakeRecorder; the true recorder of events is put in
// its place when the kubelet asks for its tracer, which is the next thing it
// does.
func withoutKernelLog(ctx context.Context, d *kubelet.Dependencies) {
	recorder := newRecorder(ctx, d.EventClient)
	d.Recorder = &record.FakeRecorder{}
	d.TracerProvider = tracerHook{noop.NewTracerProvider(), func() { d.Recorder = recorder }}
}

type tracerHook struct {
	trace.TracerProvider
	asked func()
}

func (t tracerHook) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	t.asked()
	return t.TracerProvider.Tracer(name, options...)
}
