package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"airflow-kubernetes-callbacks.invalid/cluster/internal/config"
	"airflow-kubernetes-callbacks.invalid/cluster/internal/enter"
)

// supervisor runs etcd in this process and every other program as a child, and
// makes sure that none outlives it: children are killed by the kernel when this
// process ends (PDEATHSIG), and a sweeper, which notices the end by its standard
// input, kills the processes of containers that are left.
type supervisor struct {
	config  *config.Config
	program string
	main    chan func()
	stop    context.CancelFunc
	stopped <-chan struct{}

	mu       sync.Mutex
	children map[string]*child
	// wanted says which components are started again when they end.
	wanted map[string]bool
	ready  bool
}

type child struct {
	process *os.Process
	done    chan struct{}
}

// serve runs the cluster until it is told to stop. It is called on the
// process's main thread.
func serve(state string) error {
	c, err := config.Load(state)
	if err != nil {
		return err
	}
	if err := prepare(c); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	s := &supervisor{
		config: c, program: program, main: make(chan func()), stop: cancel, stopped: ctx.Done(),
		children: map[string]*child{}, wanted: map[string]bool{},
	}
	if c.ParentPID != 0 {
		go followParent(c.ParentPID, cancel)
	}
	failed := make(chan error, 1)
	go func() {
		if err := s.run(ctx); err != nil {
			failed <- err
			cancel()
		}
	}()
	for ctx.Err() == nil {
		select {
		case call := <-s.main:
			call()
		case <-ctx.Done():
		}
	}
	s.killAll()
	os.Remove(c.Path("control.sock"))
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// followParent ends the cluster with the process that started it. The end of
// standard input says so at once, unless a fork of that process holds the pipe.
func followParent(pid int, stop func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for os.Getppid() == pid {
		time.Sleep(500 * time.Millisecond)
	}
	stop()
}

// prepare makes the folders, ports and certificates.
func prepare(c *config.Config) error {
	// The kubelet makes sockets below the folder; a socket's path is limited.
	if len(c.State) > 70 {
		return fmt.Errorf("the state folder's path has more than 70 characters: %s", c.State)
	}
	if err := os.Chdir(c.State); err != nil {
		return err
	}
	for _, dir := range []string{"logs", "kubelet", "pods", "containers"} {
		if err := os.MkdirAll(c.Path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := choosePorts(c); err != nil {
		return err
	}
	if err := c.Save(); err != nil {
		return err
	}
	return writeCertificates(c)
}

func (s *supervisor) run(ctx context.Context) error {
	if err := s.startSweeper(); err != nil {
		return err
	}
	if err := s.serveControl(); err != nil {
		return err
	}
	etcd, err := startEtcd(ctx, s.config)
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		etcd.Close()
	}()
	if err := s.start(apiserverName); err != nil {
		return err
	}
	if err := waitForAPIServer(ctx, s.config); err != nil {
		return err
	}
	if err := keepControlPlaneNode(ctx, s.config); err != nil {
		return err
	}
	for _, name := range []string{controllersName, schedulerName, nodeName} {
		if err := s.start(name); err != nil {
			return err
		}
	}
	if err := waitForNode(ctx, s.config); err != nil {
		return err
	}
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	return nil
}

// spawn starts a child on the main thread: PDEATHSIG is sent when the thread
// ends that started the child, and the main thread ends with the process.
func (s *supervisor) spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	select {
	case s.main <- func() { result <- cmd.Start() }:
		return <-result
	case <-s.stopped:
		return errors.New("the cluster is stopping")
	}
}

func (s *supervisor) startSweeper() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(s.config.Enter, "sweep", s.config.State)
	cmd.Stdin = r
	// Not with PDEATHSIG: it has to outlive this process for a moment.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("sweeper: %w", err)
	}
	r.Close()
	_ = w // open until this process ends
	runtimeKeep = append(runtimeKeep, w)
	return nil
}

// runtimeKeep holds files that must not be closed by the garbage collector.
var runtimeKeep []*os.File

// start starts a component and keeps it running.
func (s *supervisor) start(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.children[name] != nil {
		return nil
	}
	log, err := os.OpenFile(s.config.Path("logs", name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program, append([]string{name}, componentArguments(s.config, name)...)...)
	cmd.Env = append(os.Environ(), enter.StateVariable+"="+s.config.State)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.config.State
	if err := s.spawn(cmd); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	started := &child{cmd.Process, make(chan struct{})}
	s.children[name] = started
	s.wanted[name] = true
	go func() {
		err := cmd.Wait()
		s.mu.Lock()
		delete(s.children, name)
		again := s.wanted[name]
		s.mu.Unlock()
		close(started.done)
		if again {
			fmt.Fprintf(os.Stderr, "%s ended (%v); starting it again, see %s\n", name, err, s.config.Path("logs", name+".log"))
			time.Sleep(time.Second)
			if err := s.start(name); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	return nil
}

// kill ends a component, as a crash would, and leaves it ended.
func (s *supervisor) kill(name string) {
	s.mu.Lock()
	s.wanted[name] = false
	running := s.children[name]
	s.mu.Unlock()
	if running != nil {
		running.process.Kill()
		<-running.done
	}
	if name == nodeName {
		enter.Marks{State: s.config.State, Containers: true}.Kill(5 * time.Second)
	}
}

func (s *supervisor) killAll() {
	for _, name := range []string{nodeName, schedulerName, controllersName, apiserverName} {
		s.kill(name)
	}
}
