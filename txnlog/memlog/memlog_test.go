package memlog

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLog(t *testing.T) {
	logtest.Run(t, func(*testing.T) logtest.Target {
		s := NewStore(3)
		return logtest.Target{
			Open: func(t *testing.T) txnlog.Log {
				l := s.Open()
				t.Cleanup(l.Close)
				return l
			},
			Hold: func(l txnlog.Log) func() {
				s.Hold(0)
				return func() { l.(*Log).Release(0) }
			},
			AwaitInFlight: func(*testing.T, int) {},
			Batches:       func(l txnlog.Log) int64 { return l.(*Log).Stats().Batches },
			Foreign:       func(l txnlog.Log) int64 { return l.(*Log).Stats().Foreign },
			Records:       func(_ *testing.T, p int32) []txnlog.RawRecord { return s.Records(p) },
			Inject:        func(_ *testing.T, p int32, r txnlog.RawRecord) { s.Inject(p, r) },
			Compact:       func(_ *testing.T, p int32) { s.Compact(p, true) },
		}
	})
}

// held gives a claimed partition whose first append is in flight and whose
// next two fill the second batch.
func held(t *testing.T) (*Log, txnlog.Writer, *[]error) {
	t.Helper()
	l := New(1)
	w, _ := logtest.Claim(t, l, 0)
	l.Store().Hold(0)
	answers := new([]error)
	for i := range int64(3) {
		w.Append([]txnlog.Record{logtest.Put("a", i)}, func(err error) { *answers = append(*answers, err) })
	}
	if l.InFlight(0) != 2 || len(*answers) != 0 {
		t.Fatalf("%d batches in flight and %d answers, want 2 and none", l.InFlight(0), len(*answers))
	}
	return l, w, answers
}

func wantAnswers(t *testing.T, got []error, want ...error) {
	t.Helper()
	if !slices.EqualFunc(got, want, errors.Is) {
		t.Fatalf("answers %v, want %v", got, want)
	}
}

func wantReplay(t *testing.T, l *Log, want ...string) {
	t.Helper()
	l.Store().partitions[0].held = false
	_, got := logtest.Claim(t, l.Store().Open(), 0)
	logtest.Want(t, got, want...)
}

func TestAckSettlesOneBatchAtATime(t *testing.T) {
	l, _, answers := held(t)
	l.Ack(0)
	wantAnswers(t, *answers, nil)
	l.Ack(0)
	wantAnswers(t, *answers, nil, nil, nil)
	if l.Ack(0) {
		t.Fatal("there was a third batch")
	}
	if st := l.Stats(); st != (Stats{Appends: 3, Records: 3, ForcedWrites: 3, Batches: 2, Claims: 1}) {
		t.Fatalf("%+v", st)
	}
	wantReplay(t, l, "a0", "a1", "a2")
}

func TestALostAckHasWrittenTheBatch(t *testing.T) {
	l, w, answers := held(t)
	l.LoseAck(0)
	e := txnlog.ErrUnknownFate
	wantAnswers(t, *answers, e, e, e)
	if err := logtest.Append(t, w, logtest.Put("a", 9)); !errors.Is(err, e) {
		t.Fatalf("the dead writer gives %v", err)
	}
	wantReplay(t, l, "a0")
}

func TestAFailureHasWrittenNothing(t *testing.T) {
	l, w, answers := held(t)
	l.Ack(0)
	l.Fail(0)
	e := txnlog.ErrUnknownFate
	wantAnswers(t, *answers, nil, e, e)
	if err := logtest.Append(t, w, logtest.Put("a", 9)); !errors.Is(err, e) {
		t.Fatalf("the dead writer gives %v", err)
	}
	wantReplay(t, l, "a0")
}

func TestACrashAnswersNobodyAndKeepsWhatItIsTold(t *testing.T) {
	for keep, want := range [][]string{{}, {"a0"}, {"a0", "a1", "a2"}, {"a0", "a1", "a2"}} {
		l, w, answers := held(t)
		l.Crash(0, keep)
		w.Append([]txnlog.Record{logtest.Put("a", 9)}, func(err error) { *answers = append(*answers, err) })
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantAnswers(t, *answers)
		wantReplay(t, l, want...)
	}
}

func TestAZombiesAppendsInFlightAreFenced(t *testing.T) {
	l, w, answers := held(t)
	other := l.Store().Open()
	next, got := logtest.Claim(t, other, 0)
	logtest.Want(t, got)
	l.Ack(0)
	e := txnlog.ErrFenced
	wantAnswers(t, *answers, e, e, e)
	if err := logtest.Append(t, w, logtest.Put("a", 9)); !errors.Is(err, e) {
		t.Fatalf("the zombie gets %v, want ErrFenced", err)
	}
	other.Release(0)
	if err := logtest.Append(t, next, logtest.Put("b", 1)); err != nil {
		t.Fatal(err)
	}
	wantReplay(t, l, "b1")
}

func TestAFencedLostAckIsNotWritten(t *testing.T) {
	l, _, answers := held(t)
	logtest.Claim(t, l.Store().Open(), 0)
	l.LoseAck(0)
	e := txnlog.ErrFenced
	wantAnswers(t, *answers, e, e, e)
	wantReplay(t, l)
}

func TestReadsFailUntilTheyDoNot(t *testing.T) {
	l := New(1)
	w, _ := logtest.Claim(t, l, 0)
	if err := logtest.Append(t, w, logtest.Put("a", 1)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	l.Store().FailReads(0, broken)
	if _, err := l.Claim(t.Context(), 0, nil); !errors.Is(err, broken) {
		t.Fatalf("got %v, want the failure", err)
	}
	l.Store().FailReads(0, nil)
	wantReplay(t, l, "a1")
}

func TestCompactionMayDropTombstones(t *testing.T) {
	l := New(1)
	w, _ := logtest.Claim(t, l, 0)
	if err := logtest.Append(t, w, logtest.Put("a", 1), txnlog.Record{GlobalTransactionalID: "a"}, logtest.Put("b", 1), logtest.Put("b", 2)); err != nil {
		t.Fatal(err)
	}
	l.Store().Compact(0, false)
	wantReplay(t, l, "b1", "b2")
	entries, err := l.Store().Entries(0)
	if err != nil || len(entries) != 2 || entries[1].Value.Sequence != 2 {
		t.Fatalf("entries %+v, %v", entries, err)
	}
}
