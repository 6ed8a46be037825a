package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/topiclog"
)

// homeWithLog is a home cluster on dir whose log has one partition, with the ids pay
// and other at offsets 1 and 2.
func homeWithLog(t *testing.T, dir string) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(dir), kfake.SyncWrites())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l, err := topiclog.Open(t.Context(), topiclog.Options{
		ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Partitions: 1, ReplicationFactor: 1, MinInsyncReplicas: 1,
		Create: true, Logger: zerolog.Nop(), Clock: clock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w, err := l.Claim(t.Context(), 0, func(txnlog.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"pay", "other"} {
		done := make(chan error, 1)
		value := &txnlog.GlobalTransaction{State: txnlog.StatePrepareCommit, Sequence: 4711}
		w.Append([]txnlog.Record{{GlobalTransactionalID: id, Value: value}}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// tool runs the command line and returns what it printed.
func tool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTheLogIsVerifiedAndMendedByTheTool(t *testing.T) {
	c := homeWithLog(t, t.TempDir())
	on := func(args ...string) (string, error) {
		t.Helper()
		return tool(t, append([]string{"--bootstrap-server", c.ListenAddrs()[0], "log"}, args...)...)
	}
	if out, err := on("--verify"); err != nil || out != "partition 0: 3 records, nothing wrong\n" {
		t.Fatalf("printed %q, %v", out, err)
	}
	stranger, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	key, err := txnlog.AppendKey(nil, "pay")
	if err != nil {
		t.Fatal(err)
	}
	if err = stranger.ProduceSync(t.Context(), &kgo.Record{Topic: txnlog.Topic, Key: key}).FirstErr(); err != nil { // 3
		t.Fatal(err)
	}
	out, err := on("--verify")
	if err == nil || !strings.Contains(out, `partition 0, offset 3: record about global transactional id "pay"`) {
		t.Fatalf("printed %q, %v", out, err)
	}
	for _, wrong := range [][]string{
		{"--take-out", "other", "--offset", "2"},
		{"--take-out", "pay", "--offset", "1"},
		{"--take-out", "pay"},
		{"--accept-loss", "3-3", "--partition", "0"},
		{"--accept-loss", "3", "--partition", "0"},
		{"--accept-loss", "3-3"},
		{"--verify", "--dump"},
		{"--verify", "--partition", "1"},
		{},
	} {
		if out, err := on(wrong...); err == nil {
			t.Errorf("%v printed %q", wrong, out)
		}
	}
	if out, err := on("--take-out", "pay", "--offset", "3"); err != nil || !strings.Contains(out, "forget pay") {
		t.Fatalf("printed %q, %v", out, err)
	}
	if out, err := on("--verify"); err != nil || !strings.Contains(out, "nothing wrong") {
		t.Fatalf("printed %q, %v", out, err)
	}
	if out, err := on("--dump"); err != nil || strings.Count(out, "\n") != 6 || strings.Count(out, `"Detail":"taken out of the log by `) != 1 {
		t.Fatalf("printed %s, %v", out, err)
	}
}

func TestTheFilesOfALogAreVerified(t *testing.T) {
	dir := t.TempDir()
	homeWithLog(t, dir).Close()
	partition := filepath.Join(dir, "partitions", txnlog.Topic+"-0")
	if out, err := tool(t, "log", "--verify", "--dir", partition); err != nil || !strings.Contains(out, "partition 0: 3 records, nothing wrong") {
		t.Fatalf("printed %q, %v", out, err)
	}
	file := filepath.Join(partition, "0.dat")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int) (string, error) {
		t.Helper()
		changed := bytes.Clone(raw)
		changed[at] ^= 1
		if err := os.WriteFile(file, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		return tool(t, "log", "--verify", "--dir", partition)
	}
	first := bytes.Index(raw, []byte("pay"))
	if out, err := change(first); err == nil || !strings.Contains(out, "offsets 1 to 1 cannot be read: the checksum") {
		t.Errorf("printed %q, %v", out, err)
	}
	if out, err := change(7); err == nil || !strings.Contains(out, "offset 0 is corrupt: the batch there says that it ends at offset 1") {
		t.Errorf("printed %q, %v", out, err)
	}
	for _, wrong := range [][]string{{"--dir", dir}, {"--dir", t.TempDir()}, {"--dir", partition, "--take-out", "a", "--offset", "1"}} {
		if out, err := tool(t, append([]string{"log", "--verify"}, wrong...)...); err == nil {
			t.Errorf("%v printed %q", wrong, out)
		}
	}
	if _, err := tool(t, "log", "--verify"); err == nil || !strings.Contains(err.Error(), "--bootstrap-server") {
		t.Errorf("without a place to look: %v", err)
	}
}

// reportHostile prints a record whose texts are hostile, and a doubt.
func reportHostile(p printer) error {
	key, err := txnlog.AppendKey(nil, hostile)
	if err != nil {
		return err
	}
	record := txnlog.RawRecord{Key: key, Value: txnlog.AppendValue(nil, &txnlog.GlobalTransaction{Reason: hostile, ClusterIDs: []string{hostile}})}
	f := logFlags{dump: p.json, verify: !p.json}
	_, err = f.report(p.out, 0, func(visit func(txnlog.RawRecord)) ([]error, error) {
		visit(record)
		return []error{errors.New(hostile)}, nil
	})
	return err
}
