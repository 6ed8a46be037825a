package durable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// closedDirectory is what the pinned kfake leaves on a clean Close: every kind
// of file, segments that rolled, committed, aborted and open transactions,
// staged offsets, an idempotent producer.
func closedDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b := startHere(t, dir, "")
	c := dial(t, b.addr(), false)
	setSegmentBytes(t, c)
	ctx := t.Context()
	x, err := c.init(ctx, "x", unlimited)
	must(t, err)
	for i := range 12 {
		c.write(t, x, int32(i%3), fmt.Sprint("x", i), "twin")
		must(t, c.stage(ctx, x, group, int64(i)))
		must(t, c.end(ctx, x, i%4 != 3))
	}
	old := dial(t, b.addr(), true)
	y, err := old.init(ctx, "y", 60_000)
	must(t, err)
	old.write(t, y, 0, "y committed")
	must(t, old.end(ctx, y, true))
	old.write(t, y, 0, "y aborted")
	must(t, old.end(ctx, y, false))
	old.write(t, y, 0, "y open")
	must(t, old.stage(ctx, y, group, 77))
	c.write(t, x, 1, "x open")
	c.write(t, x, 2, "x open")
	idempotent, err := c.initIdempotent(ctx)
	must(t, err)
	for i := range int32(3) {
		_, err := c.produce(ctx, idempotent, 1, i, "idempotent")
		must(t, err)
	}
	c.cl.Close()
	old.cl.Close()
	must(t, b.stop())
	return dir
}

func TestCleanDirectoryIsUntouched(t *testing.T) {
	dir := closedDirectory(t)
	before := contents(t, dir)
	report, err := durable.Repair(dir, time.Now(), zerolog.Nop())
	must(t, err)
	if diff := differing(before, contents(t, dir)); report.Changed || len(diff) > 0 {
		t.Errorf("changed %v", diff)
	}
	if len(report.Open) != 2 || len(report.Finished) != 0 {
		t.Errorf("open %+v, finished %+v", report.Open, report.Finished)
	}
	for name := range before {
		if base := filepath.Base(name); !slices.Contains(knownFiles, base) && !strings.HasSuffix(base, ".dat") && !strings.HasSuffix(base, ".idx") {
			t.Errorf("kfake wrote a file that nobody here knows: %s", name)
		}
	}
}

var knownFiles = []string{
	"meta.json", "topics.json", "acls.json", "sasl.json", "broker_configs.json", "quotas.json", "groups.log",
	"pids.log", "seq_windows.json", "session_state.json", "snapshot.json", "transactions.journal",
}

// What Close wrote is taken away and worked out again from the logs: it must
// mean the same. This test fails when a kfake update changes what Close writes.
func TestRepairWritesWhatCloseWrites(t *testing.T) {
	dir := closedDirectory(t)
	closed := contents(t, dir)
	for name := range closed {
		switch filepath.Base(name) {
		case "snapshot.json", "session_state.json":
			must(t, os.Remove(name))
		case "seq_windows.json":
			must(t, os.WriteFile(name, []byte(`{"version":1,"windows":null}`), 0o600))
		}
	}
	repaired(t, dir)
	mended := contents(t, dir)
	if got, want := slices.Sorted(maps.Keys(mended)), slices.Sorted(maps.Keys(closed)); !slices.Equal(withoutEmpty(got, closed), withoutEmpty(want, closed)) {
		t.Errorf("files differ:\n%v\n%v", got, want)
	}
	compared := 0
	for name, raw := range closed {
		got, ok := mended[name]
		if !ok {
			continue
		}
		if strings.HasSuffix(name, ".json") {
			compared++
			if a, b := meaning(t, name, got), meaning(t, name, raw); !reflect.DeepEqual(a, b) {
				t.Errorf("%s\n we %v\nthey %v", name, a, b)
			}
		} else if got != raw {
			t.Errorf("%s differs", name)
		}
	}
	if compared < 10 {
		t.Errorf("only %d files compared", compared)
	}
}

