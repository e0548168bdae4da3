package cri

import (
	"os"
	"os/exec"
	"syscall"
)

// Namespaces changes how a process is started so that it has a mount namespace
// of its own, in which it may mount.
type Namespaces func(*syscall.SysProcAttr)

// FindNamespaces returns the first way that works on this machine: as root, else
// with a user namespace in which every user keeps their number. It returns nil
// when there is none, with what the attempts said.
func FindNamespaces(enter, scratch string) (Namespaces, []string) {
	var failures []string
	for _, way := range []Namespaces{withRoot, withUserNamespace} {
		cmd := exec.Command(enter, "probe", scratch)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		way(cmd.SysProcAttr)
		output, err := cmd.CombinedOutput()
		if err == nil {
			return way, nil
		}
		failures = append(failures, err.Error()+" "+string(output))
	}
	return nil, failures
}

func withRoot(attributes *syscall.SysProcAttr) {
	attributes.Cloneflags |= syscall.CLONE_NEWNS
}

func withUserNamespace(attributes *syscall.SysProcAttr) {
	const capSysAdmin = 21
	attributes.Cloneflags |= syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	// The first exec of a user other than root would lose the capability.
	attributes.AmbientCaps = []uintptr{capSysAdmin}
}
