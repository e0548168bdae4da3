package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/enter"
)

// enterRoot gives this process, which is in a mount namespace of its own, a root
// in which the container's mounts are in their place. A mount path need not
// exist on the machine: a folder that has to get a new entry is put together on
// a tmpfs out of its entries, each of them bound.
func enterRoot(request *enter.Request) error {
	root := request.Root
	// Nothing that is mounted here is seen outside.
	if err := mount("", "/", "", syscall.MS_SLAVE|syscall.MS_REC); err != nil {
		return err
	}
	// Its name is the mark by which the container's processes are found.
	if err := mount(root, root, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV); err != nil {
		return err
	}
	// The new root lies below the old one: it must not be bound into itself.
	if err := mount("", root, "", syscall.MS_UNBINDABLE); err != nil {
		return err
	}
	tree, nested := plan(request.Mounts)
	if err := mirror("/", root, tree); err != nil {
		return err
	}
	for _, m := range nested {
		if err := bindMount(m, filepath.Join(root, m.Target)); err != nil {
			return err
		}
	}
	if err := pivot(root); err != nil {
		return err
	}
	return dropCapabilities()
}

// folder is a folder of the new root that cannot simply be bound, because a
// mount is below it. Exactly one of mount and entries is set.
type folder struct {
	mount   *enter.Mount
	entries map[string]*folder
}

// plan sorts the mounts into the folders that have to be put together and those
// that are inside of another mount.
func plan(mounts []enter.Mount) (*folder, []enter.Mount) {
	tree := &folder{entries: map[string]*folder{}}
	var nested []enter.Mount
	for _, m := range mounts {
		m.Target = resolve(m.Target)
		at := tree
		names := strings.Split(strings.Trim(m.Target, "/"), "/")
		for i, name := range names {
			if at.mount != nil {
				break
			}
			next := at.entries[name]
			if next == nil {
				next = &folder{entries: map[string]*folder{}}
				at.entries[name] = next
			}
			if i == len(names)-1 {
				next.mount = &m
			}
			at = next
		}
		if at.mount == nil || at.mount.Target != m.Target {
			nested = append(nested, m)
		}
	}
	return tree, nested
}

// resolve follows the machine's symbolic links, as far as the path exists:
// /var/run is /run on most machines.
func resolve(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if path == "/" {
		return path
	}
	return filepath.Join(resolve(filepath.Dir(path)), filepath.Base(path))
}

// devices are what a container finds in /dev, by the OCI's runtime specification.
var devices = []string{
	"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
	"urandom", "zero",
}

// mirror puts the entries of source into target, and the mounts among them.
func mirror(source, target string, at *folder) error {
	entries, err := os.ReadDir(source)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	for _, entry := range entries {
		from, to := filepath.Join(source, entry.Name()), filepath.Join(target, entry.Name())
		if at.entries[entry.Name()] != nil || source == "/dev" && !slices.Contains(devices, entry.Name()) {
			continue
		}
		if entry.Type()&os.ModeSymlink != 0 {
			link, err := os.Readlink(from)
			if err != nil {
				return err
			}
			if err := os.Symlink(link, to); err != nil {
				return err
			}
			continue
		}
		// What may not be bound is left out rather than fatal.
		if err := bind(from, to, entry.IsDir()); err != nil {
			os.Remove(to)
		}
	}
	for name, child := range at.entries {
		to := filepath.Join(target, name)
		if child.mount != nil {
			if err := bindMount(*child.mount, to); err != nil {
				return err
			}
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := mirror(filepath.Join(source, name), to, child); err != nil {
			return err
		}
	}
	return nil
}

// bindMount makes one of the container's mounts.
func bindMount(m enter.Mount, to string) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if err := bind(m.Source, to, info.IsDir()); err != nil {
		return err
	}
	if !m.ReadOnly {
		return nil
	}
	// Flags that a mount has already may not be taken away in a user namespace.
	var stat syscall.Statfs_t
	if err := syscall.Statfs(to, &stat); err != nil {
		return err
	}
	kept := uintptr(stat.Flags) & (syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME |
		syscall.MS_NODIRATIME | syscall.MS_RELATIME)
	return mount("", to, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY|kept)
}

// bind binds a file or folder over an empty one of its kind.
func bind(from, to string, isFolder bool) error {
	if isFolder {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
	} else if _, err := os.Lstat(to); err != nil {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		file.Close()
	}
	return mount(from, to, "", syscall.MS_BIND|syscall.MS_REC)
}

// pivot makes root the root and lets the old one go.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	// With both names the same the old root is stacked on the new one:
	// https://man7.org/linux/man-pages/man2/pivot_root.2.html
	if err := syscall.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root %s: %w", root, err)
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the old root: %w", err)
	}
	return os.Chdir("/")
}

// dropCapabilities gives up what the node lent for making mounts. Root keeps
// what root has.
func dropCapabilities() error {
	const prCapAmbient, clearAll = 47, 4
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prCapAmbient, clearAll, 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	return nil
}

func mount(source, target, kind string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %q on %s: %w", source, target, err)
	}
	return nil
}

// probe says whether all this is possible here.
func probe(scratch string) error {
	source := filepath.Join(scratch, "source")
	root := filepath.Join(scratch, "root")
	for _, dir := range []string{source, root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	const target = "/local-cluster-probe/nested"
	err := enterRoot(&enter.Request{Root: root, Mounts: []enter.Mount{{Source: source, Target: target, ReadOnly: true}}})
	if err != nil {
		return err
	}
	_, err = os.Stat(target)
	return err
}
