package enter

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// KillMarked kills every process whose environment holds all of the given
// entries, and waits until there is none. An entry that ends in "=" matches any
// value. It is how processes are found that left their container's session and
// lost their parent.
func KillMarked(patience time.Duration, entries ...string) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		pids := Marked(entries...)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Marked lists the living processes, except this one, whose environment holds
// all of the given entries.
func Marked(entries ...string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if pid == os.Getpid() {
			continue
		}
		// The environment of a zombie is empty.
		if environ, err := os.ReadFile(file); err == nil && holds(environ, entries) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func holds(environ []byte, entries []string) bool {
	environ = append([]byte{0}, environ...)
	for _, entry := range entries {
		wanted := "\x00" + entry
		if entry[len(entry)-1] != '=' {
			wanted += "\x00"
		}
		if !bytes.Contains(environ, []byte(wanted)) {
			return false
		}
	}
	return true
}
