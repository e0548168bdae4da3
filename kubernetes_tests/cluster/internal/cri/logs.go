package cri

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLogLine is where containerd cuts a line into partial ones.
const maxLogLine = 16 * 1024

// logFile is a container's log in the format that the kubelet reads: a time, the
// stream, P for a partial line or F for a full one, and the text.
type logFile struct {
	path string
	mu   sync.Mutex
	file *os.File
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.reopen()
}

func (l *logFile) reopen() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.file = file
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.Close()
}

// copyFrom writes a stream of the container until its end.
func (l *logFile) copyFrom(stream string, r io.Reader) {
	reader := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 {
			tag := "P"
			if line[len(line)-1] == '\n' {
				tag, line = "F", line[:len(line)-1]
			} else if err == io.EOF {
				tag = "F"
			}
			l.mu.Lock()
			fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().Format(time.RFC3339Nano), stream, tag, line)
			l.mu.Unlock()
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}
