package enter

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Marks tell whose process a process is. It carries them twice: in its
// environment and, where containers have a file system of their own, as the
// source of its root's mount. A process may clear or overwrite its environment
// (setproctitle does); its root it cannot lose.
type Marks struct {
	// State is the cluster's state folder.
	State string
	// Container is a container's id, Folder its folder, below which its root is;
	// "" means any process of the cluster.
	Container, Folder string
	// Containers leaves out the cluster's own components.
	Containers bool
}

// Environment is how the marks are written in an environment.
func (m Marks) Environment() []string {
	return []string{StateVariable + "=" + m.State, ContainerVariable + "=" + m.Container}
}

// Kill kills every process with these marks and waits until there is none. It
// is how processes are found that left their container's session and lost their
// parent.
func (m Marks) Kill(patience time.Duration) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		pids := m.processes()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes lists the living ones, except this one.
func (m Marks) processes() []int {
	own, _ := os.Readlink("/proc/self/ns/mnt")
	folders, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if pid != os.Getpid() && (m.inEnvironment(folder) || m.inRoot(folder, own)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (m Marks) inEnvironment(folder string) bool {
	// The environment of a zombie is empty.
	environ, err := os.ReadFile(filepath.Join(folder, "environ"))
	if err != nil {
		return false
	}
	environ = append([]byte{0}, environ...)
	if !bytes.Contains(environ, []byte("\x00"+StateVariable+"="+m.State+"\x00")) {
		return false
	}
	switch {
	case m.Container != "":
		return bytes.Contains(environ, []byte("\x00"+ContainerVariable+"="+m.Container+"\x00"))
	case m.Containers:
		return bytes.Contains(environ, []byte("\x00"+ContainerVariable+"="))
	}
	return true
}

// inRoot looks for the mount "/" of another mount namespace than our own, by
// the fields of proc_pid_mountinfo(5).
func (m Marks) inRoot(folder, own string) bool {
	namespace, err := os.Readlink(filepath.Join(folder, "ns", "mnt"))
	if err != nil || namespace == own {
		return false
	}
	mounts, err := os.ReadFile(filepath.Join(folder, "mountinfo"))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(mounts) {
		mount, source, found := bytes.Cut(line, []byte(" - tmpfs "))
		fields := bytes.Fields(mount)
		if !found || len(fields) < 5 || string(fields[4]) != "/" {
			continue
		}
		marked := m.Folder
		if m.Container == "" {
			marked = m.State
		}
		return bytes.HasPrefix(source, []byte(marked+"/"))
	}
	return false
}
