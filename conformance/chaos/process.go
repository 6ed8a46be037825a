package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

// process is one of ours: a coordinator node or a client.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

func spawn(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once and waits for its end.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

// stop ends the process politely, and at once when that does not help.
func (p *process) stop() {
	_ = p.signal(syscall.SIGTERM)
	_ = p.signal(syscall.SIGCONT)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.kill()
	}
}

// node is a mini-broker with the gtc role.
type node struct {
	name, addr             string
	binary, dir, propsPath string
	*process
}

// newNode writes the node's properties.
func newNode(binary, dir, name, addr string, properties []string) (*node, error) {
	n := &node{name: name, addr: addr, binary: binary, dir: dir, propsPath: filepath.Join(dir, name+".properties")}
	return n, os.WriteFile(n.propsPath, []byte(strings.Join(properties, "\n")+"\n"), 0o600)
}

// start runs the node and waits until it is ready.
func (n *node) start(ctx context.Context) error {
	ready, logPath := filepath.Join(n.dir, n.name+".ready"), filepath.Join(n.dir, n.name+".log")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, n.binary, n.propsPath, "--ready-file", ready)
	cmd.Stdout, cmd.Stderr = log, log
	if n.process, err = spawn(cmd); err != nil {
		return fmt.Errorf("chaos: start %s: %w", n.name, err)
	}
	for began := time.Now(); ; sleep(ctx, 10*time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !n.running():
			return fmt.Errorf("chaos: %s ended before it was ready (its log: %s): %w", n.name, logPath, n.err)
		case time.Since(began) > 30*time.Second:
			return fmt.Errorf("chaos: %s was not ready in 30 s (its log: %s)", n.name, logPath)
		}
	}
}

// worker is a client of the load: a process of this binary, with its input to
// tell it to run or to rest, and its output for the history.
type worker struct {
	options LoadOptions
	dir     string
	*process
	stdin io.WriteCloser

	mu      sync.Mutex
	events  []history.Event // of all incarnations
	resting bool
	read    sync.WaitGroup
	readErr error
}

// start begins a new incarnation, which rests.
func (w *worker) start(ctx context.Context) error {
	w.options.Incarnation++
	args, err := json.Marshal(w.options)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s.%d", w.options.ID, w.options.Incarnation)
	stderr, err := os.Create(filepath.Join(w.dir, name+".stderr"))
	if err != nil {
		return err
	}
	defer func() { _ = stderr.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "load", string(args))
	cmd.Stderr = stderr
	if w.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	// Not StdoutPipe: Wait would close it before the last events are read.
	r, out, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = out
	w.process, err = spawn(cmd)
	_ = out.Close()
	if err != nil {
		_ = r.Close()
		return fmt.Errorf("chaos: start client %s: %w", name, err)
	}
	w.setResting(true)
	w.read.Add(1)
	go w.take(r)
	return nil
}

// take reads one incarnation's events to their end, and keeps a copy in a file
// for those who look for a cause.
func (w *worker) take(r io.ReadCloser) {
	defer w.read.Done()
	defer func() { _ = r.Close() }()
	file, err := os.OpenFile(filepath.Join(w.dir, w.options.ID+".history"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		defer func() { _ = file.Close() }()
		err = history.Scan(io.TeeReader(r, file), func(e history.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if e.Kind == history.Rest {
				w.resting = true
				return
			}
			w.events = append(w.events, e)
		})
	}
	if err != nil {
		w.mu.Lock()
		w.readErr = errors.Join(w.readErr, err)
		w.mu.Unlock()
	}
}

func (w *worker) setResting(resting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = resting
}

// say sends a command; a client that is dead does not hear it.
func (w *worker) say(command string) {
	_, _ = io.WriteString(w.stdin, command+"\n")
}

func (w *worker) run() {
	w.setResting(false)
	w.say("run")
}

// idle reports that the client is dead or has nothing open.
func (w *worker) idle() bool {
	if !w.running() {
		w.read.Wait()
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resting
}

// history is all that the client has done so far.
func (w *worker) history() ([]history.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[:len(w.events):len(w.events)], w.readErr
}
