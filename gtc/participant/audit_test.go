package participant

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// logBatch is one batch of a partition as the audit sees it: data, or a marker.
type logBatch struct {
	pid    int64
	epoch  int16
	marker string // "", "commit", "abort"
	millis int64
}

func encode(batches []logBatch) []byte {
	var out []byte
	for i, l := range batches {
		rec := kmsg.Record{Key: []byte("k"), Value: []byte("v")}
		b := kmsg.RecordBatch{FirstOffset: int64(i), Magic: 2, ProducerID: l.pid, ProducerEpoch: l.epoch, NumRecords: 1, FirstTimestamp: l.millis, Attributes: 1 << 4}
		if l.marker != "" {
			b.Attributes |= controlBatch
			key := kmsg.ControlRecordKey{Type: kmsg.ControlRecordKeyTypeAbort}
			if l.marker == "commit" {
				key.Type = kmsg.ControlRecordKeyTypeCommit
			}
			rec.Key = key.AppendTo(nil)
		}
		rec.Length = int32(len(rec.AppendTo(nil)) - 1)
		b.Records = rec.AppendTo(nil)
		b.Length = int32(len(b.AppendTo(nil)) - batchHeader)
		out = b.AppendTo(out)
	}
	return out
}

func markersOf(p txnlog.Participant, version int16) *markerSearch {
	return &markerSearch{*verdict.NewMarkers(p, version)}
}

