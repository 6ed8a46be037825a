package interop

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// patience bounds what takes a second on an idle machine.
const patience = 2 * time.Minute

func buildMinibroker(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "minibroker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func minibroker(t *testing.T, binary, dir, name string, properties ...string) *node.Node {
	t.Helper()
	addr := freeAddr(t)
	n, err := node.New(binary, dir, name, addr, append(properties, "listeners=PLAINTEXT://"+addr, "log.dirs="+filepath.Join(dir, name)))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil { // it ends after t.Context does
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Stop() })
	return n
}

// freeAddr stays below the ports that systems give to outgoing connections: one
// of those could sit on it before the node does.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := node.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func values(records []readback.Record) []string {
	var vs []string
	for _, rec := range records {
		vs = append(vs, rec.Value)
	}
	return vs
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
