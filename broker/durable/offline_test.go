package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// takenOffline runs Repair on a directory of which one partition is damaged, in
// the file named, and checks that its files are kept as they are.
func takenOffline(t *testing.T, dir, name string) durable.Offline {
	t.Helper()
	was := copyOf(t, filepath.Join(dir, "partitions", "t-0"))
	report, err := durable.Repair(dir, time.Now(), zerolog.Nop())
	must(t, err)
	if len(report.Offline) != 1 {
		t.Fatalf("offline are %+v, want t-0", report.Offline)
	}
	o := report.Offline[0]
	if o.Topic != "t" || o.Partition != 0 || !errors.Is(o.Damage, durable.ErrDamaged) || !strings.Contains(o.Damage.Error(), name) {
		t.Errorf("offline is %+v, want t-0 because of %s", o, name)
	}
	if _, err := os.Stat(filepath.Join(dir, "partitions", "t-0")); !os.IsNotExist(err) {
		t.Errorf("kfake would open the files: %v", err)
	}
	want, have := contents(t, was), contents(t, o.Dir)
	if len(want) != len(have) {
		t.Errorf("%d files of %d are kept", len(have), len(want))
	}
	for path, text := range want {
		if kept := have[filepath.Join(o.Dir, strings.TrimPrefix(path, was))]; kept != text {
			t.Errorf("%s was changed", path)
		}
	}
	return o
}

// damaged is a directory of which partition 0 of t is damaged, and whole a copy of
// that partition from before. Partition 1 has a record.
func damaged(t *testing.T) (dir, whole string) {
	t.Helper()
	dir = t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, false)
	x, err := c.init(t.Context(), "x", unlimited)
	must(t, err)
	for _, v := range []string{"v0", "v1", "v2"} {
		c.write(t, x, 0, v)
	}
	c.write(t, x, 1, "w")
	must(t, c.end(t.Context(), x, true))
	p.kill(t)
	whole = copyOf(t, filepath.Join(dir, "partitions", "t-0"))
	flip(t, segmentPath(dir, 0), 100)
	return dir, whole
}

func TestADamagedPartitionIsOfflineUntilItIsMended(t *testing.T) {
	segment := filepath.Join("partitions", "t-0", "0.dat")
	for name, mend := range map[string]func(t *testing.T, dir, aside, whole string){
		"where it is": func(t *testing.T, _, aside, whole string) {
			t.Helper()
			must(t, os.RemoveAll(aside))
			must(t, os.CopyFS(aside, os.DirFS(whole)))
		},
		"in its place": func(t *testing.T, dir, _, whole string) {
			t.Helper()
			place := filepath.Join(dir, "partitions", "t-0")
			must(t, os.RemoveAll(place))
			must(t, os.CopyFS(place, os.DirFS(whole)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, whole := damaged(t)
			o := takenOffline(t, dir, segment)
			// Over a stop, at which kfake writes down that the partition is empty,
			// and over a kill.
			b := startHere(t, dir, "")
			wantValues(t, b.addr(), 1, "w")
			must(t, b.stop())
			report, err := durable.Repair(dir, time.Now(), zerolog.Nop())
			must(t, err)
			if len(report.Offline) != 1 {
				t.Fatalf("after a stop: %+v", report.Offline)
			}
			p := startProcess(t, dir, "")
			wantValues(t, p.addr, 1, "w")
			p.kill(t)
			mend(t, dir, o.Dir, whole)
			if report = repaired(t, dir); len(report.Offline) != 0 {
				t.Fatalf("mended, and %+v", report.Offline)
			}
			b = startHere(t, dir, "")
			wantValues(t, b.addr(), 0, "v0", "v1", "v2")
			wantValues(t, b.addr(), 1, "w")
		})
	}
}

// A new topic of the same name begins anew.
func TestFilesOfADeletedTopicDoNotComeBack(t *testing.T) {
	dir, _ := damaged(t)
	o := takenOffline(t, dir, filepath.Join("partitions", "t-0", "0.dat"))
	b := startHere(t, dir, "")
	must(t, b.cluster.DeleteTopic("t"))
	must(t, b.cluster.CreateTopic("t", 2, nil))
	must(t, b.stop())
	if report := repaired(t, dir); len(report.Offline) != 0 {
		t.Errorf("offline are %+v", report.Offline)
	}
	aside, err := filepath.Glob(o.Dir + ".*-stray")
	must(t, err)
	if len(aside) != 1 {
		t.Errorf("set aside are %v", aside)
	}
	b = startHere(t, dir, "")
	if end := dial(t, b.addr(), false).endOffset(t, 0, 0); end != 0 {
		t.Errorf("the new topic ends at %d", end)
	}
}

// The coordinator's log is not served without one of its partitions.
func TestDamageOfTheNodesOwnTopicsIsRefused(t *testing.T) {
	dir, _ := damaged(t)
	edit(t, filepath.Join(dir, "topics.json"), `"name":"t"`, `"name":"__global_transaction_state"`)
	for _, n := range []string{"-0", "-1"} {
		must(t, os.Rename(filepath.Join(dir, "partitions", "t"+n), filepath.Join(dir, "partitions", "__global_transaction_state"+n)))
	}
	refused(t, dir, durable.ErrDamaged, filepath.Join("__global_transaction_state-0", "0.dat"))
}
