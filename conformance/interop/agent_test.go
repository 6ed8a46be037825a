//go:build kafka

package interop

import (
	"bufio"
	"bytes"
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
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/node"
)

// agent is a process with a foreign client, commanded line by line.
type agent struct {
	*node.Process
	stderr string // path

	mu     sync.Mutex
	stdin  io.Writer
	stdout *bufio.Reader
}

// answer is a line of JSON of an agent.
type answer struct {
	OK            bool
	Error         string
	ProducerID    int64
	ProducerEpoch int16
	Values        []string
}

// newJava starts conformance/java.
func newJava(t *testing.T) *agent {
	t.Helper()
	classPath := script(t, "../java/build")
	return newAgent(t, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classPath, "interop.Main")
}

// newPython starts the reader of a Python client.
func newPython(t *testing.T, client string) *agent {
	t.Helper()
	venv := script(t, "python/venv")
	return newAgent(t, filepath.Join(venv, "bin", "python"), "python/read.py", client)
}

// script runs a script that prepares something in the cache and prints where.
func script(t *testing.T, path string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", path, err, stderr.Bytes())
	}
	return strings.TrimSpace(stdout.String())
}

func newAgent(t *testing.T, command string, args ...string) *agent {
	t.Helper()
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stderr.Close() }()
	cmd := exec.CommandContext(context.Background(), command, args...) // it ends after t.Context does
	cmd.Stderr = stderr
	a := &agent{stderr: stderr.Name()}
	if a.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.stdout = bufio.NewReader(stdout)
	if a.Process, err = node.Spawn(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Kill() }) // it has nothing to say in the end
	return a
}

// refusedError is the foreign client's own error.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// ask sends a command and returns the answer to it; ctx's end is the agent's.
func (a *agent) ask(ctx context.Context, words ...string) (answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = a.Kill() })
	defer stop()
	var ans answer
	_, err := io.WriteString(a.stdin, strings.Join(words, " ")+"\n")
	if err == nil {
		var line []byte
		if line, err = a.stdout.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &ans)
		}
	}
	if err == nil && !ans.OK {
		return ans, &refusedError{ans.Error}
	}
	if err != nil {
		log, _ := os.ReadFile(a.stderr)
		return ans, fmt.Errorf("no answer: %w\n%s", errors.Join(err, ctx.Err()), tail(log, 20))
	}
	return ans, nil
}

func tail(log []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// must is ask for those whose test ends with an error.
func (a *agent) must(t *testing.T, words ...string) answer {
	t.Helper()
	ans, err := a.ask(deadline(t), words...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return ans
}