// withoutEmpty leaves out the snapshots of partitions that were never written
// to: kfake reads none of them.
func withoutEmpty(names []string, closed map[string]string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return filepath.Base(name) == "snapshot.json" && strings.Contains(closed[name], `"segments":null`)
	})
}

// meaning is a file without what kfake computes anew when it loads it: times,
// and the order of lists that are sets.
func meaning(t *testing.T, name, raw string) map[string]any {
	t.Helper()
	var v map[string]any
	must(t, json.Unmarshal([]byte(raw), &v))
	switch filepath.Base(name) {
	case "snapshot.json":
		delete(v, "created_at")
	case "session_state.json":
		for _, key := range []string{"shutdownAt", "fetchSessions"} {
			delete(v, key)
		}
		for _, txn := range v["inProgressTxns"].([]any) {
			delete(txn.(map[string]any), "txStart")
		}
		sortJSON(v["inProgressTxns"])
	case "seq_windows.json":
		sortJSON(v["windows"])
	}
	return v
}

func sortJSON(list any) {
	if list, ok := list.([]any); ok {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	good := closedDirectory(t)
	snapshot := filepath.Join("partitions", "t-0", "snapshot.json")
	for _, c := range []struct{ file, old, with string }{
		{"meta.json", `"version":1`, `"version":2`},
		{"topics.json", `"version":1`, `"version":2`},
		{"seq_windows.json", `"version":1`, `"version":2`},
		{snapshot, `"version":1`, `"version":2`},
		{snapshot, `"version":1`, `"version":1,"leader_log":3`},
		{"topics.json", `"version":1`, `"version":1,"log_ends":{}`},
		{"session_state.json", `"shutdownAt"`, `"prepared":[],"shutdownAt"`},
		{"session_state.json", `"txStart"`, `"keepPrepared":true,"txStart"`},
	} {
		t.Run(c.file+c.with, func(t *testing.T) {
			dir := copyOf(t, good)
			edit(t, filepath.Join(dir, c.file), c.old, c.with)
			refused(t, dir, durable.ErrLayout, filepath.Base(c.file))
		})
	}
	for _, name := range []string{"txn_state.log", "offsets.json", filepath.Join("partitions", "t-0", "0.txnindex")} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, good)
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600))
			refused(t, dir, durable.ErrLayout, filepath.Base(name))
		})
	}
	t.Run("log entries", func(t *testing.T) {
		for _, name := range []string{"pids.log", "groups.log"} {
			dir := copyOf(t, good)
			appendEntry(t, filepath.Join(dir, name), 2, `{"type":"init"}`)
			refused(t, dir, durable.ErrLayout, name)
			dir = copyOf(t, good)
			appendEntry(t, filepath.Join(dir, name), 1, `{"type":"prepare"}`)
			refused(t, dir, durable.ErrLayout, name)
		}
	})
	t.Run("data without meta.json", func(t *testing.T) {
		dir := copyOf(t, good)
		must(t, os.Remove(filepath.Join(dir, "meta.json")))
		refused(t, dir, durable.ErrLayout, "meta.json")
	})
}

// refused checks that Repair refuses, names the file, and changes nothing.
func refused(t *testing.T, dir string, want error, name string) {
	t.Helper()
	before := contents(t, dir)
	_, err := durable.Repair(dir, time.Now(), zerolog.Nop())
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), name) {
		t.Errorf("Repair: %v, want %v naming %s", err, want, name)
	}
	if diff := differing(before, contents(t, dir)); len(diff) > 0 {
		t.Errorf("a refused directory was changed: %v", diff)
	}
}

func setSegmentBytes(t *testing.T, c *rawClient) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	conf.Name, conf.Value = "segment.bytes", kmsg.StringPtr("300")
	r.Configs = append(r.Configs, conf)
	req.Resources = append(req.Resources, r)
	resp, err := send[*kmsg.IncrementalAlterConfigsResponse](t.Context(), c, req)
	must(t, err)
	must(t, kerr.ErrorForCode(resp.Resources[0].ErrorCode))
}
