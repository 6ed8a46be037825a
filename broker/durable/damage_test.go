package durable_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// crashedDirectory has one open transaction on partition 0 of one broker
// process that was killed.
func crashedDirectory(t *testing.T) (dir string, x *txn) {
	t.Helper()
	dir = t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, false)
	x, err := c.init(t.Context(), "x", unlimited)
	must(t, err)
	for i := range 4 {
		c.write(t, x, 0, fmt.Sprint("v", i))
	}
	must(t, c.stage(t.Context(), x, group, 3))
	p.kill(t)
	return dir, x
}

func TestUnfinishedLastWriteIsCutOff(t *testing.T) {
	for _, name := range []string{"pids.log", "groups.log", "transactions.journal", "partitions/t-0/0.dat", "partitions/t-0/0.idx"} {
		for _, tail := range []string{"\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "half a batch or an entry, cut short"} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(name), len(tail)), func(t *testing.T) {
				dir, x := crashedDirectory(t)
				appendBytes(t, filepath.Join(dir, name), []byte(tail))
				repaired(t, dir)
				p := startProcess(t, dir, "")
				c := dial(t, p.addr, false)
				c.write(t, x, 0, "v4")
				must(t, c.end(t.Context(), x, true))
				p.kill(t)
				b := startHere(t, dir, "") // what was appended since can be read
				again := *x
				again.epoch--
				must(t, dial(t, b.addr(), false).end(t.Context(), &again, true))
				wantValues(t, b.addr(), 0, "v0", "v1", "v2", "v3", "v4")
				if got := dial(t, b.addr(), false).committed(t, group); got != 3 {
					t.Errorf("group has %d", got)
				}
			})
		}
	}
}

// A batch without its index entry: kfake would let the next batch's entry take
// the place, and every later one be off by one.
func TestMissingIndexEntryIsWritten(t *testing.T) {
	dir, x := crashedDirectory(t)
	index := filepath.Join(dir, "partitions", "t-0", "0.idx")
	want, err := os.ReadFile(index)
	must(t, err)
	must(t, os.Truncate(index, int64(len(want)-15)))
	repaired(t, dir)
	got, err := os.ReadFile(index)
	must(t, err)
	if string(got) != string(want) {
		t.Errorf("index\n% x, want\n% x", got, want)
	}
	b := startHere(t, dir, "")
	must(t, dial(t, b.addr(), false).end(t.Context(), x, true))
	wantValues(t, b.addr(), 0, "v0", "v1", "v2", "v3")
}

// An empty segment is what a crash between rolling and writing leaves.
func TestEmptySegmentIsRemoved(t *testing.T) {
	dir, x := crashedDirectory(t)
	empty := filepath.Join(dir, "partitions", "t-0", "4.dat")
	must(t, os.WriteFile(empty, nil, 0o600))
	repaired(t, dir)
	if _, err := os.Stat(empty); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	b := startHere(t, dir, "")
	must(t, dial(t, b.addr(), false).end(t.Context(), x, true))
	wantValues(t, b.addr(), 0, "v0", "v1", "v2", "v3")
}

// With its only batch cut off, a partition keeps the offset that it is at.
func TestOffsetIsKeptWhenTheOnlyBatchIsUnfinished(t *testing.T) {
	dir, _ := crashedDirectory(t)
	at := filepath.Join(dir, "partitions", "t-1")
	must(t, os.MkdirAll(at, 0o755))
	must(t, os.WriteFile(filepath.Join(at, "50.dat"), []byte("torn"), 0o600))
	repaired(t, dir)
	b := startHere(t, dir, "")
	c := dial(t, b.addr(), false)
	y, err := c.init(t.Context(), "y", unlimited)
	must(t, err)
	if offset := c.write(t, y, 1, "v"); offset != 50 {
		t.Errorf("the next record is at %d", offset)
	}
}

