package cri

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watchMemory stands for the kernel's memory limits: a container that is over
// its limit is killed. It looks a few times a second, so a process may be over
// the limit for a moment.
func (r *Runtime) watchMemory() {
	orphans := map[int]bool{}
	for look := 0; ; look++ {
		time.Sleep(200 * time.Millisecond)
		if look%10 == 0 {
			orphans = r.buryOrphans(orphans)
		}
		limits := map[int]*container{}
		for _, c := range r.list() {
			if pid := c.runningPID(); pid != 0 && c.memoryLimit() > 0 {
				limits[pid] = c
			}
		}
		// To read all processes of the machine costs a tenth of a processor.
		if len(limits) == 0 {
			continue
		}
		sessions := readSessions()
		for pid, c := range limits {
			limit := uint64(c.memoryLimit())
			// The resident sizes count shared pages more than once; the
			// proportional sizes do not, but take longer to read.
			if sessions[pid].resident > limit && proportional(sessions[pid].pids) > limit {
				c.mu.Lock()
				c.oomKilled = true
				c.mu.Unlock()
				syscall.Kill(-pid, syscall.SIGKILL)
			}
		}
	}
}

// buryOrphans waits for processes that ended after their parent did. Those that
// the node started itself are waited for where they are started. What it returns
// is looked at again next time: a process may be younger than the list of those.
func (r *Runtime) buryOrphans(seen map[int]bool) map[int]bool {
	zombies := map[int]bool{}
	for _, p := range readProcesses() {
		if p.state != "Z" || p.parent != os.Getpid() {
			continue
		}
		r.mu.Lock()
		own := r.started[p.pid]
		r.mu.Unlock()
		switch {
		case own:
		case seen[p.pid]:
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		default:
			zombies[p.pid] = true
		}
	}
	return zombies
}

func (c *container) runningPID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return c.pid
	}
	return 0
}

func (c *container) memoryLimit() int64 {
	return c.config.GetLinux().GetResources().GetMemoryLimitInBytes()
}

// session is what the processes of one session use.
type session struct {
	pids     []int
	resident uint64
}

// readSessions reads the sessions of all processes.
func readSessions() map[int]session {
	sessions := map[int]session{}
	for _, p := range readProcesses() {
		s := sessions[p.session]
		s.pids = append(s.pids, p.pid)
		s.resident += p.resident
		sessions[p.session] = s
	}
	return sessions
}

// process is what is read of /proc/PID/stat.
type process struct {
	pid, parent, session int
	state                string
	resident             uint64
}

func readProcesses() []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var processes []process
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything; fields follow the last one.
		// https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) < 22 {
			continue
		}
		p := process{state: fields[0]}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		p.parent, _ = strconv.Atoi(fields[1])
		p.session, _ = strconv.Atoi(fields[3])
		pages, _ := strconv.ParseUint(fields[21], 10, 64)
		p.resident = pages * uint64(os.Getpagesize())
		processes = append(processes, p)
	}
	return processes
}

// proportional is the sum of the proportional set sizes.
func proportional(pids []int) uint64 {
	var sum uint64
	for _, pid := range pids {
		file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		scanner := bufio.NewScanner(file)
		for scanner.Scan() {
			if rest, found := strings.CutPrefix(scanner.Text(), "Pss:"); found {
				kilobytes, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
				sum += kilobytes * 1024
				break
			}
		}
		file.Close()
	}
	return sum
}
