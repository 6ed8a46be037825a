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
	"slices"
	"sync"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
)

// worker is a client of the load: a process of this binary, with its input to
// tell it to run or to rest, and its output for the history.
type worker struct {
	options LoadOptions
	dir     string
	*node.Process
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
	w.Process, err = node.Spawn(cmd)
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
	if !w.Running() {
		w.read.Wait()
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resting
}

// committed reports that the client was told so of any transaction.
func (w *worker) committed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.events, func(e history.Event) bool { return e.Result == history.Committed })
}

// history is all that the client has done so far.
func (w *worker) history() ([]history.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[:len(w.events):len(w.events)], w.readErr
}
