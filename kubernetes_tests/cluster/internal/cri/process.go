package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/enter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// start starts the container's process in a session of its own and watches it.
func (c *container) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("container %s is not in the created state", c.id)
	}
	log, err := openLog(c.logPath())
	if err != nil {
		return err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd, failure := c.launch(commandLine(c.image, c.config), outWrite, errWrite)
	outWrite.Close()
	errWrite.Close()
	if failure != nil {
		outRead.Close()
		errRead.Close()
		log.close()
		// As containerd: ended with code 128 and never started.
		c.state = runtimeapi.ContainerState_CONTAINER_EXITED
		c.finishedAt = now()
		c.exitCode = 128
		c.reason = "StartError"
		c.message = fmt.Sprintf("failed to create containerd task: failed to create shim task: OCI runtime create failed: "+
			"runc create failed: unable to start container process: error during container init: %s: unknown", failure)
		close(c.exited)
		c.save()
		return status.Error(codes.Unknown, c.message)
	}
	c.log = log
	c.pid = cmd.Process.Pid
	c.startedAt = now()
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.save()
	var streams sync.WaitGroup
	streams.Go(func() { log.copyFrom("stdout", outRead); outRead.Close() })
	streams.Go(func() { log.copyFrom("stderr", errRead); errRead.Close() })
	go c.wait(cmd, &streams)
	return nil
}

// launch starts a process in the container. It returns when the process is
// running the container's program, or says why it cannot.
func (c *container) launch(command []string, stdout, stderr *os.File) (*exec.Cmd, error) {
	request, err := json.Marshal(c.request(command))
	if err != nil {
		return nil, err
	}
	requestRead, requestWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer requestRead.Close()
	defer requestWrite.Close()
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reportRead.Close()
	cmd := exec.Command(c.runtime.config.Enter)
	// The marks are in the environment of the container's process as well.
	cmd.Env = c.marks().Environment()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.ExtraFiles = []*os.File{requestRead, reportWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if c.runtime.namespaces != nil {
		c.runtime.namespaces(cmd.SysProcAttr)
	}
	err = c.runtime.spawn(cmd)
	reportWrite.Close()
	if err != nil {
		return nil, err
	}
	c.runtime.mu.Lock()
	c.runtime.started[cmd.Process.Pid] = true
	c.runtime.mu.Unlock()
	go func() {
		// The request may be larger than a pipe holds.
		requestWrite.Write(request)
		requestWrite.Close()
	}()
	report, err := io.ReadAll(reportRead)
	if err != nil {
		report = []byte(err.Error())
	}
	if len(report) > 0 {
		c.await(cmd)
		return nil, fmt.Errorf("%s", report)
	}
	return cmd, nil
}

// await waits for the end of a process that launch started.
func (c *container) await(cmd *exec.Cmd) {
	cmd.Wait()
	c.runtime.mu.Lock()
	delete(c.runtime.started, cmd.Process.Pid)
	c.runtime.mu.Unlock()
}

func (c *container) marks() enter.Marks {
	return enter.Marks{State: c.runtime.config.State, Container: c.id, Folder: c.dir}
}

// wait records the end of the container: when its first process ends, the
// others are killed, as the kernel does in a PID namespace.
func (c *container) wait(cmd *exec.Cmd, streams *sync.WaitGroup) {
	c.await(cmd)
	c.killProcesses()
	written := make(chan struct{})
	go func() { streams.Wait(); close(written) }()
	select {
	case <-written:
	case <-time.After(2 * time.Second):
	}
	c.log.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishedAt = now()
	c.exitCode = exitCode(cmd.ProcessState)
	switch {
	case c.oomKilled:
		c.reason = "OOMKilled"
	case c.exitCode == 0:
		c.reason = "Completed"
	default:
		c.reason = "Error"
	}
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.save()
	close(c.exited)
}

// exitCode follows the shell's convention for signals, as container runtimes do.
func exitCode(state *os.ProcessState) int32 {
	ws := state.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return int32(128 + ws.Signal())
	}
	return int32(ws.ExitStatus())
}

// stop asks the container's processes to end and, after the grace period, kills
// them. It returns when they are gone.
func (c *container) stop(ctx context.Context, grace time.Duration) error {
	c.mu.Lock()
	state, pid := c.state, c.pid
	if state == runtimeapi.ContainerState_CONTAINER_CREATED {
		c.state = runtimeapi.ContainerState_CONTAINER_EXITED
		c.finishedAt = now()
		c.save()
		close(c.exited)
	}
	c.mu.Unlock()
	if state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil
	}
	if grace > 0 {
		// The whole group, as the init program of an image (dumb-init, tini -g)
		// does; Airflow's image has one.
		syscall.Kill(-pid, c.stopSignal())
		select {
		case <-c.exited:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(grace):
		}
	}
	c.killProcesses()
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
		return fmt.Errorf("container %s is still running after SIGKILL", c.id)
	}
}

func (c *container) stopSignal() syscall.Signal {
	if s := c.config.GetStopSignal(); s != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		if n, ok := signals[strings.TrimPrefix(s.String(), "SIGNAL_")]; ok {
			return n
		}
	}
	return syscall.SIGTERM
}

var signals = map[string]syscall.Signal{
	"SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT, "SIGHUP": syscall.SIGHUP,
	"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2, "SIGKILL": syscall.SIGKILL,
}

// killProcesses kills the container's session and what left it.
func (c *container) killProcesses() {
	syscall.Kill(-c.pid, syscall.SIGKILL)
	c.marks().Kill(5 * time.Second)
}

// ExecSync runs a command in the container: probes and hooks do so.
func (r *Runtime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, nil, err
	}
	if c.status().State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "container %s is not running", id)
	}
	out, err := os.CreateTemp(c.dir, "exec")
	if err != nil {
		return nil, nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd, err := c.launch(command, out, out)
	if err != nil {
		return nil, nil, status.Errorf(codes.Unknown, "failed to exec in container: failed to start exec: %v", err)
	}
	ended := make(chan struct{})
	go func() { c.await(cmd); close(ended) }()
	var expired <-chan time.Time
	if timeout > 0 {
		expired = time.After(timeout)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return nil, nil, ctx.Err()
	case <-expired:
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return nil, nil, status.Errorf(codes.DeadlineExceeded, "command %v timed out", command)
	}
	output, _ := os.ReadFile(out.Name())
	if code := exitCode(cmd.ProcessState); code != 0 {
		return output, nil, exitError(code)
	}
	return output, nil, nil
}

// exitError is how the kubelet learns a command's exit code.
type exitError int32

func (e exitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", int32(e))
}
func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return int(e) }

func (c *container) workDir(scratch string) string {
	switch {
	case c.config.WorkingDir != "":
		return c.config.WorkingDir
	case c.image.WorkDir != "":
		return c.image.WorkDir
	}
	return filepath.Join(scratch, "work")
}
