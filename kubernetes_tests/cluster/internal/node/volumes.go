package node

import (
	"os"
	"strings"

	"k8s.io/kubernetes/pkg/kubelet"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"

	corev1 "k8s.io/api/core/v1"
)

// volumePlugins are those that work with folders alone.
func volumePlugins() []volume.VolumePlugin {
	var plugins []volume.VolumePlugin
	for _, probe := range [][]volume.VolumePlugin{
		configmap.ProbeVolumePlugins(),
		downwardapi.ProbeVolumePlugins(),
		emptydir.ProbeVolumePlugins(),
		hostpath.ProbeVolumePlugins(volume.VolumeConfig{}),
		projected.ProbeVolumePlugins(),
		secret.ProbeVolumePlugins(),
	} {
		for _, plugin := range probe {
			plugins = append(plugins, withoutOwner{plugin})
		}
	}
	return plugins
}

// withoutOwner leaves the owner of a volume's files alone: every container runs
// as the user who runs the cluster, who may not give files away. The security
// context's users and groups have no effect.
type withoutOwner struct{ volume.VolumePlugin }

func (p withoutOwner) NewMounter(spec *volume.Spec, pod *corev1.Pod) (volume.Mounter, error) {
	mounter, err := p.VolumePlugin.NewMounter(spec, pod)
	if err != nil {
		return nil, err
	}
	return mounterWithoutOwner{mounter}, nil
}

type mounterWithoutOwner struct{ volume.Mounter }

func (m mounterWithoutOwner) SetUp(args volume.MounterArgs) error {
	args.FsUser, args.FsGroup = nil, nil
	return m.Mounter.SetUp(args)
}

func (m mounterWithoutOwner) SetUpAt(dir string, args volume.MounterArgs) error {
	args.FsUser, args.FsGroup = nil, nil
	return m.Mounter.SetUpAt(dir, args)
}

// hostUtil asks the machine's file system but changes no mounts.
type hostUtil struct{ *hostutil.HostUtil }

func newHostUtil() hostUtil { return hostUtil{hostutil.NewHostUtil()} }

func (hostUtil) MakeRShared(string) error { return nil }

// operatingSystem leaves out the links to logs in /var/log/containers, which
// only collectors of logs read.
type operatingSystem struct{ kubecontainer.RealOS }

func (o operatingSystem) MkdirAll(path string, perm os.FileMode) error {
	if strings.HasPrefix(path, kubelet.ContainerLogsDir) {
		return nil
	}
	return o.RealOS.MkdirAll(path, perm)
}

func (o operatingSystem) Symlink(target, name string) error {
	if strings.HasPrefix(name, kubelet.ContainerLogsDir) {
		return nil
	}
	return o.RealOS.Symlink(target, name)
}

func (o operatingSystem) Glob(pattern string) ([]string, error) {
	if strings.HasPrefix(pattern, kubelet.ContainerLogsDir) {
		return nil, nil
	}
	return o.RealOS.Glob(pattern)
}
