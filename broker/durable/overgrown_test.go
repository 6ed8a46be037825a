package durable_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The node never writes these logs anew while it serves, so a start does: what
// counts is there afterwards, and once.
func TestALogOfManyOldEntriesIsWrittenAnewAtTheStart(t *testing.T) {
	dir, x := crashedDirectory(t)
	pids, groups := filepath.Join(dir, "pids.log"), filepath.Join(dir, "groups.log")
	// As many ids that live, and one that began again and again.
	for i := range 300 {
		appendEntry(t, pids, 1, fmt.Sprintf(`{"type":"init","pid":%d,"epoch":0,"txid":"live-%d","timeout":60000}`, 5000+i, i))
	}
	for epoch := range 2000 {
		appendEntry(t, pids, 1, fmt.Sprintf(`{"type":"init","pid":4000,"epoch":%d,"txid":"again","timeout":60000}`, epoch))
		appendEntry(t, groups, 1, fmt.Sprintf(`{"type":"commit","g":"again","t":"source","o":%d,"m":"m","lc":1}`, epoch))
	}
	for _, e := range []string{
		`{"type":"meta","g":"again","typ":"classic","gen":7}`,
		`{"type":"static","g":"again","instance":"stays","member":"a"}`,
		`{"type":"static","g":"again","instance":"leaves","member":"b"}`,
		`{"type":"static","g":"again","instance":"leaves"}`,
		`{"type":"commit","g":"again","t":"source","p":3,"o":9}`,
		`{"type":"delete","g":"again","t":"source","p":3}`,
	} {
		appendEntry(t, groups, 1, e)
	}
	before := size(t, pids) + size(t, groups)
	repaired(t, dir)
	if after := size(t, pids) + size(t, groups); after > before/5 {
		t.Errorf("%d bytes of logs, %d before", after, before)
	}
	want := []string{
		`{"type":"commit","g":"again","t":"source","o":1999,"m":"m","lc":1}`,
		`{"type":"meta","g":"again","typ":"classic","gen":7}`,
		`{"type":"static","g":"again","instance":"stays","member":"a"}`,
	}
	if got := entriesOf(t, groups); !slices.Equal(got, want) {
		t.Errorf("groups.log has %s, want %s", got, want)
	}

	b := startHere(t, dir, "")
	c := dial(t, b.addr(), false)
	epochs := make(map[string]int16)
	for _, id := range []string{"again", "live-0", "live-299"} {
		epochs[id] = c.describe(t, id).ProducerEpoch
	}
	if want := map[string]int16{"again": 1999, "live-0": 0, "live-299": 0}; !maps.Equal(epochs, want) {
		t.Errorf("epochs are %v, want %v", epochs, want)
	}
	if got := c.committed(t, "again"); got != 1999 {
		t.Errorf("the group is at %d", got)
	}
	must(t, c.end(t.Context(), x, true)) // open all the while
	wantValues(t, b.addr(), 0, "v0", "v1", "v2", "v3")
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// entriesOf lists the entries of a framed log as they are.
func entriesOf(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	each(t, path, func(entry json.RawMessage) { all = append(all, string(entry)) })
	return all
}
