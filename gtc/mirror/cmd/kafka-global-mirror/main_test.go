package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var log bytes.Buffer
	if _, err := execute(ctx, t, &log, write(t, properties)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "the flow begins again") || !strings.Contains(log.String(), "cluster us") {
		t.Errorf("log: %s", log.String())
	}
}

func TestMetricsAreServed(t *testing.T) {
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirror_test"})
	registry.MustRegister(gauge)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	stop, err := serveMetrics(t.Context(), addr, registry, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "mirror_test 0") {
		t.Errorf("%v: %s", err, body)
	}
}