// p is producer id 7, epoch 3, begun at 100,000 ms.
func TestWhatMarkersProve(t *testing.T) {
	const start = 100_000
	for _, tc := range []struct {
		name    string
		version int16
		log     []logBatch
		want    string // "": nothing
	}{
		{"v5: its records, then its marker", 5, []logBatch{{7, 3, "", start}, {8, 0, "abort", start}, {7, 4, "commit", start + 5}}, "commit"},
		{"v5: aborted", 5, []logBatch{{7, 3, "", start}, {7, 4, "abort", start + 5}, {7, 5, "", start + 6}, {7, 6, "commit", start + 7}}, "abort"},
		{"v5: after the marker of the one before", 5, []logBatch{{7, 3, "commit", start - 1}, {7, 3, "", start}, {7, 4, "abort", start + 5}}, "abort"},
		{"v5: only the one before", 5, []logBatch{{7, 2, "", start - 2}, {7, 3, "commit", start - 1}}, ""},
		{"v5: its records lie before the search", 5, []logBatch{{7, 4, "commit", start + 5}}, "commit"},
		{"v5: marker lost to retention, the next is there", 5, []logBatch{{7, 4, "", start + 50}, {7, 5, "commit", start + 60}}, ""},
		{"v5: marker with the transaction's own epoch (kfake)", 5, []logBatch{{7, 3, "", start}, {7, 3, "commit", start + 5}}, "commit"},
		{"v5: the next one's marker on kfake", 5, []logBatch{{7, 4, "", start + 6}, {7, 4, "commit", start + 7}}, ""},
		{"nothing", 5, nil, ""},
		{"v4: committed", 4, []logBatch{{7, 3, "", start}, {7, 3, "commit", start + 5}}, "commit"},
		{"v4: fenced", 4, []logBatch{{7, 3, "", start}, {7, 4, "abort", start + 5}}, "abort"},
		{"v4: clearly after the one before", 4, []logBatch{{7, 3, "commit", start - 5000}, {7, 3, "", start}, {7, 4, "abort", start + 5000}}, "abort"},
		{"v4: near the one before, alike", 4, []logBatch{{7, 3, "commit", start - 10}, {7, 3, "", start}, {7, 3, "commit", start + 5}}, "commit"},
		{"v4: near the one before, different", 4, []logBatch{{7, 3, "commit", start - 10}, {7, 3, "", start}, {7, 4, "abort", start + 5}}, ""},
		{"v4: a later session's commit is not its", 4, []logBatch{{7, 4, "", start + 50}, {7, 4, "commit", start + 60}}, ""},
		{"v4: a later session's abort is not its", 4, []logBatch{{7, 4, "", start + 50}, {7, 4, "abort", start + 60}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := branch(tc.version)
			p.StartMillis = start
			m := markersOf(p, tc.version)
			raw := encode(tc.log)
			// Cut anywhere, the rest comes with the next Fetch.
			cut := len(raw) / 2
			next, found := m.feed(raw[:cut], 0)
			if !found {
				rest := encode(tc.log)
				m.feed(rest, next)
			}
			commit, err := m.Result()
			got := map[bool]string{true: "commit", false: "abort"}[commit]
			if err != nil {
				got = ""
			}
			if got != tc.want || err != nil && !errors.Is(err, verdict.ErrNoMarker) {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestGarbageProvesNothing(t *testing.T) {
	m := markersOf(branch(5), 5)
	for _, raw := range [][]byte{nil, {1}, make([]byte, 17), make([]byte, 200), append(make([]byte, 8), 0xff, 0xff, 0xff, 0xff, 2, 2, 2, 2, 2)} {
		if next, found := m.feed(raw, 5); found || next != 5 {
			t.Errorf("%v: next %d, found %v", raw, next, found)
		}
	}
}

func FuzzMarkerSearch(f *testing.F) {
	f.Add(encode([]logBatch{{7, 3, "", 1}, {7, 4, "commit", 2}}), int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, at int64) {
		m := markersOf(branch(5), 5)
		if next, _ := m.feed(raw, at); next < at {
			t.Errorf("went back from %d to %d", at, next)
		}
	})
}

// An outsider initialised the producer anew after the end: the state tells
// nothing, the markers do.
func TestAuditOnKfake(t *testing.T) {
	for _, commit := range []bool{true, false} {
		a := fake(t, "A")
		c := drive(t, at("a", a.ListenAddrs()...))
		p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
		p.write("t")
		rec := prepared(t, c, "tid", p.ref("A"))
		if commit {
			if ans := settle(t, c, "tid", rec, true); ans.Outcome != gtc.EndDone {
				t.Fatalf("%+v", ans)
			}
		}
		newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...).ref("A")
		want := map[bool]map[bool]gtc.EndOutcome{
			true:  {true: gtc.EndDone, false: gtc.EndCommitted},
			false: {true: gtc.EndAborted, false: gtc.EndDone},
		}[commit]
		for asked, outcome := range want {
			ans := settle(t, c, "tid", rec, asked)
			// kfake takes the re-init for the end that was asked for and
			// names the outsider's epoch; Kafka says PRODUCER_FENCED.
			byKfake := !commit && !asked
			if ans.Outcome != outcome || !byKfake && ans.NextProducerEpoch != -1 {
				t.Errorf("committed %v, asked to commit %v: %+v, want %d", commit, asked, ans, outcome)
			}
		}
	}
}

func TestWhatNobodyCanTellIsUnknown(t *testing.T) {
	s, c := newScripted(t)
	s.code = 90
	s.state("Empty", 7, 9, -1)
	for _, commit := range []bool{true, false} {
		ans := settle(t, c, "tid", branch(verdict.EndTxnBumps), commit)
		if ans.Outcome != gtc.EndUnknown {
			t.Errorf("commit %v: %+v, want unknown", commit, ans)
		}
	}
	never := branch(verdict.EndTxnBumps)
	never.AuditTopic, never.StartMillis = "", 0
	if ans := settle(t, c, "tid", never, false); ans.Outcome != gtc.EndDone {
		t.Errorf("abort of what was never seen open: %+v, want done", ans)
	}
	if ans := settle(t, c, "tid", never, true); ans.Outcome != gtc.EndUnknown {
		t.Errorf("commit of what was never seen open and has moved on: %+v, want unknown", ans)
	}
}

// The partition that would prove the outcome cannot be read for want of READ, or
// not even be found for want of DESCRIBE. To call the outcome unknown would tear
// the transaction for good, and a grant proves it.
func TestAnAuditWaitsForTheRightToRead(t *testing.T) {
	denied := kerr.TopicAuthorizationFailed.Code
	for name, deny := range map[string]func(*kfake.Cluster, *atomic.Bool){
		"DESCRIBE, for the leader": func(a *kfake.Cluster, on *atomic.Bool) {
			answer(a, int16(kmsg.Metadata), func(req *kmsg.MetadataRequest) kmsg.Response {
				if !on.Load() || len(req.Topics) != 1 {
					return nil
				}
				resp := req.ResponseKind().(*kmsg.MetadataResponse)
				resp.Topics = []kmsg.MetadataResponseTopic{{Topic: req.Topics[0].Topic, ErrorCode: denied}}
				return resp
			})
		},
		"DESCRIBE, for the offset": func(a *kfake.Cluster, on *atomic.Bool) {
			answer(a, int16(kmsg.ListOffsets), func(req *kmsg.ListOffsetsRequest) kmsg.Response {
				if !on.Load() {
					return nil
				}
				resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
				resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsResponseTopicPartition{{ErrorCode: denied, Offset: -1}}}}
				return resp
			})
		},
		"READ": func(a *kfake.Cluster, on *atomic.Bool) {
			answer(a, int16(kmsg.Fetch), func(req *kmsg.FetchRequest) kmsg.Response {
				if !on.Load() {
					return nil
				}
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				resp.Topics = []kmsg.FetchResponseTopic{{Topic: "t", Partitions: []kmsg.FetchResponseTopicPartition{{ErrorCode: denied, HighWatermark: -1}}}}
				return resp
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := fake(t, "A")
			c := drive(t, at("a", a.ListenAddrs()...))
			p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
			p.write("t")
			rec := prepared(t, c, "tid", p.ref("A"))
			if ans := settle(t, c, "tid", rec, true); ans.Outcome != gtc.EndDone {
				t.Fatalf("%+v", ans)
			}
			newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...).ref("A")
			var on atomic.Bool
			on.Store(true)
			deny(a, &on)
			for range 2 * verdict.AuditTries {
				ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true})
				if ans.Outcome != gtc.EndRetry {
					t.Fatalf("%+v, want it asked again", ans)
				}
				contains(t, ans.Detail, "grant the coordinator's principal READ and DESCRIBE")
			}
			on.Store(false)
			if ans := settle(t, c, "tid", rec, true); ans.Outcome != gtc.EndDone {
				t.Errorf("with the right: %+v, want done", ans)
			}
		})
	}
}
