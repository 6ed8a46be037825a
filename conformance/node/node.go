// Package node runs processes of the system under test: mini-brokers, and
// whatever else has to be killed or frozen.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a child process.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// Spawn starts a command.
func Spawn(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Running reports that the process has not ended; a frozen one is running.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ExitCode is that of a process that has ended; -1 when a signal ended it.
func (p *Process) ExitCode() int {
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

// Kill ends the process at once and waits for its end.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

// Stop ends the process politely, also a frozen one, and at once when that does
// not help.
func (p *Process) Stop() {
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.Kill()
	}
}

// Node is a mini-broker. It can be started again after its end.
type Node struct {
	Name string
	Addr string // that it listens on, and not what it advertises
	*Process
	binary, dir, properties string
}

// New writes the properties file of a node, by its name, into dir.
func New(binary, dir, name, addr string, properties []string) (*Node, error) {
	n := &Node{Name: name, Addr: addr, binary: binary, dir: dir, properties: filepath.Join(dir, name+".properties")}
	return n, os.WriteFile(n.properties, []byte(strings.Join(properties, "\n")+"\n"), 0o600)
}

// Log is the path of what the node has logged, over all its lives.
func (n *Node) Log() string { return filepath.Join(n.dir, n.Name+".log") }

// lastWords are the last lines of the log, whose directory is often gone when
// somebody reads the error.
func (n *Node) lastWords() string {
	text, err := os.ReadFile(n.Log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// startTimeout is how long a node may take to serve clients, on a machine that
// does many other things too.
const startTimeout = 2 * time.Minute

// Start runs the node and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	ready := filepath.Join(n.dir, n.Name+".ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, n.binary, n.properties, "--ready-file", ready)
	cmd.Stdout, cmd.Stderr = log, log
	if n.Process, err = Spawn(cmd); err != nil {
		return fmt.Errorf("node: start %s: %w", n.Name, err)
	}
	for began := time.Now(); ; {
		if _, err := os.Stat(ready); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.exited:
			return fmt.Errorf("node: %s ended before it was ready: %w\n%s", n.Name, n.err, n.lastWords())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(began) > startTimeout {
			return fmt.Errorf("node: %s was not ready in %v (its log: %s)", n.Name, startTimeout, n.Log())
		}
	}
}
