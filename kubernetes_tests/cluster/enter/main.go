// Command enter starts one container: it makes the container's view of the
// file system and becomes the container's process. With "sweep STATE" it waits
// for the end of its standard input and then ends every process of the cluster
// in that folder that is left. With "probe FOLDER" it says whether containers can
// have a file system of their own.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/enter"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "sweep" {
		sweep(os.Args[2])
		return
	}
	runtime.LockOSThread()
	if len(os.Args) == 3 && os.Args[1] == "probe" {
		if err := probe(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	err := start()
	report := os.NewFile(enter.ErrorFD, "error")
	fmt.Fprint(report, err)
	os.Exit(128)
}

// start returns only when the container's process could not be started.
func start() error {
	syscall.CloseOnExec(enter.RequestFD)
	syscall.CloseOnExec(enter.ErrorFD)
	var request enter.Request
	in := os.NewFile(enter.RequestFD, "request")
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	in.Close()
	if request.Namespaces {
		if err := enterRoot(&request); err != nil {
			return fmt.Errorf("preparing the file system: %w", err)
		}
	}
	if err := os.MkdirAll(request.Dir, 0o755); err != nil {
		return fmt.Errorf("mkdir %s: %w", request.Dir, err)
	}
	if err := os.Chdir(request.Dir); err != nil {
		return err
	}
	program, err := lookUp(request.Args[0], request.Env)
	if err != nil {
		return err
	}
	if err := dieWithParent(); err != nil {
		return err
	}
	err = syscall.Exec(program, request.Args, request.Env)
	return fmt.Errorf("exec %s: %w", program, err)
}

// lookUp finds the program in the container's PATH; its errors read like runc's.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		info, err := os.Stat(name)
		if err != nil {
			return "", fmt.Errorf("exec: %q: stat %s: %w", name, name, errors.Unwrap(err))
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return "", fmt.Errorf("exec: %q: permission denied", name)
		}
		return name, nil
	}
	for _, entry := range env {
		list, found := strings.CutPrefix(entry, "PATH=")
		if !found {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: %w", name, exec.ErrNotFound)
}

// dieWithParent has the kernel kill this process when the node ends. It is said
// again here because a change of capabilities forgets it.
func dieWithParent() error {
	const prSetPdeathsig = 1
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGKILL), 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	return nil
}