// A log that retention has emptied goes on where it was.
func TestOffsetIsKeptWhenEverythingWasDeleted(t *testing.T) {
	dir := t.TempDir()
	b := startHere(t, dir, "")
	c := dial(t, b.addr(), false)
	x, err := c.init(t.Context(), "x", unlimited)
	must(t, err)
	c.write(t, x, 0, "v0", "v1")
	must(t, c.end(t.Context(), x, true))
	must(t, b.cluster.DeleteRecords("t", 0, -1))
	c.cl.Close()
	must(t, b.stop())
	for range 2 {
		repaired(t, dir)
		b = startHere(t, dir, "")
		c = dial(t, b.addr(), false)
		if end := c.endOffset(t, 0, 0); end != 3 {
			t.Fatalf("partition ends at %d, want 3", end)
		}
		c.cl.Close()
		must(t, b.stop())
	}
	b = startHere(t, dir, "")
	c = dial(t, b.addr(), false)
	if offset := c.write(t, x, 0, "v2"); offset != 3 {
		t.Errorf("the next record is at %d", offset)
	}
}

// kfake's compaction removes a log before it writes it anew.
func TestALogLostInCompactionTakesItsPartitionOffline(t *testing.T) {
	for _, rest := range []bool{false, true} {
		t.Run(fmt.Sprintf("part of it is there=%t", rest), func(t *testing.T) {
			dir, _ := crashedDirectory(t)
			repaired(t, dir)
			edit(t, filepath.Join(dir, "topics.json"), `"name":"t"`, `"configs":{"cleanup.policy":"compact"},"name":"t"`)
			if rest {
				cutLastBatch(t, dir, 0)
			} else {
				must(t, os.Remove(segmentPath(dir, 0)))
			}
			takenOffline(t, dir, filepath.Join("partitions", "t-0"))
		})
	}
}

func TestDamageIsNoticed(t *testing.T) {
	segment := "partitions/t-0/0.dat"
	for name, harm := range map[string]func(t *testing.T, dir string) (file string){
		"a bit in the middle of a segment": func(t *testing.T, dir string) string {
			t.Helper()
			flip(t, filepath.Join(dir, segment), 100)
			return segment
		},
		"a length in the middle of a segment": func(t *testing.T, dir string) string {
			t.Helper()
			flip(t, filepath.Join(dir, segment), 9)
			return segment
		},
		"two acknowledged batches gone": func(t *testing.T, dir string) string {
			t.Helper()
			cutLastBatch(t, dir, 0)
			cutLastBatch(t, dir, 0)
			return segment
		},
		"a batch gone from the middle, index too": func(t *testing.T, dir string) string {
			t.Helper()
			raw, err := os.ReadFile(filepath.Join(dir, segment))
			must(t, err)
			first := 12 + int(binary.BigEndian.Uint32(raw[8:]))
			must(t, os.WriteFile(filepath.Join(dir, segment), raw[first:], 0o600))
			return segment
		},
		"a torn segment before the last": func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, segment)
			raw, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, append(raw, "torn"...), 0o600))
			batch := recordBatch(1, -1, 0, []string{"v"})
			binary.BigEndian.PutUint64(batch, 4)
			must(t, os.WriteFile(filepath.Join(dir, "partitions", "t-0", "4.dat"), batch, 0o600))
			return segment
		},
		"a bit in pids.log": func(t *testing.T, dir string) string {
			t.Helper()
			appendEntry(t, filepath.Join(dir, "pids.log"), 1, `{"type":"init","pid":7,"epoch":0}`)
			flip(t, filepath.Join(dir, "pids.log"), 20)
			return "pids.log"
		},
		"a bit in the journal": func(t *testing.T, dir string) string {
			t.Helper()
			appendEntry(t, filepath.Join(dir, "transactions.journal"), 1, `{"k":"void","pid":7,"epoch":0,"at":0}`)
			flip(t, filepath.Join(dir, "transactions.journal"), 20)
			return "transactions.journal"
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := crashedDirectory(t)
			if file := harm(t, dir); file == segment {
				takenOffline(t, dir, file)
			} else {
				refused(t, dir, durable.ErrDamaged, file)
			}
		})
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	raw[at] ^= 0x10
	must(t, os.WriteFile(path, raw, 0o600))
}

