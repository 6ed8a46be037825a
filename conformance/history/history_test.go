package history_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

func TestEventsSurviveTheStream(t *testing.T) {
	var stream bytes.Buffer
	r := history.NewRecorder(&stream, "c1")
	want := []history.Event{
		{Kind: history.Write, Txn: "t", Place: history.Place{Cluster: "us", Topic: "a", Partition: 2}, Value: "v"},
		{Kind: history.Answer, Txn: "t", Result: history.Committed, Detail: "waiting\nfor us", Ended: []string{"eu"}},
		{Kind: history.Contradicted, ID: "c1", Place: history.Place{Cluster: "us"}, Producer: history.Producer{ID: 7, Epoch: 2}, Result: history.Aborted},
	}
	for _, e := range want {
		r.Record(e)
	}
	var got []history.Event
	if err := history.Scan(&stream, func(e history.Event) { got = append(got, e) }); err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	for i := range got {
		if got[i].At == 0 || got[i].Client != "c1" {
			t.Errorf("event %d has time %d and client %q", i, got[i].At, got[i].Client)
		}
		got[i].At, got[i].Client = 0, ""
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
}

func TestLineCutByAKillIsLeftOut(t *testing.T) {
	n := 0
	stream := bytes.NewBufferString(`{"at":1,"client":"c1","kind":"begin","txn":"t"}` + "\n" + `{"at":2,"client":"c1","ki`)
	if err := history.Scan(stream, func(history.Event) { n++ }); err != nil || n != 1 {
		t.Errorf("Scan: %d events, %v; want 1, nil", n, err)
	}
}

func TestDamageIsNoHistory(t *testing.T) {
	stream := bytes.NewBufferString("panic: something else on the stream\n")
	if err := history.Scan(stream, func(history.Event) {}); err == nil {
		t.Error("Scan took anything for an event")
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestRecorderReportsWhatItCouldNotWrite(t *testing.T) {
	r := history.NewRecorder(fullDisk{}, "c1")
	r.Record(history.Event{Kind: history.Begin})
	if err := r.Err(); !errors.Is(err, errFull) {
		t.Errorf("Err = %v, want %v", err, errFull)
	}
}
