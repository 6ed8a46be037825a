package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

const properties = `clusters=us,eu
us.bootstrap.servers=127.0.0.1:1
eu.bootstrap.servers=127.0.0.1:1
gtc.bootstrap.servers=127.0.0.1:1
us->eu.enabled=true
instance.id=one
`

func execute(ctx context.Context, t *testing.T, log io.Writer, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command(zerolog.New(log))
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLine(t *testing.T) {
	help, err := execute(t.Context(), t, io.Discard, "--help-config")
	if err != nil || !strings.Contains(help, "[<source>-><target>.]topics (") {
		t.Errorf("%v\n%s", err, help)
	}
	if _, err := execute(t.Context(), t, io.Discard, "--check", write(t, properties)); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name the properties file"},
		{[]string{"/no/such/file"}, "no such file"},
		{[]string{write(t, properties+"topcis=x\n")}, "mirror.properties:7: topcis: unknown key; did you mean topics?"},
		{[]string{write(t, properties), "--override", "us->eu.topics=("}, "--override: us->eu.topics: "},
	} {
		if _, err := execute(t.Context(), t, io.Discard, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// Clusters that are away are waited for, and the end that was asked for is no
// error.
func TestEndsWhenTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	log := &watched{until: cancel, words: []string{"the flow begins again", "cluster us"}}
	if _, err := execute(ctx, t, log, write(t, properties)); err != nil {
		t.Error(err)
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("log: %s", log.text)
	}
}

// watched calls until when all words were written.
type watched struct {
	until func()
	words []string
	mu    sync.Mutex
	text  []byte
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if !slices.ContainsFunc(w.words, func(word string) bool { return !bytes.Contains(w.text, []byte(word)) }) {
		w.until()
	}
	return len(p), nil
}
