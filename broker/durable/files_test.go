package durable_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// backdate sets the time of every file.
func backdate(t *testing.T, dir string, at time.Time) {
	t.Helper()
	for name := range contents(t, dir) {
		must(t, os.Chtimes(name, at, at))
	}
}

func segmentPath(dir string, partition int32) string {
	return filepath.Join(dir, "partitions", fmt.Sprintf("t-%d", partition), "0.dat")
}

// cutLastBatch takes the last batch off a segment, as if the process had died
// before it was written.
func cutLastBatch(t *testing.T, dir string, partition int32) {
	t.Helper()
	path := segmentPath(dir, partition)
	raw, err := os.ReadFile(path)
	must(t, err)
	last := 0
	for at := 0; at < len(raw); at += 12 + int(binary.BigEndian.Uint32(raw[at+8:])) {
		last = at
	}
	must(t, os.Truncate(path, int64(last)))
}

// cutEntries takes the last n entries off a framed log.
func cutEntries(t *testing.T, path string, n int) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	var starts []int
	for at := 0; at < len(raw); at += 8 + int(binary.LittleEndian.Uint32(raw[at:])) {
		starts = append(starts, at)
	}
	if len(starts) < n {
		t.Fatalf("%s has %d entries, cannot cut %d", path, len(starts), n)
	}
	if n > 0 {
		must(t, os.Truncate(path, int64(starts[len(starts)-n])))
	}
}

// each calls do for every entry of a framed log.
func each(t *testing.T, path string, do func(entry json.RawMessage)) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	for at := 0; at < len(raw); {
		n := 8 + int(binary.LittleEndian.Uint32(raw[at:]))
		do(raw[at+10 : at+n])
		at += n
	}
}

// frameKinds lists the entries of a framed log by the value of a field.
func frameKinds(t *testing.T, path, field string) []string {
	t.Helper()
	var kinds []string
	each(t, path, func(data json.RawMessage) {
		var entry map[string]any
		must(t, json.Unmarshal(data, &entry))
		kinds = append(kinds, fmt.Sprint(entry[field]))
	})
	return kinds
}

// edit replaces a string in a file, once.
func edit(t *testing.T, path, old, with string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(raw), old) {
		t.Fatalf("%s has no %q: %s", path, old, raw)
	}
	must(t, os.WriteFile(path, []byte(strings.Replace(string(raw), old, with, 1)), 0o600))
}