func appendBytes(t *testing.T, path string, tail []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	must(t, err)
	_, err = f.Write(tail)
	must(t, err)
	must(t, f.Close())
}

// appendEntry adds a framed entry of the version given.
func appendEntry(t *testing.T, path string, version uint16, entry string) {
	t.Helper()
	body := append(binary.LittleEndian.AppendUint16(nil, version), entry...)
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	appendBytes(t, path, append(frame, body...))
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// Every byte in the header of a batch between others, changed at rest. The checksum
// does not cover all of them; where the batch lies does.
func TestAChangedByteOfABatchHeaderIsNoticed(t *testing.T) {
	const header, leaderEpochAt, magicAt = 61, 12, 16
	whole, _ := crashedDirectory(t)
	segment := filepath.Join("partitions", "t-0", "0.dat")
	raw, err := os.ReadFile(filepath.Join(whole, segment))
	must(t, err)
	second := 12 + int(binary.BigEndian.Uint32(raw[8:]))
	for at := range header {
		for _, bit := range []byte{0x01, 0x80} {
			dir := t.TempDir()
			must(t, os.CopyFS(dir, os.DirFS(whole)))
			changed := bytes.Clone(raw)
			changed[second+at] ^= bit
			must(t, os.WriteFile(filepath.Join(dir, segment), changed, 0o600))
			report, err := durable.Repair(dir, time.Now(), zerolog.Nop())
			must(t, err)
			nothing := at >= leaderEpochAt && at < magicAt // which no reader of ours looks at
			if noticed := len(report.Offline) == 1; noticed == nothing {
				t.Errorf("byte %d, bit %#x: got %+v, want it noticed: %t", at, bit, report.Offline, !nothing)
			}
		}
	}
}

// The power fails while a topic is deleted: it is off the list, and its files
// are there. A new topic of the same name has none of them.
func TestFilesOfATopicThatWasBeingDeletedAreSetAside(t *testing.T) {
	dir, _ := crashedDirectory(t)
	left := filepath.Join(dir, "partitions", "t-3") // topic t has three
	must(t, os.CopyFS(left, os.DirFS(filepath.Join(dir, "partitions", "t-0"))))
	repaired(t, dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("kfake would append to %s: %v", left, err)
	}
	aside, err := filepath.Glob(left + ".*-stray")
	must(t, err)
	if len(aside) != 1 {
		t.Errorf("set aside are %v", aside)
	}
}

func TestPartitionsWithoutTheListOfTopicsAreRefused(t *testing.T) {
	dir, _ := crashedDirectory(t)
	must(t, os.Remove(filepath.Join(dir, "topics.json")))
	if _, err := durable.Repair(dir, time.Now(), zerolog.Nop()); !errors.Is(err, durable.ErrDamaged) {
		t.Errorf("started without its topics: %v", err)
	}
}

// What DeleteRecords has deleted stays deleted, and the log goes on where it was
// when nothing is left of it.
func TestDeletedRecordsStayDeleted(t *testing.T) {
	dir, x := crashedDirectory(t)
	b := startHere(t, dir, "")
	id := b.cluster.TopicInfo("t").TopicID
	must(t, dial(t, b.addr(), false).end(t.Context(), x, true)) // four records and a marker
	must(t, b.stop())
	must(t, durable.SaveStarts(dir, []durable.Start{{TopicID: id, Partition: 0, Offset: 3, End: 5}, {TopicID: id, Partition: 1, Offset: 7, End: 7}}))
	repaired(t, dir)
	b = startHere(t, dir, "")
	for partition, want := range []int64{3, 7} {
		if p := b.cluster.PartitionInfo("t", int32(partition)); p.LogStartOffset != want {
			t.Errorf("partition %d begins at %d, want %d", partition, p.LogStartOffset, want)
		}
	}
	if p := b.cluster.PartitionInfo("t", 1); p.HighWatermark != 7 {
		t.Errorf("the log goes on at %d, want 7", p.HighWatermark)
	}
}
