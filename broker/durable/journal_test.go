package durable_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

func openJournal(t *testing.T, dir string) *durable.Journal {
	t.Helper()
	j, err := durable.OpenJournal(dir, time.Now)
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func journalKinds(t *testing.T, dir string) []string {
	t.Helper()
	return frameKinds(t, filepath.Join(dir, "transactions.journal"), "k")
}

func stageRequest(pid int64, epoch int16, offset int64) (*kmsg.TxnOffsetCommitRequest, *kmsg.TxnOffsetCommitResponse) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.ProducerID, req.ProducerEpoch, req.Group = 5, pid, epoch, group
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = "source"
	st := kmsg.NewTxnOffsetCommitResponseTopic()
	st.Topic = "source"
	for partition := range int32(2) { // the second one is refused
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = partition, offset
		rt.Partitions = append(rt.Partitions, rp)
		sp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
		sp.Partition, sp.ErrorCode = partition, int16(3*partition)
		st.Partitions = append(st.Partitions, sp)
	}
	req.Topics = append(req.Topics, rt)
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version, resp.Topics = 5, append(resp.Topics, st)
	return req, resp
}

func endRequest(pid int64, epoch, version, code int16) (*kmsg.EndTxnRequest, *kmsg.EndTxnResponse) {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.ProducerID, req.ProducerEpoch, req.Commit = version, pid, epoch, true
	resp := kmsg.NewPtrEndTxnResponse()
	resp.Version, resp.ErrorCode = version, code
	return req, resp
}

func TestJournalNotesOnlyWhatKfakeAccepted(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	req, resp := stageRequest(1, 0, 10)
	must(t, j.Request(req))
	must(t, j.Response(req, nil)) // the connection broke
	if kinds := journalKinds(t, dir); len(kinds) != 0 {
		t.Errorf("noted %v without an answer", kinds)
	}
	must(t, j.Response(req, resp))
	raw, err := os.ReadFile(filepath.Join(dir, "transactions.journal"))
	must(t, err)
	if got := string(raw[10:]); got[len(got)-len(`"o":[{"t":"source","p":0,"o":10,"e":-1}]}`):] != `"o":[{"t":"source","p":0,"o":10,"e":-1}]}` {
		t.Errorf("noted %s", got)
	}
}

// Anybody may send an EndTxn with any epoch; it must not push the offsets of
// the transaction that is open out of the journal.
func TestJournalKeepsStagedOffsetsAgainstAForeignEnd(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	req, resp := stageRequest(1, 4, 10)
	must(t, j.Response(req, resp))
	for _, epoch := range []int16{3, 5, 32000} {
		for _, version := range []int16{4, 5} {
			end, refusal := endRequest(1, epoch, version, 90)
			must(t, j.Request(end))
			must(t, j.Response(end, refusal))
		}
	}
	if kinds := journalKinds(t, dir); !slices.Equal(kinds, []string{"stage"}) {
		t.Errorf("journal has %v", kinds)
	}
	end, refusal := endRequest(1, 4, 5, 53) // TRANSACTIONAL_ID_AUTHORIZATION_FAILED
	must(t, j.Request(end))
	must(t, j.Response(end, refusal))
	end, answer := endRequest(1, 4, 5, 0)
	must(t, j.Request(end))
	must(t, j.Response(end, answer))
	if kinds := journalKinds(t, dir); !slices.Equal(kinds, []string{"stage", "ending", "void", "ending", "ended"}) {
		t.Errorf("journal has %v", kinds)
	}
}

func TestJournalIsWrittenAnewBeforeItGrows(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	open, resp := stageRequest(1, 0, 10)
	must(t, j.Response(open, resp))
	path := filepath.Join(dir, "transactions.journal")
	var wg sync.WaitGroup
	for pid := range int64(4) {
		wg.Go(func() {
			for epoch := range int16(3000) {
				end, answer := endRequest(100+pid, epoch, 5, 0)
				if err := j.Request(end); err != nil {
					t.Error(err)
				}
				if err := j.Response(end, answer); err != nil {
					t.Error(err)
				}
				if epoch%500 == 0 {
					req, staged := stageRequest(100+pid, epoch+1, 1)
					if err := j.Response(req, staged); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() > 1<<20 {
		t.Errorf("journal has %d bytes for one open transaction", info.Size())
	}
	if kinds := journalKinds(t, dir); kinds[0] != "stage" {
		t.Errorf("the open transaction is gone: %v", kinds[0])
	}
}

func TestJournalAcceptsNothingAfterItFailed(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	must(t, j.Close())
	req, resp := stageRequest(1, 0, 10)
	if err := j.Response(req, resp); err == nil {
		t.Error("a closed journal took a note")
	}
	end, _ := endRequest(1, 0, 5, 0)
	if err := j.Request(end); err == nil {
		t.Error("a closed journal took a note")
	}
	other := kmsg.NewPtrMetadataRequest()
	must(t, j.Request(other))
	must(t, j.Response(other, kmsg.NewPtrMetadataResponse()))
}

// BenchmarkStage is what a staged offset costs on top of kfake.
func BenchmarkStage(b *testing.B) {
	j, err := durable.OpenJournal(b.TempDir(), time.Now)
	must(b, err)
	defer func() { must(b, j.Close()) }()
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			b.SetParallelism(writers)
			b.RunParallel(func(pb *testing.PB) {
				req, resp := stageRequest(1, 0, 10)
				for pb.Next() {
					if err := j.Response(req, resp); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
