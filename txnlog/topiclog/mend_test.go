package topiclog

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

func attach(t *testing.T, s *store) *Log {
	t.Helper()
	l, err := Attach(t.Context(), s.options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// idOn is an id that partition 0 of the three holds.
const idOn = "c"

func TestADamagedIDIsTakenOutByNameAndTheOthersAreServed(t *testing.T) {
	if p := txnlog.PartitionFor(idOn, 3); p != 0 {
		t.Fatalf("%s is of partition %d", idOn, p)
	}
	for name, harm := range map[string]txnlog.RawRecord{
		"garbage":         {ProducerEpoch: 0, Value: []byte{0, 0, 99}},
		"a stranger's":    {ProducerID: -1, ProducerEpoch: -1, Value: []byte{0, 0, 99}},
		"a strange grave": {ProducerID: -1, ProducerEpoch: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := kfakeStore(t)
			w, _ := logtest.Claim(t, s.open(t), 0)
			mustAppend(t, w, logtest.Put("other", 1), logtest.Put(idOn, 1)) // 1 and 2
			key, err := txnlog.AppendKey(nil, idOn)
			if err != nil {
				t.Fatal(err)
			}
			harm.Key = key
			if harm.ProducerID == 0 {
				harm.ProducerID = s.records(t, 0)[0].ProducerID
			}
			s.inject(t, 0, harm) // 3
			refused := func() error {
				_, claimErr := s.open(t).Claim(t.Context(), 0, func(txnlog.Entry) error { return nil })
				return claimErr
			}
			if err = refused(); !txnlog.Refuses(err) {
				t.Fatalf("got %v, want the partition refused", err)
			}
			l := attach(t, s)
			doubts, err := l.Verify(t.Context(), 0, func(txnlog.RawRecord) {})
			if id, at := subject(doubts[0]); err != nil || len(doubts) != 1 || id != idOn || at != 3 {
				t.Fatalf("doubts are %v, %v", doubts, err)
			}
			before := len(s.records(t, 0))
			for _, wrong := range []struct {
				id string
				at int64
			}{{"other", 1}, {idOn, 2}, {"", 3}} {
				if err := l.TakeOut(t.Context(), wrong.id, wrong.at, "ann"); err == nil {
					t.Errorf("%q at %d was taken out", wrong.id, wrong.at)
				}
			}
			if n := len(s.records(t, 0)); n != before {
				t.Errorf("what was refused has written %d records", n-before)
			}
			if err := l.TakeOut(t.Context(), idOn, 3, "ann"); err != nil {
				t.Fatal(err)
			}
			if err := l.TakeOut(t.Context(), idOn, 3, "ann"); !errors.Is(err, errNoDoubt) {
				t.Errorf("the second time it gives %v", err)
			}
			states := make(map[string]*txnlog.GlobalTransaction)
			if _, err := s.open(t).Claim(t.Context(), 0, func(e txnlog.Entry) error {
				states[e.GlobalTransactionalID] = e.Value
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			v := states[idOn]
			if states["other"].Sequence != 1 || v.Participants[0].State != txnlog.ParticipantHeuristicUnknown ||
				!strings.Contains(v.Participants[0].Detail, "taken out of the log by ann") || !strings.Contains(v.Reason, "offset 3") {
				t.Errorf("other is %+v, %s is %+v", states["other"], idOn, v)
			}
		})
	}
}

// damageBatch lets the broker serve every batch that begins at an offset with a
// changed byte of a record.
func damageBatch(t *testing.T, s *store, c *kfake.Cluster, base int64) {
	t.Helper()
	answerAll(t, s, c, func(raw []byte) {
		for at := 0; at < len(raw); {
			b, err := parseBatch(raw[at:])
			if err != nil {
				t.Error(err)
				return
			}
			if b.base == base {
				raw[at+batchOverhead+9] ^= 1
			}
			at += b.size
		}
	})
}

// answerAll changes what every fetch of partition 0 brings.
func answerAll(t *testing.T, s *store, c *kfake.Cluster, change func(raw []byte)) {
	t.Helper()
	o, err := s.options().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPartition(&o, new(stats), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if req.Topics[0].Partitions[0].Partition != 0 || req.MinBytes == 7 {
			return nil, nil, false
		}
		var resp *kmsg.FetchResponse
		c.SleepControl(func() {
			ours := *req
			ours.MinBytes = 7 // this one passes
			kresp, err := p.ask(t.Context(), func() kmsg.Request { return &ours })
			if err != nil {
				t.Error(err)
				return
			}
			resp = kresp.(*kmsg.FetchResponse)
		})
		if resp == nil {
			return nil, nil, false
		}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				raw := bytes.Clone(resp.Topics[i].Partitions[j].RecordBatches)
				change(raw)
				resp.Topics[i].Partitions[j].RecordBatches = raw
			}
		}
		return resp, nil, true
	})
}

func TestALostStretchIsAcceptedByItsOffsetsAlone(t *testing.T) {
	s, c := damagedStore(t) // a claim, a, b
	damageBatch(t, s, c, 1)
	_, err := s.open(t).Claim(t.Context(), 0, func(txnlog.Entry) error { return nil })
	lost, ok := errors.AsType[*txnlog.LostError](err)
	if !ok || lost.First != 1 || lost.Last != 1 || !txnlog.Refuses(err) {
		t.Fatalf("got %v, want offset 1 lost", err)
	}
	l := attach(t, s)
	for _, wrong := range [][2]int64{{1, 2}, {0, 1}, {2, 2}} {
		if err := l.AcceptLoss(t.Context(), 0, wrong[0], wrong[1], "ann"); !errors.Is(err, errNoDoubt) {
			t.Errorf("accepting %v gives %v", wrong, err)
		}
	}
	if err := l.AcceptLoss(t.Context(), 0, 1, 1, "ann"); err != nil {
		t.Fatal(err)
	}
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "b1")
	trace := ""
	if _, err := l.Verify(t.Context(), 0, func(r txnlog.RawRecord) {
		if k, err := txnlog.DecodeKey(r.Key); err == nil && k.Type == txnlog.TypeLoss {
			loss, err := txnlog.DecodeLoss(r.Value)
			if err != nil {
				t.Error(err)
				return
			}
			trace = loss.Operator + ": " + loss.Reason
		}
	}); err != nil || !strings.Contains(trace, "ann: the checksum") {
		t.Errorf("the trace is %q, %v", trace, err)
	}
}

func TestAttachSaysThatThereIsNoLog(t *testing.T) {
	c := newKfake(t)
	_, err := Attach(t.Context(), Options{ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Clock: realClock{}})
	if err == nil || !strings.Contains(err.Error(), "there is no topic") {
		t.Fatalf("got %v", err)
	}
}
