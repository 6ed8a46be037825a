package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

const torn = `{"level":"error","global.transactional.id":"c1","sequence":5,"cluster":"ID","producer.id":7,"producer.epoch":3,"decided":"commit","seen":"SEEN","detail":"why","message":"heuristic outcome: a participant ended against the decision"}` + "\n"

func TestReportsAreReadFromTheLog(t *testing.T) {
	us := history.Place{Cluster: "us"}
	named := history.Producer{ID: 7, Epoch: 3}
	tests := []struct {
		name, said string
		want       history.Event // Kind empty: nothing
	}{
		{"aborted", strings.Replace(torn, "SEEN", "aborted", 1), history.Event{Kind: history.Contradicted, Result: history.Aborted, ID: "c1", Place: us, Producer: named}},
		{"committed", strings.Replace(torn, "SEEN", "committed", 1), history.Event{Kind: history.Contradicted, Result: history.Committed, ID: "c1", Place: us, Producer: named}},
		{"nobody can tell", strings.Replace(torn, "SEEN", "ended, nobody can tell how", 1), history.Event{Kind: history.Contradicted, Result: history.Unknown, ID: "c1", Place: us, Producer: named}},
		{
			"forgot", `{"level":"warn","global.transactional.id":"c1","cluster":"ID","producer.id":7,"producer.epoch":3,"decided":"commit","message":"a participant forgot: it had ended this"}` + "\n",
			history.Event{Kind: history.Reopened, ID: "c1", Place: us, Producer: named},
		},
		{"something else", `{"level":"info","cluster":"ID","message":"scanned"}` + "\n", history.Event{}},
		{"no JSON", "panic: oh\n", history.Event{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(test.said, "ID", "cluster-1")), 0o600); err != nil {
				t.Fatal(err)
			}
			r := newReports(map[string]string{"cluster-1": "us"})
			if err := r.follow(path); err != nil {
				t.Fatal(err)
			}
			var got history.Event
			if len(r.events) == 1 {
				got = r.events[0]
			}
			if got.Kind != test.want.Kind || got.Result != test.want.Result || got.ID != test.want.ID || got.Place != test.want.Place || got.Producer != test.want.Producer {
				t.Errorf("%d reports, %+v, want %+v", len(r.events), got, test.want)
			}
		})
	}
}

func TestReportsAreReadOnceAndWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newReports(map[string]string{"ID": "us"})
	line := strings.Replace(torn, "SEEN", "aborted", 1)
	for i, want := range []int{0, 1, 2} {
		text := strings.Repeat(line, i) + line[:20] // and the begin of one that is being written
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.follow(path); err != nil {
			t.Fatal(err)
		}
		if len(r.events) != want {
			t.Errorf("%d reports are read of %d", len(r.events), want)
		}
	}
}

func TestAReportAboutAnUnknownClusterIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newReports(map[string]string{}).follow(path); err == nil {
		t.Error("a report about a cluster that nobody has named was taken")
	}
}
